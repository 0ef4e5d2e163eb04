"""A store with several replicas, one of which may be unavailable for a while.

A reader finds what the other replicas hold. The store also remembers which versions they removed while one replica was
unavailable: that replica may still hold any of them, and nothing removes them there once the tombstones are purged. A
test adds them to what is stored, as a later reader would find them, and checks that no answer changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto

from sweep_tasks.model import Cell, TableMetadata, TableRef, VersionRange
from sweep_tasks.store.memory import MemoryStore, Versions
from sweep_tasks.store.schema import SYSTEM_TABLES
from tests.support.clock import ManualClock


class Missing(Enum):
    KNOWN = auto()
    """The store refuses immediately what must reach every replica."""
    SILENT = auto()
    """The other replicas apply it, and one never answers."""


class ReplicatedStore(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.missing: Missing | None = None
        self.left_behind: dict[tuple[TableRef, Cell], Versions] = {}
        """Versions that the unavailable replica may hold and the others do not. Only of user tables: what the queue and
        the parking get back is work to repeat."""
        self.marks: dict[TableRef, set[int]] = {}
        """Every version that was ever stored."""
        for table, metadata in SYSTEM_TABLES.items():
            self.create_table(table, metadata)

    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        if not table.is_system:
            self._remove_from_all(table, ranges) if self.missing is None else self._miss(table, ranges)
        super().delete_ranges(table, ranges)

    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        self.delete_ranges(table, [VersionRange(cell, ts, ts + 1) for cell, ts in versions])

    def delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> list[VersionRange]:
        if self.missing is not Missing.KNOWN:
            self.delete_ranges(table, ranges)
        return [] if self.missing is None else list(ranges)

    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        changed = super().alter_table(table, expected, new)
        if changed:
            self.marks.setdefault(table, set()).add(new.mark)
        return changed

    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        """A new physical table: what a replica still holds of the old one is not in it."""
        created = super().create_table(table, metadata, gone)
        if created:
            self.marks.setdefault(table, set()).add(metadata.mark)
            self.left_behind = {place: found for place, found in self.left_behind.items() if place[0] != table}
        return created

    def come_back(self, repaired: bool) -> None:
        """The replica is available again. If it is repaired in time, it has what it missed."""
        self.missing = None
        if repaired:
            self.left_behind.clear()

    def brought_back(self) -> Iterator[tuple[TableRef, Cell, Versions]]:
        """Yield each cell with one version that was left behind. One at a time: the unavailable replica may have missed
        any of the others when they were written, most of all the delete marker above it. That covers every put it can
        have missed: a reader sees the newest version, so any subset reads like one of them (`test_replicas.py`)."""
        for (table, cell), versions in self.left_behind.items():
            if self.contents[table].metadata.is_gone:
                continue
            for ts, value in versions.items():
                yield table, cell, {ts: value} | self._table(table).versions(cell)

    def _miss(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        for cell, first, end in ranges:
            stored = self._table(table).versions(cell)
            gone = {ts: value for ts, value in stored.items() if first <= ts < end}
            if gone:
                self.left_behind.setdefault((table, cell), {}).update(gone)

    def _remove_from_all(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        for cell, first, end in ranges:
            self._drop(table, cell, range(first, end))

    def _drop(self, table: TableRef, cell: Cell, gone: range) -> None:
        versions = self.left_behind.pop((table, cell), {})
        kept = {ts: value for ts, value in versions.items() if ts not in gone}
        if kept:
            self.left_behind[table, cell] = kept
