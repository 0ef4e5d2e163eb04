"""The DAG files, as Airflow reads them: each time in a fresh interpreter, with no store and no server."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.orchestration.compacting import task_of
from sweep_tasks.orchestration.names import (
    COMPACTION,
    LEGACY_SWEEP,
    PROTECTED_TIMESTAMPS,
    SNAPSHOT_EXPORT,
    TARGETED_SWEEP,
    TOMBSTONES_ASSET,
    dag_folder,
)
from sweep_tasks.orchestration.pools import compaction_pool, pools_document

DAG_FILES = [file for file in dag_folder().glob("*.py") if file.stem != "__init__"]
DESCRIBE = Path(__file__).with_name("describe_dags.py")
SHARDS = 3
SLOTS = 3
NODES = ("one", "10.0.0.2")
SLOT = f"{LEGACY_SWEEP}.slot_"
DUPLICATE_MESSAGE = {f"{PROTECTED_TIMESTAMPS}.check", f"{COMPACTION}.check"}
"""Tasks that are not worth another try."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        in_fresh_interpreter(tmp_path_factory.mktemp("home"), str(DESCRIBE), str(dag_folder())).splitlines()[-1]
    )
    return answer


@pytest.fixture(scope="module")
def tasks(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = found["dags"][TARGETED_SWEEP]["tasks"]
    return given


def in_fresh_interpreter(home: Path, *arguments: str) -> str:
    """A store that does not exist: opening it while parsing would fail."""
    environment = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/none.db",
        "SWEEPFLOW_SHARDS": str(SHARDS),
        "SWEEPFLOW_SWEEP_TASKS_AT_ONCE": "conservative:2,thorough:1",
        "SWEEPFLOW_LEGACY_SLOTS": str(SLOTS),
        "SWEEPFLOW_STORE": "sqlite:////nowhere/at/all.db",
        "SWEEPFLOW_COMPACTION_NODES": json.dumps({node: {"data": "/nowhere"} for node in NODES}),
    }
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_is_read_without_an_error_and_can_be_stored(found: dict[str, Any]) -> None:
    assert found["import_errors"] == {}
    assert sorted(found["dags"]) == sorted(file.stem for file in DAG_FILES)
    assert all(dag["serialised"] > 0 and dag["doc"] for dag in found["dags"].values())


def test_every_task_has_an_owner_a_pool_retries_a_time_limit_and_a_word_of_explanation(found: dict[str, Any]) -> None:
    """A slot limits scheduled scans itself: a requested scan has no time limit."""
    everything = {
        f"{dag_id}.{name}": task for dag_id, dag in found["dags"].items() for name, task in dag["tasks"].items()
    }
    for name, task in everything.items():
        assert task["owner"] == "sweepflow", name
        assert (task["retries"] > 0) is (name not in DUPLICATE_MESSAGE), name
        assert task["backoff"] > 1, name
        assert bool(task["timeout"]) is not name.startswith(SLOT), name
        assert task["doc"], name
        assert task["pool"], name


def test_each_shard_has_a_task_in_a_pool_of_its_own_that_the_command_creates(
    tasks: dict[str, dict[str, Any]],
) -> None:
    swept = {name: task for name, task in tasks.items() if "SparkSubmitOperator" in task["operator"]}
    pools = [task["pool"] for task in swept.values()]
    assert sorted(pools) == sorted(pools_document(SHARDS))
    assert len(set(pools)) == len(pools) == 2 * SHARDS
    assert not any(task["mapped"] for task in tasks.values())
    assert swept["thorough.shard_2"]["pool"] == "sweep_thorough_2"


def test_a_run_starts_as_many_tasks_of_each_strategy_as_configured_then_as_many_again(found: dict[str, Any]) -> None:
    sweeps = found["dags"][TARGETED_SWEEP]
    assert sweeps["max_active_tasks"] == 3
    shards = {name: task["priority"] for name, task in sweeps["tasks"].items() if "shard_" in name}
    first, second, third = ({name for name, given in shards.items() if given == each} for each in (3, 2, 1))
    assert first == {"conservative.shard_0", "conservative.shard_1", "thorough.shard_0"}
    assert second == {"conservative.shard_2", "thorough.shard_1"}
    assert third == {"thorough.shard_2"}


def test_no_shard_waits_for_another_and_each_can_make_the_run_fail(tasks: dict[str, dict[str, Any]]) -> None:
    swept = [name for name in tasks if ".shard_" in name]
    assert tasks["prepare"]["downstream"] == sorted(swept)
    assert {tuple(tasks[name]["downstream"]) for name in swept} == {("announce_tombstones", "check_lag", "finish")}
    assert [name for name, task in tasks.items() if not task["downstream"]] == ["finish"]


def test_protections_are_reconciled_one_run_at_a_time_and_then_checked(found: dict[str, Any]) -> None:
    dag = found["dags"][PROTECTED_TIMESTAMPS]
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {"reconcile": ["check"], "check": []}


def test_an_export_runs_between_the_protection_and_its_release(found: dict[str, Any]) -> None:
    dag = found["dags"][SNAPSHOT_EXPORT]
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {
        "protect": ["export", "release"],
        "export": ["release"],
        "release": [],
    }


def test_each_scan_slot_has_its_own_pool_that_the_command_creates(
    found: dict[str, Any],
) -> None:
    dag = found["dags"][LEGACY_SWEEP]
    tasks = dag["tasks"]
    slots = [f"slot_{slot}" for slot in range(SLOTS)]
    assert dag["catchup"] is False
    assert {name: task["downstream"] for name, task in tasks.items()} == {
        "choose": slots,
        **{slot: ["announce_tombstones", "finish"] for slot in slots},
        "announce_tombstones": ["finish"],
        "finish": [],
    }
    pools = [tasks[name]["pool"] for name in slots]
    assert len(set(pools)) == SLOTS
    assert set(pools) == set(pools_document(SHARDS, SLOTS)) - set(pools_document(SHARDS))
    assert not any(task["mapped"] for task in tasks.values())


def test_each_node_has_a_round_of_its_own_and_compacts_in_a_pool_of_its_own(found: dict[str, Any]) -> None:
    dag = found["dags"][COMPACTION]
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    tasks = dag["tasks"]
    assert tasks["prepare"]["downstream"] == ["10-0-0-2.measure", "one.measure"]
    for node in NODES:
        steps = [task_of(node, name) for name in ("measure", "plan", "compact", "measure_again", "report")]
        for step, after in pairwise(steps):
            assert tasks[step]["downstream"] == [after]
        assert tasks[steps[-1]]["downstream"] == ["check", "finish"]
        assert tasks[task_of(node, "compact")]["pool"] == compaction_pool(node)
        assert compaction_pool(node) in pools_document(SHARDS, nodes=NODES)
    assert tasks["check"]["downstream"] == ["finish"]
    assert [name for name, task in tasks.items() if not task["downstream"]] == ["finish"]


def test_a_sweep_with_many_tombstones_and_the_clock_both_start_a_compaction(found: dict[str, Any]) -> None:
    assert found["dags"][TARGETED_SWEEP]["tasks"]["announce_tombstones"]["outlets"] == [TOMBSTONES_ASSET]
    assert found["dags"][COMPACTION]["started_by"] == {"assets": [TOMBSTONES_ASSET], "clock": "0 3 * * *"}
    assert found["dags"][PROTECTED_TIMESTAMPS]["started_by"]["assets"] == []


def test_a_file_of_a_user_takes_a_dag_by_one_import(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text("from sweep_tasks.dags.targeted_sweep import dag  # for Airflow\n")
    found = json.loads(in_fresh_interpreter(tmp_path / "home", str(DESCRIBE), str(tmp_path)).splitlines()[-1])
    assert found["import_errors"] == {}
    assert list(found["dags"]) == [TARGETED_SWEEP]


def test_parsing_costs_at_most_twice_an_empty_dag_file(tmp_path: Path) -> None:
    """By processor time, the least of up to three rounds: a busy machine can only add to it."""
    empty = tmp_path / "empty.py"
    empty.write_text('from airflow.sdk import DAG\n\nwith DAG("empty"):\n    pass\n')
    costs = dict.fromkeys((empty, *DAG_FILES), inf)
    for _ in range(3):
        for file, least in costs.items():
            before = cpu_of_children()
            in_fresh_interpreter(tmp_path, str(file))
            costs[file] = min(least, cpu_of_children() - before)
        if max(costs.values()) <= 2 * costs[empty]:
            return
    pytest.fail(f"parsing costs too much: {costs}")


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
