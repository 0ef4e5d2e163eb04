"""A store of several copies, one of which may be missing for a while.

What a reader finds here is what the other copies say. Beside that, the store remembers which versions they removed
while one was missing: that copy may still have any of them, and nobody tells it any more once the tombstones are
purged. Whoever compares adds them to what is stored, as a reader of that day would find them, and no answer may change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto

from sweep_tasks.model import Cell, TableRef, VersionRange
from sweep_tasks.store.memory import MemoryStore, Versions
from sweep_tasks.store.system import SYSTEM_TABLES
from tests.support.clock import ManualClock


class Missing(Enum):
    KNOWN = auto()
    """The store refuses at once what must reach every copy."""
    SILENT = auto()
    """The others do it, and one never answers."""


class CopiesStore(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.missing: Missing | None = None
        self.left_behind: dict[tuple[TableRef, Cell], Versions] = {}
        """What the missing copy may have and the others have not. Only of the users' tables: what the queue and the
        parking get back is work to repeat."""
        for table, metadata in SYSTEM_TABLES.items():
            self.create_table(table, metadata)

    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        if not table.is_system:
            self._tell_all(table, ranges) if self.missing is None else self._miss(table, ranges)
        super().delete_ranges(table, ranges)

    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        self.delete_ranges(table, [VersionRange(cell, ts, ts + 1) for cell, ts in versions])

    def delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> list[VersionRange]:
        if self.missing is not Missing.KNOWN:
            self.delete_ranges(table, ranges)
        return [] if self.missing is None else list(ranges)

    def truncate(self, table: TableRef, before: int) -> None:
        """As if at every copy: how a truncation reaches a missing copy is a question of its own."""
        super().truncate(table, before)
        for of, cell in [place for place in self.left_behind if place[0] == table]:
            self._drop(of, cell, range(-1, before))

    def come_back(self, repaired: bool) -> None:
        """It takes part again. Repaired in time, it has learnt what it missed."""
        self.missing = None
        if repaired:
            self.left_behind.clear()

    def brought_back(self) -> Iterator[tuple[TableRef, Cell, Versions]]:
        """What each version that was left behind makes of its cell. One at a time: the missing copy may have missed any
        of the others when they were written, the delete marker above it first of all."""
        for (table, cell), versions in self.left_behind.items():
            for ts, value in versions.items():
                yield table, cell, {ts: value} | self._table(table).versions(cell)

    def _miss(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        for cell, first, end in ranges:
            stored = self._table(table).versions(cell)
            gone = {ts: value for ts, value in stored.items() if first <= ts < end}
            if gone:
                self.left_behind.setdefault((table, cell), {}).update(gone)

    def _tell_all(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        for cell, first, end in ranges:
            self._drop(table, cell, range(first, end))

    def _drop(self, table: TableRef, cell: Cell, gone: range) -> None:
        versions = self.left_behind.pop((table, cell), {})
        kept = {ts: value for ts, value in versions.items() if ts not in gone}
        if kept:
            self.left_behind[table, cell] = kept
