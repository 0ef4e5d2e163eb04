"""A sweep may be killed at any moment: nothing is lost, and no driver outlives its task."""

from __future__ import annotations

import psutil
import pytest

from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from tests.airflow.drivers import java_and_python, while_running
from tests.airflow.queued import CELLS, QueuedStore

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE = SweepStrategy.CONSERVATIVE
TIMES = 10
DRIVER_KILLED, TASK_KILLED = 0, 1


def test_a_killed_driver_and_a_killed_task_are_tried_again_and_nothing_is_lost(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    for shard in (DRIVER_KILLED, TASK_KILLED):
        queued.write(CONSERVATIVE, shard, TIMES)
    run = airflow.trigger(TARGETED_SWEEP, {"strategies": ["conservative"]})

    def drivers(*shards: int) -> list[list[psutil.Process]]:
        found = [java_and_python(airflow.folder / "tasks", CONSERVATIVE, shard) for shard in shards]
        return found if all(found) else []

    while_running(airflow, run, "the first driver", lambda: drivers(0) or drivers(1))
    with queued.writers_blocked():  # so that the one waits for the other
        first, second = while_running(airflow, run, "both drivers", lambda: drivers(DRIVER_KILLED, TASK_KILLED))
    while_running(airflow, run, "the first batch", lambda: queued.progress.of(CONSERVATIVE, DRIVER_KILLED) > 0)
    with queued.writers_blocked():
        in_between = queued.progress.of(CONSERVATIVE, DRIVER_KILLED)
        assert queued.versions(CONSERVATIVE, DRIVER_KILLED) != {(True, 1)}, "the sweep was over before it was killed"
        task = second[0].parent()
        first[0].kill()
        task.kill()
        _, left = psutil.wait_procs([*first, *second], timeout=240)
        assert left == [], "a driver outlived its task"
    assert airflow.wait_for_run(TARGETED_SWEEP, run) == "success", airflow.describe_run(TARGETED_SWEEP, run)

    tasks = airflow.task_instances(TARGETED_SWEEP, run)
    assert [tasks[f"conservative.shard_{shard}"]["try_number"] for shard in (0, 1)] == [2, 2]
    again = airflow.xcom(TARGETED_SWEEP, run, "conservative.shard_0")
    assert again["progress_before"] >= in_between
    assert 0 < again["entries"] < TIMES * CELLS
    for shard in (DRIVER_KILLED, TASK_KILLED):
        summary = airflow.xcom(TARGETED_SWEEP, run, f"conservative.shard_{shard}")
        assert summary["engine"] == "spark"
        assert queued.versions(CONSERVATIVE, shard) == {(True, 1)}
        assert queued.progress.of(CONSERVATIVE, shard) == summary["sweep_ts"] - 1
