"""Tombstones of a sweep are compacted away on a real Cassandra: a dry run first, then started by the next sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import COMPACTION, TARGETED_SWEEP, TOMBSTONES_ASSET
from sweep_tasks.orchestration.pools import compaction_pool
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.web.rendering import grouped
from tests.airflow.conftest import swept_by
from tests.airflow.http_client import client
from tests.airflow.logs import events
from tests.airflow.queued import CELLS, TABLES, QueuedStore
from tests.cassandra.places import physical_name
from tests.support.html import Element

pytestmark = pytest.mark.timeout(900)

SWEEPFLOW = Path(sys.executable).parent / "sweepflow"
CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
KEYSPACE, NODE = "compacted", "node1"
PATIENCE_S = 400.0
"""Every step starts some of Cassandra's tools, each of them a Java."""
WRITTEN = 2 * CELLS
"""Tombstones of a sweep over two writes of each cell: a batch of a job holds one."""
STEPS = [f"{NODE}.{step}" for step in ("measure", "plan", "compact", "measure_again", "report")]


@pytest.fixture
def compacting(
    airflow: LocalAirflow, settings_file: Path, cassandra_cluster: LocalCluster, tmp_path: Path
) -> Iterator[QueuedStore]:
    """A store whose tombstones can go at once, and its node, which is configured for the DAG."""
    more = (
        f'cache_folder = "{tmp_path}"\n'
        f"compaction_nodes = '{json.dumps(cassandra_cluster.compaction_nodes())}'\n"
        "compaction_dense_tombstones = 1\n"
        f"compaction_after_tombstones = {CELLS - 1}\n"
    )
    with swept_by(airflow, settings_file, cassandra_cluster.url(KEYSPACE), cassandra_gc_grace_s=0) as created:
        settings_file.write_text(created.settings_file() + more)
        subprocess.run([SWEEPFLOW, "airflow", "pools"], env=airflow.environment, check=True, capture_output=True)
        airflow.unpause(COMPACTION)
        read_again(airflow)
        airflow.wait(f"tasks of {NODE}", lambda: set(STEPS) <= tasks_known(airflow))
        yield created
        airflow.unpause(COMPACTION, paused=True)
    airflow.api("DELETE", f"/pools/{compaction_pool(NODE)}")
    read_again(airflow)


def read_again(airflow: LocalAirflow) -> None:
    """The DAG file, whose tasks follow from the settings."""
    airflow.api("PUT", f"/parseDagFile/{airflow.api('GET', f'/dags/{COMPACTION}')['file_token']}")


def tasks_known(airflow: LocalAirflow) -> set[str]:
    return {task["task_id"] for task in airflow.api("GET", f"/dags/{COMPACTION}/tasks")["tasks"]}


def ended(airflow: LocalAirflow, run: str, dag_id: str = COMPACTION) -> dict[str, str | None]:
    assert airflow.wait_for_run(dag_id, run, patience_s=PATIENCE_S) == "success", airflow.describe_run(dag_id, run)
    return airflow.task_states(dag_id, run)


def data_files(cluster: LocalCluster) -> set[Path]:
    return set((cluster.data_folder(1) / KEYSPACE).glob(f"*{TABLES[CONSERVATIVE].name}*/*-Data.db"))


def test_a_dry_run_changes_nothing_and_a_sweep_with_many_tombstones_starts_the_compaction(
    airflow: LocalAirflow, compacting: QueuedStore, cassandra_cluster: LocalCluster
) -> None:
    compacting.write(CONSERVATIVE, 0, 3)
    swept = list(Sweeper(compacting.store, compacting.settings, SystemClock()).sweep())
    assert sum(sum(each.tombstones.values()) for each in swept) == CELLS
    assert isinstance(compacting.store, CassandraStore)
    table = physical_name(compacting.store, TABLES[CONSERVATIVE])
    cassandra_cluster.nodetool(1, "flush", KEYSPACE, table)  # that one alone: every file takes its time to be measured
    files, versions = data_files(cassandra_cluster), compacting.versions(CONSERVATIVE, 0)

    checked = airflow.trigger(COMPACTION, {"dry_run": True, "tables": str(TABLES[CONSERVATIVE])})
    assert ended(airflow, checked)["check"] == "success"
    output = report(airflow, checked)
    assert (output["dry_run"], output["dropped"]) == (True, 0)
    assert output["expected"]["dropped"] >= CELLS
    assert data_files(cassandra_cluster) == files

    compacting.write(THOROUGH, 0, 2)
    hourly = airflow.trigger(TARGETED_SWEEP, {"strategies": ["thorough"], "shards": "0"})
    assert ended(airflow, hourly, TARGETED_SWEEP)["announce_tombstones"] == "success"
    [event] = airflow.api("GET", "/assets/events", source_run_id=hourly)["asset_events"]
    assert (event["name"], event["extra"]["tables"]) == (TOMBSTONES_ASSET, {str(TABLES[THOROUGH]): WRITTEN})

    started = airflow.wait("a compaction by the asset", lambda: started_by_asset(airflow))
    assert set(ended(airflow, started).values()) == {"success"}
    causes = [event for event in events(airflow, COMPACTION, started, "prepare") if hourly in event]
    assert any(str(WRITTEN) in cause.replace(hourly, "").split() for cause in causes)
    output = report(airflow, started)
    assert output["dropped"] >= CELLS
    assert output["tombstones"]["after"] < output["tombstones"]["before"]
    assert data_files(cassandra_cluster) != files
    assert compacting.versions(CONSERVATIVE, 0) == versions
    assert airflow.task_instances(COMPACTION, started)[f"{NODE}.compact"]["pool"] == compaction_pool(NODE)
    with client(airflow, airflow.secrets.viewer) as viewer:
        page = viewer.get("/sweepflow/compaction")
    assert page.status_code == 200
    shown = Element.of(page.text)
    assert NODE in shown.one("data-node", NODE).text
    assert shown.one("data-report", NODE).one("data-dropped").text == grouped(output["dropped"])
    assert started.replace(":", "%3A").replace("+", "%2B") in page.text


def report(airflow: LocalAirflow, run: str) -> dict[str, Any]:
    document: dict[str, Any] = airflow.xcom(COMPACTION, run, f"{NODE}.report")
    return document


def started_by_asset(airflow: LocalAirflow) -> str | None:
    runs = airflow.api("GET", f"/dags/{COMPACTION}/dagRuns", run_type="asset_triggered")["dag_runs"]
    return str(runs[0]["dag_run_id"]) if runs else None


def test_on_sqlite_there_is_nothing_to_compact(airflow: LocalAirflow, queued: QueuedStore) -> None:
    airflow.unpause(COMPACTION)
    run = airflow.trigger(COMPACTION)
    states = ended(airflow, run)
    airflow.unpause(COMPACTION, paused=True)
    assert states["prepare"] == "success"
    assert not any(state == "success" for task, state in states.items() if task.startswith(NODE))
    [why] = [event for event in events(airflow, COMPACTION, run, "prepare") if "compaction vacuum" in event]
    assert "sqlite" in why
