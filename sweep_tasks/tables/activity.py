"""Write activity of tables, as counted by sweeps; it shows which table is worth a scan.

The targeted sweep judges every write of a table, so it can count them without extra work. Each shard of each strategy
has its own register in the row of a table, which only grows. Another register has the sum as of the last scan of the
table. The counts are estimates: a cell counts once in each batch, entries that are judged again after a crash count
again, and a table with the strategy `nothing` is not counted at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import LEGACY_SWEEPS, scan_row

_LAST_SCAN = b"last scan"


class WriteCounts(NamedTuple):
    """The number of cells that were written and deleted."""

    writes: int = 0
    deletes: int = 0

    def plus(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.writes + other.writes, self.deletes + other.deletes)

    def since(self, before: WriteCounts) -> WriteCounts:
        return WriteCounts(max(0, self.writes - before.writes), max(0, self.deletes - before.deletes))


NONE = WriteCounts()


class Activity:
    """The activity counters of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, strategy: SweepStrategy, shard: int, found: Mapping[TableRef, WriteCounts]) -> None:
        """Add what one run of a shard has judged, with one update for each table."""
        for table, more in found.items():
            self._add(Cell(_row(table), b"%s %d" % (strategy.value.encode(), shard)), more)

    def _add(self, cell: Cell, more: WriteCounts) -> None:
        self._store.update(LEGACY_SWEEPS, cell, lambda current: _bytes(_written(current).plus(more)))

    def ever(self, table: TableRef) -> WriteCounts:
        """Return all that was counted up to now."""
        return self._counts([table])[table][0]

    def record_scan(self, table: TableRef, ever: WriteCounts) -> None:
        """Record a complete scan. `ever` is the count when the scan began: it may miss what was written since."""
        self._store.update(LEGACY_SWEEPS, Cell(_row(table), _LAST_SCAN), lambda _: _bytes(ever))

    def since_last_scan(self, tables: Collection[TableRef]) -> dict[TableRef, WriteCounts]:
        """Return what was counted since the last scan of each table."""
        return {table: total.since(before) for table, (total, before) in self._counts(tables).items()}

    def _counts(self, tables: Collection[TableRef]) -> dict[TableRef, tuple[WriteCounts, WriteCounts]]:
        """Return for each table the sum over all shards, and the sum at its last scan."""
        rows = {_row(table): table for table in tables}
        totals = dict.fromkeys(tables, NONE)
        before = dict.fromkeys(tables, NONE)
        for (row, column), value in self._store.read_rows(LEGACY_SWEEPS, list(rows)).items():
            if column == _LAST_SCAN:
                before[rows[row]] = _written(value)
            else:
                totals[rows[row]] = totals[rows[row]].plus(_written(value))
        return {table: (totals[table], before[table]) for table in tables}


def _row(table: TableRef) -> bytes:
    return scan_row(b"written", table)


def _bytes(found: WriteCounts) -> bytes:
    return var_long(found.writes) + var_long(found.deletes)


def _written(value: bytes | None) -> WriteCounts:
    if value is None:
        return NONE
    writes, at = read_var_long(value)
    return WriteCounts(writes, read_var_long(value, at)[0])
