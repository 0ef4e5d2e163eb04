"""A paused table is not scanned either: a running scan stops, and continues when the table is resumed."""

from __future__ import annotations

import pytest

from sweep_tasks.errors import SweepflowError
from sweep_tasks.legacy.progress import SWEEPING_PAUSED, RunState
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.scanning import planned
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.pauses import Pauses, named
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.unit.legacy.scan_fixture import ROWS, SETTINGS, TABLE, S, begin, cell, filled, sweep

SCHEDULED = {"table": None, "from_row": ""}


def versions(store: Store) -> int:
    return sum(len(found) for found in store.timestamps(TABLE, [cell(row) for row in range(ROWS)]).values())


@pytest.mark.parametrize("paused", [TABLE, None], ids=["the table", "everything"])
def test_no_scan_of_it_begins_or_is_resumed(paused: TableRef | None, store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock)
    Pauses(store, clock).pause(paused, "ada", "a migration")
    with pytest.raises(SweepflowError, check=having(code="paused")) as refused:
        legacy.sweep(order, Horizon(S, clock.now_ms()))
    error = refused.value
    assert (error.code, error.details["what"], error.details["by"], error.details["why"]) == (
        "paused",
        named(paused),
        "ada",
        "a migration",
    )
    with pytest.raises(SweepflowError, check=having(code="paused")):
        legacy.resume(TABLE)
    assert versions(store) == 3 * ROWS
    assert sweep(store, clock, dry_run=True).counts.deleted == 2 * ROWS, "reading is permitted"


def test_a_running_scan_stops_after_its_page_and_is_resumed_later(store: Store, clock: ManualClock) -> None:
    filled(store)

    def pause(_call: StoreCall) -> None:
        Pauses(store, clock).pause(TABLE, "ada", "a migration")

    watched = FaultyStore(store, before=on("scan_versions", 2, pause))
    legacy, order = begin(watched, clock, batch=5)
    stopped = legacy.sweep(order, Horizon(S, clock.now_ms()))
    assert stopped.stopped == SWEEPING_PAUSED
    assert ROWS < versions(store) < 3 * ROWS
    existing = legacy.progress(TABLE)
    assert existing is not None
    assert (existing.run.state, existing.run.why) == (RunState.PAUSED, SWEEPING_PAUSED)
    Pauses(store, clock).resume(TABLE)
    legacy.work(legacy.resume(TABLE), order)
    assert versions(store) == 2 * ROWS, "the newest of each cell, and a sentinel"


def test_a_paused_table_is_not_scheduled(store: Store, clock: ManualClock) -> None:
    filled(store)
    assert planned(store, SETTINGS, clock, SCHEDULED)
    Pauses(store, clock).pause(TABLE, "ada", "a migration")
    assert planned(store, SETTINGS, clock, SCHEDULED) == {}
