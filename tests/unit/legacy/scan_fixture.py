"""A table that was written before there was a queue, and scans of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.transactions.outcomes import CommitTable
from tests.support.clock import ManualClock

TABLE = TableRef.parse("app.items")
SETTINGS = Settings(retention_s=0, legacy_versions_per_s=0, legacy_ranges=4)
CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
S = 100
ROWS = 12


def cell(row: int) -> Cell:
    return Cell(b"row-%03d" % row, b"c")


def filled(store: Store, strategy: SweepStrategy = CONSERVATIVE) -> None:
    """Twelve rows, each written three times, without queue entries."""
    store.create_table(TABLE, TableMetadata(strategy))
    for start in (10, 20, 30):
        write(store, start, map(cell, range(ROWS)))
    TimestampService(store).move_past(S)


def write(store: Store, start: int, cells: Iterable[Cell], commit: int | None = None, value: bytes = b"v") -> None:
    store.put(start, {TABLE: dict.fromkeys(cells, value)})
    CommitTable(store).decide(start, commit or start + 1)


def begin(store: Store, clock: ManualClock, **order: Any) -> tuple[LegacySweep, LegacyOrder]:
    return LegacySweep(store, SETTINGS, clock, "worker"), LegacyOrder(TABLE, **order)


def sweep(store: Store, clock: ManualClock, **order: Any) -> LegacySummary:
    legacy, asked = begin(store, clock, **order)
    return legacy.sweep(asked, Horizon(S, clock.now_ms()))


def versions(store: Store) -> dict[Cell, list[int]]:
    return store.timestamps(TABLE, [cell(row) for row in range(3 * ROWS)])


SWEPT = {cell(row): [30, -1] for row in range(ROWS)}
