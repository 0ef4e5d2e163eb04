"""Tables are scanned by turns and by hand, each in its lane, by a real Airflow and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.lanes import lane_of, lane_task
from sweep_tasks.orchestration.local_airflow import LocalAirflow
from sweep_tasks.orchestration.names import LEGACY_SWEEP
from tests.airflow.queued import CELLS, TABLES, QueuedStore

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
LANES = Settings().legacy_lanes


@pytest.fixture(autouse=True)
def switched_on(airflow: LocalAirflow, queued: QueuedStore) -> Iterator[None]:
    airflow.unpause(LEGACY_SWEEP)
    yield
    airflow.unpause(LEGACY_SWEEP, paused=True)


def run(airflow: LocalAirflow, expected: str, **form: Any) -> str:
    run_id = airflow.trigger(LEGACY_SWEEP, form)
    ended = airflow.wait_for_run(LEGACY_SWEEP, run_id)
    assert ended == expected, airflow.told(LEGACY_SWEEP, run_id)
    return run_id


def lane(strategy: SweepStrategy) -> str:
    return lane_task(lane_of(TABLES[strategy], LANES))


def test_a_table_by_hand_and_then_by_turns_whatever_was_not_scanned_yet(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    for strategy in (CONSERVATIVE, THOROUGH):
        queued.write(strategy, 0, 3)
    by_hand = run(airflow, "success", table=str(TABLES[THOROUGH]), batch=7)
    [summary] = airflow.xcom(LEGACY_SWEEP, by_hand, lane(THOROUGH))
    assert (summary["engine"], summary["deleted"], summary["stopped"]) == ("spark", 2 * CELLS, None)
    assert queued.versions(THOROUGH, 0) == {(False, 1)}
    assert queued.versions(CONSERVATIVE, 0) == {(False, 3)}
    states = airflow.task_states(LEGACY_SWEEP, by_hand)
    assert [name for name, state in states.items() if state == "skipped"] == [
        lane_task(other) for other in range(LANES) if lane_task(other) != lane(THOROUGH)
    ]

    by_turns = run(airflow, "success")
    log = airflow.log(LEGACY_SWEEP, by_turns, "choose")
    assert f"{TABLES[CONSERVATIVE]}, never scanned" in log
    assert f"{TABLES[THOROUGH]}, " not in log, "it was scanned not long ago"
    [summary] = airflow.xcom(LEGACY_SWEEP, by_turns, lane(CONSERVATIVE))
    assert summary["table"] == str(TABLES[CONSERVATIVE])
    assert queued.versions(CONSERVATIVE, 0) == {(True, 1)}


def test_who_is_at_work_already_is_named_and_a_table_that_is_not_there_too(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    queued.write(THOROUGH, 0, 2)
    LegacySweep(queued.store, Settings(), SystemClock(), "ada at host-7").start(LegacyOrder(TABLES[THOROUGH]))
    refused = run(airflow, "failed", table=str(TABLES[THOROUGH]))
    assert "ada at host-7" in airflow.log(LEGACY_SWEEP, refused, lane(THOROUGH))
    assert airflow.task_instances(LEGACY_SWEEP, refused)[lane(THOROUGH)]["try_number"] == 1
    assert queued.versions(THOROUGH, 0) == {(False, 2)}
    unknown = run(airflow, "failed", table="app.nowhere")
    assert "table: app.nowhere does not exist" in airflow.log(LEGACY_SWEEP, unknown, "choose")
