"""Sweep the demo's store: in this process, by a Spark job for each strategy and shard, or as in production by a run of
the `targeted_sweep` DAG in an Airflow of its own.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark_jobs.environment import TARGETED_SWEEP as TARGETED_SWEEP_JOB
from spark_jobs.environment import spark_environment, spark_submit
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings, as_environment
from sweep_tasks.errors import SweepflowError
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.pools import SWEPT
from sweep_tasks.orders import ErrorDocument
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import LOCAL, Summary

Say = Callable[[str], None]


def sweep_here(
    store: Store, settings: Settings, clock: Clock, leave_out: tuple[SweepStrategy, int] | None = None
) -> Iterator[Summary]:
    for strategy in QUEUES:
        shards = [shard for shard in range(Progress(store).shards()) if (strategy, shard) != leave_out]
        for summary in Sweeper(store, settings, clock).sweep([strategy], shards):
            summary.engine = LOCAL
            yield summary


def sweep_by_spark(settings: Settings, about_to: Say) -> Iterator[Summary]:
    """Run one job after the other, as Airflow's tasks submit them; `about_to` gets each next job."""
    with tempfile.TemporaryDirectory() as folder:
        for strategy in QUEUES:
            for shard in range(settings.shards):
                about_to(f"Spark sweeps {strategy} shard {shard}")
                yield _submit(settings, SweepOrder(strategy, shard), Path(folder) / f"{strategy}-{shard}")


def _submit(settings: Settings, order: SweepOrder, answer: Path) -> Summary:
    summary, error = answer.with_suffix(".json"), answer.with_suffix(".error.json")
    ended = subprocess.run(  # noqa: S603
        [
            spark_submit(),
            "--master",
            "local[*]",
            TARGETED_SWEEP_JOB,
            "--order",
            order.document(),
            "--summary",
            str(summary),
            "--error",
            str(error),
        ],
        env=inherited_environment(Needs.SPARK) | spark_environment() | as_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        problem = f"the job ended with code {ended.returncode}: {_message_of(ended, error)}"
        raise SweepflowError(f"spark: {order.strategy} shard {order.shard}: {problem}")
    return Summary.parse(json.loads(summary.read_text()))


def _message_of(ended: subprocess.CompletedProcess[str], error: Path) -> str:
    """Return the message of the job's own error; if Spark failed before or below the job, the last line printed."""
    if error.exists():
        return ErrorDocument.parse(error.read_text()).message
    lines = [line for line in (*ended.stderr.splitlines(), *ended.stdout.splitlines()) if line.strip()]
    return lines[-1] if lines else "it printed nothing"


# ---------------------------------------------------------------------------------------------------------------------
# By a run of the DAG. Airflow is started for the run and always stopped after it; its metadata stays in its folder, and
# `sweepflow airflow up` shows it.
# ---------------------------------------------------------------------------------------------------------------------

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
def run_airflow(folder: Path, settings: Settings, say: Callable[[str], None]) -> Iterator[LocalAirflow]:
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


def run_dag(airflow: LocalAirflow, shards: int, on_change: TaskChange) -> list[Summary]:
    """Run the DAG once and return the summaries of all shards, from the XComs of the run."""
    airflow.unpause(TARGETED_SWEEP)
    return _follow(airflow, airflow.trigger(TARGETED_SWEEP), shards, on_change)


def run_scheduled_dag(airflow: LocalAirflow, shards: int, on_change: TaskChange) -> list[Summary]:
    """Wait for the first run of the schedule and return its summaries: with `catch_up_from`, the run of that hour."""
    airflow.unpause(TARGETED_SWEEP)
    run = airflow.wait("the schedule to start a run", lambda: _scheduled_runs(airflow))[0]
    summaries = _follow(airflow, str(run["dag_run_id"]), shards, on_change)
    airflow.unpause(TARGETED_SWEEP, paused=True)  # another hour may have begun
    return summaries


def _scheduled_runs(airflow: LocalAirflow) -> list[dict[str, Any]]:
    asked = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns", run_type=["scheduled"], order_by="run_after")
    return list(asked["dag_runs"])


def _follow(airflow: LocalAirflow, run_id: str, shards: int, on_change: TaskChange) -> list[Summary]:
    state = _watch(airflow, run_id, on_change)
    if state != "success":
        states = airflow.task_states(TARGETED_SWEEP, run_id)
        failed = sorted(task for task, ended in states.items() if ended == "failed")
        raise SweepflowError(
            f"airflow: run {run_id} of {TARGETED_SWEEP} {state} at {', '.join(failed) or 'no task'}; "
            f"the logs are in {airflow.folder / 'logs'}"
        )
    return [Summary.parse(airflow.xcom(TARGETED_SWEEP, run_id, task)) for task in sweep_tasks(shards)]


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
