"""Pauses of sweeping: of one table or of everything, with operator, time and reason.

A pause only keeps versions that would be removed, so it may come at any point of a sweep. While everything is paused, a
sweep does nothing and the queue keeps its entries. A paused table does not delay other tables: its entries are parked
before they leave the queue, and the first sweep after the table is resumed judges them again. That sweep finds them by
checking whether the table is paused, not by an event, so entries that are parked late are found as well.

A running sweep checks for pauses before each batch, and a table scan before each page. When `pause` returns, at most
one batch or page is still in progress. A paused scan stops there and can be resumed without losing its progress.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import AlreadyExists, NotFound, SweepflowError, UnknownTable
from sweep_tasks.journal.actors import checked_reason
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import PAUSES

_ROW = b"pauses"
_EVERYTHING = b"*"
EVERYTHING = "everything"
"""The name of a pause of all tables. No table has this name, because it has no dot."""


class Pause(NamedTuple):
    """One pause, with operator, reason and start."""

    by: str
    reason: str
    since_ms: int


class Paused(NamedTuple):
    """All pauses of a store."""

    everything: Pause | None
    tables: Mapping[TableRef, Pause]

    def holds(self, table: TableRef) -> bool:
        return self.everything is not None or table in self.tables

    def listed(self) -> list[tuple[str, Pause]]:
        """Return all pauses by name; the pause of everything comes first."""
        whole = [(EVERYTHING, self.everything)] if self.everything else []
        return [*whole, *((str(table), self.tables[table]) for table in sorted(self.tables))]


class Pauses:
    """Sets, lifts and reads the pauses of a store."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._journal = Journal(store, clock)

    def current(self) -> Paused:
        """Return all current pauses with one read."""
        found = {
            cell.column: Pause(*json.loads(value)) for cell, value in self._store.read_rows(PAUSES, [_ROW]).items()
        }
        everything = found.pop(_EVERYTHING, None)
        return Paused(everything, {TableRef.stored(column.decode()): each for column, each in found.items()})

    def pause(self, table: TableRef | None, by: str, reason: str) -> None:
        """Pause sweeping of a table, or of everything if the table is None."""
        wanted = Pause(by, checked_reason(reason), self._clock.now_ms())
        with self._journal.record_as(by, "pause", named(table), wanted.reason):
            if table is not None and table not in self._store.tables([table]):
                raise UnknownTable(table)
            stored, cell = json.dumps(wanted).encode(), _cell(table)
            current = self._store.put_if_absent(PAUSES, {cell: stored})[cell]
            if current != stored:
                what, paused_by = named(table), Pause(*json.loads(current)).by
                raise AlreadyExists(
                    f"pause: {what} is paused already, by {paused_by}; resume it first", what=what, by=paused_by
                )

    def resume(self, table: TableRef | None) -> Pause:
        """Lift a pause and return it. This is also possible for a table that was dropped in the meantime."""
        cell = _cell(table)
        with self._journal.record("resume", named(table)):
            while True:
                current = self._store.read(PAUSES, [cell]).get(cell)
                if current is None:
                    raise NotFound(f"pause: {named(table)} is not paused; 'sweepflow pause --list' lists all pauses")
                if self._store.compare_and_set(PAUSES, _ROW, {cell.column: Change(current, None)}):
                    return Pause(*json.loads(current))

    def check(self, table: TableRef | None = None) -> None:
        """Raise an error with the code `paused` if everything is paused, or this table is."""
        everything, tables = self.current()
        for what, pause in ((None, everything), (table, tables.get(table) if table else None)):
            if pause:
                resume = f"'sweepflow resume {what or '--everything'}'"
                raise SweepflowError(
                    f"pause: {named(what)} is paused by {pause.by}: {pause.reason}; {resume} ends the pause",
                    code="paused",
                    what=named(what),
                    by=pause.by,
                    why=pause.reason,
                )


def named(table: TableRef | None) -> str:
    """Return the name of what is paused: a table, or everything."""
    return EVERYTHING if table is None else str(table)


def _cell(table: TableRef | None) -> Cell:
    return Cell(_ROW, _EVERYTHING if table is None else str(table).encode())
