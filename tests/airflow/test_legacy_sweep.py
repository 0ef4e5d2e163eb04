"""Scheduled and requested scans of tables, each in its worker slot, by a real Airflow and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.journal.journal import Journal
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.priority import ScanCause
from sweep_tasks.legacy.progress import RunProgress, Runs, RunState
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import LEGACY_SWEEP
from sweep_tasks.orchestration.scanning import CHOOSE, PLANS, SCAN, slot_of, slot_task
from tests.airflow.logs import failures, with_code
from tests.airflow.queued import CELLS, TABLES, QueuedStore

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
SLOTS = Settings().legacy_slots


@pytest.fixture(autouse=True)
def switched_on(airflow: LocalAirflow, queued: QueuedStore) -> Iterator[None]:
    airflow.unpause(LEGACY_SWEEP)
    yield
    airflow.unpause(LEGACY_SWEEP, paused=True)


def run(airflow: LocalAirflow, expected: str, **form: Any) -> str:
    run_id = airflow.trigger(LEGACY_SWEEP, form)
    ended = airflow.wait_for_run(LEGACY_SWEEP, run_id)
    assert ended == expected, airflow.describe_run(LEGACY_SWEEP, run_id)
    return run_id


def slot(strategy: SweepStrategy) -> str:
    return slot_task(slot_of(TABLES[strategy], SLOTS))


def test_a_requested_table_is_scanned_and_then_the_remaining_tables_in_rotation(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    for strategy in (CONSERVATIVE, THOROUGH):
        queued.write(strategy, 0, 3)
    requested = run(airflow, "success", table=str(TABLES[THOROUGH]), batch=7)
    [summary] = airflow.xcom(LEGACY_SWEEP, requested, slot(THOROUGH))
    assert (summary["engine"], summary["deleted"], summary["stopped"]) == ("spark", 2 * CELLS, None)
    scan = airflow.xcom(LEGACY_SWEEP, requested, slot(THOROUGH), key=SCAN)
    assert scan == {"table": str(TABLES[THOROUGH]), "run": summary["run"]}, "reported before the end of the scan"
    note = Journal(queued.store).last()[0]
    assert (note.by, note.what, note.about, note.outcome) == ("admin", "legacy sweep", str(TABLES[THOROUGH]), "done")
    assert queued.versions(THOROUGH, 0) == {(False, 1)}
    assert queued.versions(CONSERVATIVE, 0) == {(False, 3)}
    states = airflow.task_states(LEGACY_SWEEP, requested)
    skipped = {slot_task(other) for other in range(SLOTS) if slot_task(other) != slot(THOROUGH)}
    nothing_to_announce = {"announce_tombstones"}
    assert {name for name, state in states.items() if state == "skipped"} == skipped | nothing_to_announce

    scheduled = run(airflow, "success")
    scans = [
        each_scan for each in airflow.xcom(LEGACY_SWEEP, scheduled, CHOOSE, key=PLANS).values() for each_scan in each
    ]
    assert [each_scan[:2] for each_scan in scans] == [[str(TABLES[CONSERVATIVE]), ScanCause.NEVER_SCANNED.label]]
    log = airflow.log(LEGACY_SWEEP, scheduled, CHOOSE)
    assert str(TABLES[CONSERVATIVE]) in log
    assert str(TABLES[THOROUGH]) not in log, "it was scanned not long ago"
    [summary] = airflow.xcom(LEGACY_SWEEP, scheduled, slot(CONSERVATIVE))
    assert summary["table"] == str(TABLES[CONSERVATIVE])
    assert queued.versions(CONSERVATIVE, 0) == {(True, 1)}


def test_a_killed_scan_releases_its_run_and_the_rotation_does_not_wait_for_its_slot(
    airflow: LocalAirflow, queued: QueuedStore, settings_file: Path
) -> None:
    queued.write(THOROUGH, 0, 30)
    settings_file.write_text(queued.settings_file() + "legacy_versions_per_s = 4\n")
    form: dict[str, Any] = {"table": str(TABLES[THOROUGH]), "batch": 2}
    first = airflow.trigger(LEGACY_SWEEP, form)

    def existing() -> RunProgress | None:
        found = Runs(queued.store).progress(TABLES[THOROUGH])
        return found if found and found.counts.versions else None

    airflow.wait("a page of the scan", existing)
    scheduled = run(airflow, "success")
    busy = with_code(airflow, LEGACY_SWEEP, scheduled, CHOOSE, "slot_in_use")
    assert [line["slot"] for line in busy] == [slot(THOROUGH)]
    assert airflow.task_states(LEGACY_SWEEP, scheduled)[slot(THOROUGH)] == "skipped"

    airflow.api("PATCH", f"/dags/{LEGACY_SWEEP}/dagRuns/{first}", {"state": "failed"})

    def released() -> RunProgress | None:
        found = existing()
        return found if found and found.run.state is RunState.PAUSED else None

    left = airflow.wait("the run to be released", released)
    assert left.run.why == "interrupted"
    settings_file.write_text(queued.settings_file())
    again = run(airflow, "success", **form)
    [summary] = airflow.xcom(LEGACY_SWEEP, again, slot(THOROUGH))
    assert (summary["run"], summary["attempt"], summary["stopped"]) == (left.run.id, 2, None)
    assert queued.versions(THOROUGH, 0) == {(False, 1)}


def test_an_active_run_and_a_missing_table_are_named(airflow: LocalAirflow, queued: QueuedStore) -> None:
    queued.write(THOROUGH, 0, 2)
    LegacySweep(queued.store, Settings(), SystemClock(), "ada at host-7").start(LegacyOrder(TABLES[THOROUGH]))
    refused = run(airflow, "failed", table=str(TABLES[THOROUGH]))
    assert failures(airflow, LEGACY_SWEEP, refused, slot(THOROUGH)) == [("exists", None, None)]
    assert "ada at host-7" in airflow.log(LEGACY_SWEEP, refused, slot(THOROUGH))
    assert airflow.task_instances(LEGACY_SWEEP, refused)[slot(THOROUGH)]["try_number"] == 1
    assert queued.versions(THOROUGH, 0) == {(False, 2)}
    unknown = run(airflow, "failed", table="app.nowhere")
    assert failures(airflow, LEGACY_SWEEP, unknown, CHOOSE) == [("unknown_table", None, None)]
    assert "app.nowhere" in airflow.log(LEGACY_SWEEP, unknown, CHOOSE)
