"""Runs of the sweep: for past hours, and two at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pendulum
import psutil
import pytest

from sweep_tasks.clock import to_ms
from sweep_tasks.errors import AirflowNotReady
from sweep_tasks.journal.actors import SCHEDULER
from sweep_tasks.journal.journal import Journal
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.sweeping import readable
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.sweep.run import SWEEP
from sweep_tasks.sweep.summary import Summary
from tests.airflow.drivers import java_and_python, while_running
from tests.airflow.logs import events
from tests.airflow.queued import QueuedStore
from tests.support.clock import ManualClock

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE = SweepStrategy.CONSERVATIVE
SHARD_TASKS = [f"{strategy}.shard_{shard}" for strategy in QUEUES for shard in (0, 1)]


def test_a_backfill_on_cassandra_sweeps_each_hour_to_its_end(
    airflow: LocalAirflow, queued_on_cassandra: QueuedStore
) -> None:
    queued = queued_on_cassandra
    hours = [pendulum.now("UTC").start_of("hour").subtract(hours=back) for back in (5, 4)]
    reached = [history_of_an_hour(queued, hour) for hour in hours]

    runs = backfill(airflow, hours)
    assert [airflow.wait_for_run(TARGETED_SWEEP, run) for run in runs] == ["success"] * len(hours), (
        airflow.describe_run(TARGETED_SWEEP, runs[-1])
    )

    for run, sweep_ts in zip(runs, reached, strict=True):
        summaries = {task: airflow.xcom(TARGETED_SWEEP, run, task) for task in SHARD_TASKS}
        assert {(each["sweep_ts"], each["progress"]) for each in summaries.values()} == {(sweep_ts, sweep_ts - 1)}
        assert summaries["conservative.shard_0"]["engine"] == "spark"
        assert summaries["conservative.shard_0"]["range_deletes"] > 0
        assert summaries["conservative.shard_0"]["tombstones"] == {"app.conservative": 40}, "each cell in two batches"
        assert {each["engine"] for task, each in summaries.items() if task != "conservative.shard_0"} == {"idle"}
    assert set(queued.progress.all().values()) == {reached[-1] - 1}
    assert queued.versions(CONSERVATIVE, 0) == {(True, 1)}
    a_task_reports_its_work(airflow, runs[0], airflow.xcom(TARGETED_SWEEP, runs[0], "conservative.shard_0"))
    each_run_is_one_act(airflow, queued, runs, reached)


def each_run_is_one_act(airflow: LocalAirflow, queued: QueuedStore, runs: list[str], reached: list[int]) -> None:
    """Check that each run is one act of the user who triggered it: horizons before, what was swept after."""
    journal = Journal(queued.store)
    found = [journal.entry(number) for number in range(1, journal.verify().entries + 1)]
    sweeps = [entry for entry in found if entry and entry.what == SWEEP]
    intents = [entry for entry in sweeps if entry.intent is None]
    assert [entry.details["run"] for entry in intents] == runs
    horizons = [dict.fromkeys(("conservative", "thorough"), sweep_ts) for sweep_ts in reached]
    assert [entry.details["horizons"] for entry in intents] == horizons
    outcomes = [entry for entry in sweeps if entry.intent is not None]
    assert [(entry.outcome, entry.details["swept_to"], entry.details["shards"]) for entry in outcomes] == [
        ("done", each, len(SHARD_TASKS)) for each in horizons
    ]
    users = [airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns/{run}")["triggering_user_name"] for run in runs]
    assert [entry.by for entry in intents] == [user or SCHEDULER for user in users]


def backfill(airflow: LocalAirflow, hours: list[pendulum.DateTime]) -> list[str]:
    """The runs of these hours, created while the DAG is paused so that none starts before all exist. With metadata in
    SQLite the command may collide with the scheduler and leave a part: that is removed, and the command given again."""
    airflow.unpause(TARGETED_SWEEP, paused=True)
    for left in reversed(range(10)):
        try:
            airflow.run(
                "backfill", "create", "--dag-id", TARGETED_SWEEP, "--max-active-runs", "1",
                "--from-date", hours[0].isoformat(), "--to-date", hours[-1].isoformat(),
            )  # fmt: skip
            break
        except AirflowNotReady as error:
            if "database is locked" not in str(error) or not left:
                raise
            for part in airflow.api("GET", "/backfills", dag_id=TARGETED_SWEEP)["backfills"]:
                if not part["completed_at"]:
                    airflow.api("PUT", f"/backfills/{part['id']}/cancel")
            for run in backfilled(airflow):
                airflow.api("DELETE", f"/dags/{TARGETED_SWEEP}/dagRuns/{run['dag_run_id']}")
    found = backfilled(airflow)
    assert [moment(run["logical_date"]) for run in found] == hours
    airflow.unpause(TARGETED_SWEEP)
    return [run["dag_run_id"] for run in found]


def backfilled(airflow: LocalAirflow) -> list[dict[str, Any]]:
    path = f"/dags/{TARGETED_SWEEP}/dagRuns"
    found: list[dict[str, Any]] = airflow.api("GET", path, run_type="backfill", order_by="logical_date")["dag_runs"]
    return found


def history_of_an_hour(queued: QueuedStore, hour: pendulum.DateTime) -> int:
    """Two writes of each cell in the hour; the timestamp at its end, which is the sweep timestamp of the hour."""
    clock = ManualClock(to_ms(hour.add(minutes=10)))
    queued.write(CONSERVATIVE, 0, 2, clock)
    clock.advance(50 * 60)
    sampled = queued.clock_history.record_now(queued.timestamps, clock, step_max_s=0)
    assert sampled
    return sampled.ts


def a_task_reports_its_work(airflow: LocalAirflow, run: str, summary: dict[str, Any]) -> None:
    assert (summary["strategy"], summary["shard"], summary["progress_before"]) == ("conservative", 0, -1)
    assert (summary["entries"], summary["range_deletes"]) == (40, 20)
    assert readable(Summary.parse(summary)) in events(airflow, TARGETED_SWEEP, run, "conservative.shard_0")
    path = f"/dags/{TARGETED_SWEEP}/dagRuns/{run}/taskInstances/conservative.shard_0/links"
    links = airflow.api("GET", path)["extra_links"]
    assert links == {"Summary": f"{airflow.address}/dags/{TARGETED_SWEEP}/runs/{run}/tasks/conservative.shard_0/xcom"}


def test_a_second_run_on_the_same_shard_waits_for_the_first(airflow: LocalAirflow, queued: QueuedStore) -> None:
    queued.write(CONSERVATIVE, 0, 3)
    one_shard = {"strategies": ["conservative"], "shards": "0"}
    first = airflow.trigger(TARGETED_SWEEP, one_shard)
    found = while_running(
        airflow, first, "its driver", lambda: java_and_python(airflow.folder / "tasks", CONSERVATIVE, 0)
    )
    with held_up(found):  # so the first can not end before the second is ready
        second = airflow.trigger(TARGETED_SWEEP, one_shard)
        prepared = lambda: airflow.task_states(TARGETED_SWEEP, second)["prepare"] == "success"  # noqa: E731
        while_running(airflow, second, "the end of its first task", prepared)
    ends = [airflow.wait_for_run(TARGETED_SWEEP, run) for run in (first, second)]
    assert ends == ["success", "success"], [airflow.describe_run(TARGETED_SWEEP, run) for run in (first, second)]

    before, after = (airflow.task_instances(TARGETED_SWEEP, run)["conservative.shard_0"] for run in (first, second))
    ready = airflow.task_instances(TARGETED_SWEEP, second)["prepare"]["end_date"]
    assert moment(ready) < moment(before["end_date"]) <= moment(after["start_date"])
    summaries = [airflow.xcom(TARGETED_SWEEP, run, "conservative.shard_0") for run in (first, second)]
    assert [(each["engine"], each["entries"] > 0) for each in summaries] == [("spark", True), ("idle", False)]


@contextmanager
def held_up(driver: list[psutil.Process]) -> Iterator[None]:
    """It has only just started, and holds no lock of the store yet."""
    for process in driver:
        process.suspend()
    try:
        yield
    finally:
        for process in driver:
            process.resume()


def moment(text: str) -> pendulum.DateTime:
    parsed = pendulum.parse(text)
    assert isinstance(parsed, pendulum.DateTime)
    return parsed
