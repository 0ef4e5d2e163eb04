"""How much was written to each table, as its sweeps have counted it: tells which table is worth a scan.

The targeted sweep judges every write of a table, so whoever sweeps knows how many there were; nobody else has to count.
Each shard of each strategy has a register of its own in the row of a table, which only grows, and a register keeps what
the sum was when the table was last scanned. An estimate: a cell counts once in each batch, what is judged again after a
crash counts again, and a table that is swept by nothing is not counted at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import LEGACY_SWEEPS, scan_row
from sweep_tasks.sweep.rules import Entry

_LAST_SCAN = b"last scan"


class Written(NamedTuple):
    """Cells that were written or deleted."""

    writes: int = 0
    deletes: int = 0

    def plus(self, other: Written) -> Written:
        return Written(self.writes + other.writes, self.deletes + other.deletes)

    def since(self, before: Written) -> Written:
        return Written(max(0, self.writes - before.writes), max(0, self.deletes - before.deletes))


NONE = Written()


def written(entries: Collection[Entry]) -> dict[TableRef, Written]:
    """By table, each cell once, as its latest entry left it."""
    latest: dict[tuple[TableRef, Cell], Entry] = {}
    for entry in entries:
        known = latest.get((entry.table, entry.cell))
        if known is None or entry.start > known.start:
            latest[entry.table, entry.cell] = entry
    found: dict[TableRef, Written] = {}
    for (table, _), entry in latest.items():
        found[table] = found.get(table, NONE).plus(Written(not entry.delete, entry.delete))
    return found


class Activity:
    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, strategy: SweepStrategy, shard: int, found: Mapping[TableRef, Written]) -> None:
        """What one run of a shard has judged: one change for each table."""
        for table, more in found.items():
            self._add(Cell(_row(table), b"%s %d" % (strategy.value.encode(), shard)), more)

    def _add(self, cell: Cell, more: Written) -> None:
        self._store.update(LEGACY_SWEEPS, cell, lambda current: _bytes(_written(current).plus(more)))

    def ever(self, table: TableRef) -> Written:
        """All that was counted up to now."""
        return self._standing([table])[table][0]

    def scanned(self, table: TableRef, ever: Written) -> None:
        """What was counted since this much had been is news. A scan knows it from when it began: what is written while
        it runs is not for it to find."""
        self._store.update(LEGACY_SWEEPS, Cell(_row(table), _LAST_SCAN), lambda _: _bytes(ever))

    def since_last_scan(self, tables: Collection[TableRef]) -> dict[TableRef, Written]:
        return {table: total.since(before) for table, (total, before) in self._standing(tables).items()}

    def _standing(self, tables: Collection[TableRef]) -> dict[TableRef, tuple[Written, Written]]:
        """For each table the sum over all shards, and what it was at the last scan."""
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


def _bytes(found: Written) -> bytes:
    return var_long(found.writes) + var_long(found.deletes)


def _written(value: bytes | None) -> Written:
    if value is None:
        return NONE
    writes, at = read_var_long(value)
    return Written(writes, read_var_long(value, at)[0])
