"""Sweep the demo's store as in production: by a run of the `targeted_sweep` DAG in an Airflow of its own.

Airflow is started for the run and always stopped after it; its metadata stays in its folder, and `sweepflow airflow up`
shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.pools import SWEPT

TASKS_AT_ONCE = 2
"""Spark jobs, mostly: as many as a small machine has cores."""
OTHER_TASKS = 4
"""The tasks of a run besides those of the shards: prepare, check the lag, report tombstones, finish."""
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_CHECK_EVERY_S = 1.0
_RUN_ENDED = ("success", "failed")

TaskChange = Callable[[str, str], None]
"""Gets the name of a task and its new state."""


@contextmanager
def running_airflow(folder: Path, settings: Settings, say: Callable[[str], None]) -> Iterator[LocalAirflow]:
    """Start Airflow with a schedule that begins with the current hour: only requested runs are started."""
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    quiet = settings.model_copy(update={"catch_up_from": this_hour})
    with LocalAirflow(folder, quiet, tasks_at_once=TASKS_AT_ONCE, say=say) as airflow:
        airflow.unpause(TARGETED_SWEEP, paused=True)
        _fail_old_runs(airflow)
        yield airflow


def _fail_old_runs(airflow: LocalAirflow) -> None:
    """Fail the run that an interrupted demo has left: a new run would wait for it."""
    for run in airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns", state=["queued", "running"])["dag_runs"]:
        airflow.api("PATCH", f"/dags/{TARGETED_SWEEP}/dagRuns/{run['dag_run_id']}", {"state": "failed"})


def run_dag(airflow: LocalAirflow, shards: int, on_change: TaskChange) -> list[dict[str, Any]]:
    """Run the DAG once and return the summaries of all shards, from the XComs of the run."""
    airflow.unpause(TARGETED_SWEEP)
    return _follow(airflow, airflow.trigger(TARGETED_SWEEP), shards, on_change)


def run_scheduled_dag(airflow: LocalAirflow, shards: int, on_change: TaskChange) -> list[dict[str, Any]]:
    """Wait for the first run of the schedule and return its summaries: with `catch_up_from`, the run of that hour."""
    airflow.unpause(TARGETED_SWEEP)
    run = airflow.wait("the schedule to start a run", lambda: _scheduled_runs(airflow))[0]
    summaries = _follow(airflow, str(run["dag_run_id"]), shards, on_change)
    airflow.unpause(TARGETED_SWEEP, paused=True)  # another hour may have begun
    return summaries


def _scheduled_runs(airflow: LocalAirflow) -> list[dict[str, Any]]:
    asked = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns", run_type=["scheduled"], order_by="run_after")
    return list(asked["dag_runs"])


def _follow(airflow: LocalAirflow, run_id: str, shards: int, on_change: TaskChange) -> list[dict[str, Any]]:
    state = _watch(airflow, run_id, on_change)
    if state != "success":
        states = airflow.task_states(TARGETED_SWEEP, run_id)
        failed = sorted(task for task, ended in states.items() if ended == "failed")
        raise SweepflowError(
            f"airflow: run {run_id} of {TARGETED_SWEEP} {state} at {', '.join(failed) or 'no task'}; "
            f"the logs are in {airflow.folder / 'logs'}"
        )
    return [airflow.xcom(TARGETED_SWEEP, run_id, task) for task in sweep_tasks(shards)]


def sweep_tasks(shards: int) -> list[str]:
    return [f"{strategy}.shard_{shard}" for strategy in SWEPT for shard in range(shards)]


def _watch(airflow: LocalAirflow, run_id: str, on_change: TaskChange) -> str:
    known: dict[str, str | None] = {}
    while True:
        airflow.check()
        state = airflow.run_state(TARGETED_SWEEP, run_id)
        states = airflow.task_states(TARGETED_SWEEP, run_id)
        for task, now in sorted(states.items()):
            if now and now != known.get(task):
                on_change(task, now)
        known = states
        if state in _RUN_ENDED:
            return state
        time.sleep(_CHECK_EVERY_S)
