from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.demo.engines import sweep_here
from sweep_tasks.demo.measure import Measured, measure
from sweep_tasks.demo.report import report_on
from sweep_tasks.demo.workload import TABLES, Loaded, load
from sweep_tasks.encoding import read_var_long, read_var_signed_long
from sweep_tasks.model import MAX_TS, Cell, StoredVersion, TableRef
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import TRANSACTIONS
from tests.conftest import memory_store
from tests.support.clock import ManualClock

NOW_MS = 1_800_000_000_000
SETTINGS = Settings()
Visible = dict[TableRef, dict[Cell, bytes]]


class Day(NamedTuple):
    """A store with the demo's workload, its clock standing still at the end of it."""

    store: MemoryStore
    clock: ManualClock
    loaded: Loaded


class Swept(NamedTuple):
    """A day whose store was swept in process, what readers were owed before, and the report."""

    day: Day
    visible_now: Visible
    visible_at_backup: Visible
    before: Measured
    after: Measured
    report: dict[str, Any]


@pytest.fixture(scope="session")
def day() -> Iterator[Day]:
    """For tests that only look."""
    created = lived_through()
    yield created
    created.loaded.report.close()


@pytest.fixture(scope="session")
def swept() -> Iterator[Swept]:
    """For tests that only look."""
    created = lived_through()
    store, clock, loaded = created
    owed = visible(store, MAX_TS), visible(store, loaded.backup_ts)
    before = measure(store)
    summaries = list(sweep_here(store, SETTINGS, clock))
    after = measure(store)
    yield Swept(created, *owed, before, after, report_on(store, SETTINGS, clock, summaries, before, after).document())
    loaded.report.close()


def lived_through(seed: int = 1) -> Day:
    clock = ManualClock(NOW_MS)
    store = memory_store(clock)
    return Day(store, clock, load(store, SETTINGS, clock, shards=2, seed=seed))


def outcomes(store: Store) -> dict[int, int]:
    found = every(lambda after: store.scan_registers(TRANSACTIONS, 10_000, after))
    return {read_var_long(cell.row)[0]: read_var_signed_long(value)[0] for cell, value in found}


def versions(store: Store, table: TableRef) -> list[StoredVersion]:
    return list(every(lambda after: store.scan_versions(table, limit=10_000, after=after)))


def visible(store: Store, at: int) -> Visible:
    """What a reader at a timestamp must see, found by checking every version: of those committed before it, the one
    that started last, unless it is a delete."""
    ended = outcomes(store)
    found: Visible = {}
    for table in TABLES:
        newest: dict[Cell, tuple[int, bool]] = {}
        for cell, ts, empty in versions(store, table):
            if cell not in newest and 0 <= ts < at and 0 <= ended.get(ts, -1) < at:
                newest[cell] = ts, empty
        starts = {cell: ts + 1 for cell, (ts, empty) in newest.items() if not empty}
        found[table] = {cell: version.value for cell, version in store.get(table, starts).items()}
    return found
