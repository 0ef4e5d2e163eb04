"""The alert rules, tested with Prometheus' promtool: each fires for its problem, and not otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.config import load_settings
from sweep_tasks.metrics import exporters as grafana
from sweep_tasks.metrics.declarations import ALERTS
from sweep_tasks.metrics.exporters import exposition
from sweep_tasks.store.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.unit.metrics.test_metrics import worked

__all__ = ["worked"]

RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
SHARD = 'shard="0",strategy="conservative"'
FAILED = 'sweepflow_protection_operations_total{operation="release",outcome="failed"}'
WELL = {
    "sweepflow_up": "1x300",
    f"sweepflow_lag_seconds{{{SHARD}}}": "100+0x300",
    'sweepflow_lag_objective_seconds{strategy="conservative"}': "10800+0x300",
    f"sweepflow_sweep_runs_total{{{SHARD}}}": "0+1x300",
    "sweepflow_oldest_open_transaction_seconds": "10+0x300",
    "sweepflow_quarantined_entries": "0+0x300",
    'sweepflow_parked_entries{reason="replicas"}': "0+0x300",
    "sweepflow_protection_problems": "0+0x300",
    FAILED: "0+0x300",
    'sweepflow_compaction_near_failing{node="10.0.0.2"}': "0+0x300",
    "sweepflow_counted_age_seconds": "600+0x300",
}
"""Values for five hours, one per minute, with the names of the exposition format."""
TROUBLE = {
    "SweepflowUnreachable": {"sweepflow_up": "0+0x300"},
    "SweepflowBehind": {f"sweepflow_lag_seconds{{{SHARD}}}": "10801+0x300"},
    "SweepflowNothingSwept": {f"sweepflow_sweep_runs_total{{{SHARD}}}": "7+0x300"},
    "SweepflowTransactionLeftOpen": {"sweepflow_oldest_open_transaction_seconds": "3601+0x300"},
    "SweepflowQuarantine": {"sweepflow_quarantined_entries": "1+0x300"},
    "SweepflowReplicasMissing": {'sweepflow_parked_entries{reason="replicas"}': "1+0x300"},
    "SweepflowProtections": {"sweepflow_protection_problems": "1+0x300"},
    "SweepflowProtectionOperationsFail": {FAILED: "0+0x200 1+0x100"},
    "SweepflowReadsNearFailing": {'sweepflow_compaction_near_failing{node="10.0.0.2"}': "1+0x300"},
    "SweepflowNotCounted": {"sweepflow_counted_age_seconds": "7201+0x300"},
}
LABELS = {
    "SweepflowBehind": {"strategy": "conservative", "shard": "0"},
    "SweepflowReplicasMissing": {"reason": "replicas"},
    "SweepflowProtectionOperationsFail": {"operation": "release"},
    "SweepflowReadsNearFailing": {"node": "10.0.0.2"},
}


def promtool(*arguments: str) -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("promtool", path=places)
    assert found, "promtool is needed: 'make promtool' fetches it"
    ended = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_prometheus_accepts_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", str(RULES))


def test_prometheus_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    """Check panel expressions as recording rules; Grafana replaces what starts with a dollar."""
    rules = [
        {"record": f"panel_{number}", "expr": panel.expression.replace("$__rate_interval", "5m")}
        for number, panel in enumerate(grafana.panels())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))


def case(alert: str | None, **series: str) -> dict[str, Any]:
    """Which alerts fire after four hours; None: no alert may fire."""
    expected = []
    for each in ALERTS:
        labels = {"severity": each.severity, **LABELS.get(each.name, {})}
        annotations = grafana.alert_texts(each)
        assert each.do in annotations["description"]
        for name, value in labels.items():
            annotations["summary"] = annotations["summary"].replace(f"{{{{ $labels.{name} }}}}", value)
        fired = [{"exp_labels": labels, "exp_annotations": annotations}] if each.name == alert else []
        expected.append({"eval_time": "4h", "alertname": each.name, "exp_alerts": fired})
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in (WELL | series).items()],
        "alert_rule_test": expected,
    }


@pytest.mark.parametrize("alert", [None, *TROUBLE])
def test_an_alert_fires_for_its_condition_and_for_no_other(alert: str | None, tmp_path: Path) -> None:
    given = case(alert, **(TROUBLE[alert] if alert else {}))
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [given]}))
    promtool("test", "rules", str(file))


def test_every_alert_has_a_tested_condition() -> None:
    assert set(TROUBLE) == {alert.name for alert in ALERTS}


def test_the_series_are_those_that_a_store_exposes(worked: MemoryStore, clock: ManualClock) -> None:
    text = exposition(worked, load_settings(), clock)
    exposed = {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert set(WELL) <= exposed


def test_a_first_failure_can_be_seen_on_a_store_where_nothing_was_done_yet(
    memory: MemoryStore, clock: ManualClock
) -> None:
    assert f"{FAILED} 0.0" in exposition(memory, load_settings(), clock).splitlines()
