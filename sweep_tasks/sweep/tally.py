"""How much a sweep deletes, by table, kind and place on the ring: counted while it does, as numbers and never as cells.

Only where the store has a ring is there anything to count: elsewhere a delete leaves nothing behind that a compaction
would have to remove. Tallies of tasks that ran side by side are merged, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Self

from sweep_tasks.model import TableRef
from sweep_tasks.sweep.ranges import TokenHistogram

MOST_RANGES = 512
"""Of one table and kind: a few kilobytes as text, and fine enough to show a row that is deleted from all the time."""


class Kind(StrEnum):
    RANGES = "ranges"
    """Range tombstones: of a cell, all versions below one."""
    VERSIONS = "versions"
    """Tombstones of single versions."""
    SENTINELS = "sentinels"
    """No tombstones, but what a compaction joins."""


TOMBSTONES = (Kind.RANGES, Kind.VERSIONS)


class TableTally:
    def __init__(self) -> None:
        self.by_kind = {kind: TokenHistogram(MOST_RANGES) for kind in Kind}

    @property
    def tombstones(self) -> int:
        return sum(self.by_kind[kind].deleted for kind in TOMBSTONES)

    def tombstone_histogram(self) -> TokenHistogram:
        both = TokenHistogram(MOST_RANGES)
        for kind in TOMBSTONES:
            both.merge(self.by_kind[kind])
        return both

    def merge(self, other: TableTally) -> None:
        for kind, histogram in other.by_kind.items():
            self.by_kind[kind].merge(histogram)

    def less(self, other: TableTally) -> TableTally:
        return self._of_kinds(lambda kind: self.by_kind[kind].less(other.by_kind[kind]))

    def within(self, first_token: int, last_token: int) -> TableTally:
        return self._of_kinds(lambda kind: self.by_kind[kind].within(first_token, last_token))

    @classmethod
    def _of_kinds(cls, counts: Callable[[Kind], TokenHistogram]) -> Self:
        made = cls()
        made.by_kind = {kind: counts(kind) for kind in Kind}
        return made

    def document(self) -> dict[str, Any]:
        return {kind.value: counts.document() for kind, counts in self.by_kind.items() if counts.deleted}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        made = cls()
        made.by_kind |= {Kind(kind): TokenHistogram.of(counts) for kind, counts in document.items()}
        return made


class Tally:
    def __init__(self) -> None:
        self._tables: dict[TableRef, TableTally] = {}

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __iter__(self) -> Iterator[tuple[TableRef, TableTally]]:
        return iter(self._tables.items())

    def add(self, table: TableRef, kind: Kind, tokens: list[int]) -> None:
        if tokens:
            self._of(table).by_kind[kind].add_all(tokens)

    def merge(self, other: Tally) -> None:
        for table, counts in other:
            self._of(table).merge(counts)

    def taken(self) -> Tally:
        """What was counted so far; from here on it begins at nought."""
        taken = Tally()
        taken._tables, self._tables = self._tables, {}
        return taken

    def document(self) -> dict[str, Any]:
        """Plain, to be handed from a worker to the driver."""
        return {str(table): counts.document() for table, counts in self}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        made = cls()
        made._tables = {TableRef.stored(table): TableTally.of(counts) for table, counts in document.items()}
        return made

    def _of(self, table: TableRef) -> TableTally:
        return self._tables.setdefault(table, TableTally())
