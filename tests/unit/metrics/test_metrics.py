"""Every metric is declared once, and everything generated from the declarations matches them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from sweep_tasks.compaction.documents import RoundReport, TombstoneCounts
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SweepflowError
from sweep_tasks.legacy.rules import ScanCounts
from sweep_tasks.legacy.run import LegacySummary
from sweep_tasks.metrics import declarations as metrics
from sweep_tasks.metrics import exporters as grafana
from sweep_tasks.metrics import otlp
from sweep_tasks.metrics.declarations import ALERTS, METRICS, MetricKind
from sweep_tasks.metrics.exporters import exposition
from sweep_tasks.metrics.otlp import push
from sweep_tasks.metrics.samples import (
    push_metrics,
    take_sample,
    tally_compaction,
    tally_operations,
    tally_reconciliation,
    tally_scan,
    tally_sweep,
)
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection.metrics import OPERATIONS, OUTCOMES
from sweep_tasks.protection.reconciliation import RecordOutcome, ReportDocument, ReportedProblem
from sweep_tasks.store.faults import FaultyStore, fail
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.texts import UNREADABLE_ADDRESS
from tests.support.clock import ManualClock
from tests.support.compaction import NEAR_FAILING
from tests.support.errors import having
from tests.unit.cli.test_protection_commands import run
from tests.unit.sweep.world import World

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
NAMES = {metric.prometheus for metric in METRICS}


@pytest.fixture
def settings() -> Settings:
    return load_settings()


@pytest.fixture
def worked(memory: MemoryStore, clock: ManualClock) -> MemoryStore:
    """A store in which every kind of work was recorded."""
    world = World(memory, clock)
    ClockHistory(memory).record_now(TimestampService(memory), clock, 900)
    world.write(10, 11)
    world.write(20, 21)
    by = TaskAttempt("targeted_sweep", "r", "conservative.shard_0")
    tally_sweep(memory, clock, world.sweep(100), by)
    report = ReportDocument(
        as_of_ms=0, dry_run=False, recounted=False, outcomes={"released": 2, "kept": 1}, findings=[],
        problems=[ReportedProblem("one", "one")], records=3, spans=3, oldest_age_s=60,
    )  # fmt: skip
    tally_reconciliation(memory, clock, report, by)
    tally_operations(memory, clock, {("release", "ok"): 2, ("release", "failed"): 0}, by)
    counts = ScanCounts(versions=9, deleted=4, sentinels=1)
    scan = LegacySummary(
        "x", "app.items", SweepStrategy.CONSERVATIVE, 100, False, ranges=2, ranges_done=1, counts=counts,
        this_time=counts, stopped="cells", seconds={"scan": 0.5},
    )  # fmt: skip
    tally_scan(memory, clock, scan, by)
    round_ = RoundReport(
        node="10.0.0.2", dropped=700, bytes_rewritten=4096, kept={"gc_grace": 20},
        tombstones=TombstoneCounts(before=720, after=20), near_failing=(NEAR_FAILING,),
    )  # fmt: skip
    tally_compaction(memory, clock, round_, by)
    take_sample(memory, clock)
    return memory


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class TestPrometheus:
    def test_exactly_the_declared_metrics_are_exported(
        self, worked: MemoryStore, settings: Settings, clock: ManualClock
    ) -> None:
        found = parsed(exposition(worked, settings, clock))
        assert {name for name, _ in found} == NAMES
        labels = {"strategy": "conservative", "shard": "0"}.items()
        assert found["sweepflow_sweep_entries_total", frozenset(labels)] == 2
        assert found["sweepflow_sweep_quarantined_total", frozenset(labels)] == 0
        assert found["sweepflow_protection_reconciled_total", frozenset({("outcome", "released")})] == 2
        operations = frozenset({("operation", "release"), ("outcome", "ok")})
        assert found["sweepflow_protection_operations_total", operations] == 2
        assert found["sweepflow_legacy_deleted_total", frozenset({("table", "app.items")})] == 4
        node = ("node", "10.0.0.2")
        assert found["sweepflow_compaction_dropped_total", frozenset({node})] == 700
        assert found["sweepflow_compaction_kept", frozenset({node, ("blocker", "gc_grace")})] == 20
        assert found["sweepflow_compaction_near_failing", frozenset({node})] == 1
        assert (found["sweepflow_up", frozenset()], found["sweepflow_health", frozenset()]) == (1, 1)

    def test_counters_of_protections_are_zero_before_the_first_operation(
        self, memory: MemoryStore, settings: Settings, clock: ManualClock
    ) -> None:
        """Prometheus sees no increase of a counter that begins at 1."""
        found = parsed(exposition(memory, settings, clock))
        for operation, outcome in product(OPERATIONS, OUTCOMES):
            labels = frozenset({("operation", operation), ("outcome", outcome)})
            assert found["sweepflow_protection_operations_total", labels] == 0
        for each in RecordOutcome:
            assert found["sweepflow_protection_reconciled_total", frozenset({("outcome", each.value)})] == 0

    def test_units_and_kinds_are_those_of_the_declaration(
        self, worked: MemoryStore, settings: Settings, clock: ManualClock
    ) -> None:
        families = {each.name: each for each in text_string_to_metric_families(exposition(worked, settings, clock))}
        for metric in METRICS:
            assert (families[metric.family].type, families[metric.family].documentation) == (metric.kind, metric.help)

    def test_a_store_that_does_not_answer_is_a_metric(
        self, memory: MemoryStore, settings: Settings, clock: ManualClock
    ) -> None:
        away = FaultyStore(memory, before=fail)
        assert parsed(exposition(away, settings, clock)) == {("sweepflow_up", frozenset()): 0}

    def test_it_takes_no_more_calls_than_the_status(
        self, worked: MemoryStore, settings: Settings, clock: ManualClock
    ) -> None:
        counting = FaultyStore(worked)
        exposition(counting, settings, clock)
        assert counting.calls <= 20


class TestCommand:
    def test_it_prints_the_text_and_with_json_a_list(self, sqlite_url: str) -> None:
        shown = run("metrics", "--store", sqlite_url)
        assert shown.code == 0
        assert parsed(shown.out)["sweepflow_up", frozenset()] == 1
        listed = run("metrics", "--json", "--store", sqlite_url).document["metrics"]
        assert {"name": "sweepflow_up", "labels": {}, "value": 1} in listed

    def test_a_store_that_cannot_be_opened_is_a_metric_and_an_exit_code(self) -> None:
        shown = run("metrics", "--store", "sqlite:///nowhere/none.db")
        assert shown.code == 4
        assert parsed(shown.out) == {("sweepflow_up", frozenset()): 0}

    def test_files_generated_from_the_declarations_need_no_store(self) -> None:
        nowhere = ("--store", "sqlite:///nowhere/none.db")
        assert run("metrics", "--dashboard", *nowhere).out == grafana.dashboard()
        assert run("metrics", "--rules", *nowhere).out == grafana.rules()
        assert run("metrics", "--rules", "--dashboard", *nowhere).code == 2


class TestGenerated:
    @pytest.mark.parametrize(
        ("name", "created"), [("dashboard.json", grafana.dashboard), ("rules.yaml", grafana.rules)], ids=str
    )
    def test_the_files_for_deployment_match_the_generated_ones(self, name: str, created: Any) -> None:
        assert (MONITORING / name).read_text() == created(), f"make monitoring regenerates deploy/monitoring/{name}"

    def test_every_metric_has_a_panel_and_every_panel_a_metric(self) -> None:
        panels = json.loads(grafana.dashboard())["panels"]
        shown = [names_in(panel["targets"][0]["expr"]) for panel in panels if panel["type"] != "row"]
        assert set().union(*shown) == NAMES
        grouped = [metric for row in grafana.GROUPS.values() for metric in row]
        assert len(grouped) == len(set(grouped)) == len(METRICS)
        assert len({panel["id"] for panel in panels}) == len(panels)
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
        assert len(set(places)) == len(places)
        titles = [panel["title"] for panel in panels if panel["type"] == "row"]
        assert titles == [*grafana.GROUPS, grafana.SINGLE_SHARDS]

    def test_single_shards_can_be_chosen(self) -> None:
        document = json.loads(grafana.dashboard())
        names = [each["name"] for each in document["templating"]["list"]]
        assert names == ["datasource", "strategy", "shard"]
        used = [panel["targets"][0]["expr"] for panel in document["panels"] if panel["type"] != "row"]
        assert any(expression == 'sweepflow_lag_seconds{strategy=~"$strategy", shard=~"$shard"}' for expression in used)

    def test_alerts_ask_for_metrics_and_labels_that_there_are(self) -> None:
        labels = {metric.prometheus: metric.labels for metric in METRICS}
        for alert in ALERTS:
            used = names_in(alert.expression)
            assert used, alert.name
            assert used <= NAMES, alert.name
            known = {name for metric in used for name in labels[metric]}
            asked = set(re.findall(r"\$labels\.(\w+)", alert.summary)) | set(re.findall(r"(\w+)=\"", alert.expression))
            assert asked <= known, alert.name
            assert re.fullmatch(r"\d+[smhd]", alert.for_)
            assert alert.severity in ("critical", "warning", "info")

    def test_a_counter_is_only_asked_for_its_increase(self) -> None:
        """Its sum has no meaning by itself: it counts from the creation of the store."""
        counters = {metric.prometheus for metric in METRICS if metric.kind is MetricKind.COUNTER}
        for expression in [alert.expression for alert in ALERTS] + [panel.expression for panel in grafana.panels()]:
            for name in names_in(expression) & counters:
                assert re.search(rf"(rate|increase)\({name}\b", expression), expression

    def test_the_rules_are_a_list_of_groups_as_prometheus_loads_them(self) -> None:
        (group,) = json.loads(grafana.rules())["groups"]
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
            assert re.fullmatch(r"[A-Z]\w+", rule["alert"])
        assert len({rule["alert"] for rule in group["rules"]}) == len(ALERTS)

    def test_the_page_has_the_tables_of_metrics_and_alerts(self) -> None:
        page = (ROOT / "docs" / "metrics.md").read_text()
        assert grafana.table() in page
        assert grafana.alert_table() in page

    def test_names_follow_prometheus_and_no_two_are_the_same(self) -> None:
        assert len(NAMES) == len(METRICS)
        for metric in METRICS:
            assert re.fullmatch(r"sweepflow(_[a-z]+)+", metric.prometheus)
            in_seconds = metric.name.endswith("seconds")
            assert in_seconds == (metric.unit == "seconds"), metric.name
            assert metric.help[0].isupper() or metric.help[0].isdigit()


def test_airflow_calls_them_by_names_that_carry_the_labels() -> None:
    labels = {"strategy": "thorough", "shard": "3"}
    assert metrics.SWEEP["entries"].airflow(labels) == "sweepflow.sweep.entries.thorough.3"
    assert metrics.RECONCILED.airflow({"outcome": "kept"}) == "sweepflow.protection.reconciled.kept"


class TestOpenTelemetry:
    @pytest.fixture
    def collector(self) -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
        """One that takes what it is sent, on a port of its own."""
        taken: list[ExportMetricsServiceRequest] = []

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportMetricsServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                taken.append(request)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        server = HTTPServer(("127.0.0.1", 0), Taking)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics", taken
        server.shutdown()
        serving.join()
        server.server_close()

    def test_a_collector_receives_all_declared_metrics(
        self,
        worked: MemoryStore,
        settings: Settings,
        clock: ManualClock,
        collector: tuple[str, list[ExportMetricsServiceRequest]],
    ) -> None:
        url, taken = collector
        assert push(worked, settings, clock, url) > len(METRICS)
        (request,) = taken
        (resource,) = request.resource_metrics
        found = {each.name: each for scope in resource.scope_metrics for each in scope.metrics}
        assert set(found) == {metric.family for metric in METRICS}
        for metric in METRICS:
            assert found[metric.family].HasField("sum") == (metric.kind is MetricKind.COUNTER)
        points = found["sweepflow_sweep_entries"].sum.data_points
        assert [(point.as_int or point.as_double) for point in points] == [2]
        entries = found["sweepflow_sweep_entries"].sum
        assert (entries.is_monotonic, entries.aggregation_temporality) == (True, AGGREGATION_TEMPORALITY_CUMULATIVE)
        assert found["sweepflow_lag_seconds"].unit == "s"

    def test_counters_start_with_the_store_whichever_process_pushes_them(
        self,
        worked: MemoryStore,
        settings: Settings,
        clock: ManualClock,
        collector: tuple[str, list[ExportMetricsServiceRequest]],
    ) -> None:
        """Otherwise every push would resemble a reset of the counter."""
        began_ms = clock.now_ms()
        for _ in range(2):
            clock.advance(3_600)
            push(worked, settings, clock, collector[0])
        spans = []
        for request in collector[1]:
            (scope,) = request.resource_metrics[0].scope_metrics
            (point,) = next(each for each in scope.metrics if each.name == "sweepflow_sweep_entries").sum.data_points
            spans.append((point.start_time_unix_nano // 1_000_000, point.time_unix_nano // 1_000_000))
        assert spans == [(began_ms, began_ms + 3_600_000), (began_ms, began_ms + 7_200_000)]

    def test_tasks_push_if_a_collector_is_configured_and_do_not_fail_if_it_is_away(
        self,
        worked: MemoryStore,
        clock: ManualClock,
        collector: tuple[str, list[ExportMetricsServiceRequest]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        url, taken = collector
        push_metrics(worked, load_settings(), clock)
        assert taken == []
        push_metrics(worked, load_settings(metrics_otlp_url=url), clock)
        assert len(taken) == 1
        closed_port = "http://127.0.0.1:1/v1/metrics"
        with pytest.raises(SweepflowError, check=having(code="unavailable", retryable=True)):
            push(worked, load_settings(), clock, closed_port, timeout_s=0.2)
        monkeypatch.setattr(otlp, "TIMEOUT_S", 0.2)
        with capture_logs() as output:
            push_metrics(worked, load_settings(metrics_otlp_url=closed_port), clock)
        assert [(line["log_level"], line["code"]) for line in output] == [("warning", "metrics_lost")]

    @pytest.mark.parametrize(
        ("address", "reported"),
        [
            ("http://user:conspicuous@127.0.0.1:1/v1/metrics?key=conspicuous", "http://127.0.0.1:1/v1/metrics"),
            ("https://conspicuous@[::1]:1/v1/metrics", "https://[::1]:1/v1/metrics"),
            ("user:conspicuous@127.0.0.1/v1/metrics", UNREADABLE_ADDRESS),
            ("http://127.0.0.1:conspicuous/", UNREADABLE_ADDRESS),
        ],
    )
    def test_the_secrets_in_an_address_are_never_shown(
        self,
        worked: MemoryStore,
        settings: Settings,
        clock: ManualClock,
        caplog: pytest.LogCaptureFixture,
        address: str,
        reported: str,
    ) -> None:
        with pytest.raises(SweepflowError, check=having(code="unavailable", retryable=True)) as refused:
            push(worked, settings, clock, address, timeout_s=0.2)
        assert refused.value.details["endpoint"] == reported
        assert reported in str(refused.value)
        assert "conspicuous" not in caplog.text + str(refused.value)


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bsweepflow_\w+", expression))
