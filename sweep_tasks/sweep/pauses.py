"""What somebody has paused: one table, or everything; by whom, since when and why.

A pause only ever keeps what would go, so it needs no place in the order of a sweep. While everything is paused a sweep
does nothing and the queue keeps its entries. A paused table holds up no other: its entries are parked, durably before
the queue forgets them, and judged anew by the first sweep that finds the table resumed. They are found by looking
whether the table is paused, not by the resuming itself: one that a sweep parks too late is found as well.

Sweeps that are under way look before each batch, and scans of a table before each page; when `pause` returns, at most
that one is still on its way. A scan stops there and can be taken up again: nothing of it is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import AlreadyExists, NotFound, SweepingPaused, UnknownTable
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import PAUSES

_ROW = b"pauses"
_EVERYTHING = b"*"
EVERYTHING = "everything"
"""What a pause of all tables is called; no table is, for lack of a dot."""


class Pause(NamedTuple):
    by: str
    reason: str
    since_ms: int


class Paused(NamedTuple):
    everything: Pause | None
    tables: Mapping[TableRef, Pause]

    def holds(self, table: TableRef) -> bool:
        return self.everything is not None or table in self.tables

    def listed(self) -> list[tuple[str, Pause]]:
        """By name, everything first."""
        whole = [(EVERYTHING, self.everything)] if self.everything else []
        return [*whole, *((str(table), self.tables[table]) for table in sorted(self.tables))]


class Pauses:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def standing(self) -> Paused:
        """All of it, in one read."""
        found = {
            cell.column: Pause(*json.loads(value)) for cell, value in self._store.read_rows(PAUSES, [_ROW]).items()
        }
        everything = found.pop(_EVERYTHING, None)
        return Paused(everything, {TableRef.stored(column.decode()): each for column, each in found.items()})

    def pause(self, table: TableRef | None, by: str, reason: str) -> None:
        """None is everything."""
        if table is not None and table not in self._store.tables([table]):
            raise UnknownTable(table)
        wanted = json.dumps(Pause(by, reason, self._clock.now_ms())).encode()
        cell = _cell(table)
        stands = self._store.put_if_absent(PAUSES, {cell: wanted})[cell]
        if stands != wanted:
            raise AlreadyExists(f"pause: {named(table)} is paused already, by {Pause(*json.loads(stands)).by}")

    def resume(self, table: TableRef | None) -> Pause:
        """What is lifted. A table that was dropped meanwhile may be resumed all the same."""
        cell = _cell(table)
        while True:
            stands = self._store.read(PAUSES, [cell]).get(cell)
            if stands is None:
                raise NotFound(f"pause: {named(table)} is not paused; 'sweepflow pause --list' shows what is")
            if self._store.compare_and_set(PAUSES, _ROW, {cell.column: Change(stands, None)}):
                return Pause(*json.loads(stands))

    def check(self, table: TableRef | None = None) -> None:
        """Raises `SweepingPaused` if everything is paused, or this table is."""
        everything, tables = self.standing()
        for what, pause in ((None, everything), (table, tables.get(table) if table else None)):
            if pause:
                lift = f"sweepflow resume {what or '--everything'}"
                raise SweepingPaused(named(what), pause.by, pause.reason, lift)


def named(table: TableRef | None) -> str:
    return EVERYTHING if table is None else str(table)


def _cell(table: TableRef | None) -> Cell:
    return Cell(_ROW, _EVERYTHING if table is None else str(table).encode())
