"""Reads one shard's queue in the order of start timestamps, in batches of bounded size.

A batch ends between two start timestamps, or between two pages of a dedicated row. `through` is the progress that the
shard may advance to after the batch is applied. The other fields name the queue rows that can be cleaned then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

import structlog

from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import EVERYTHING, MAX_TS, Cell, Span, SweepStrategy, Version
from sweep_tasks.queue.encoding import (
    FINE,
    MAX_DEDICATED_ROWS,
    coarse,
    dedicated_rows,
    fine,
    read_cells_column,
    read_timestamps_row,
    shared_row,
    timestamps_row,
)
from sweep_tasks.store.contract import CellPage, Store, every, pages
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS

log = structlog.get_logger(__name__)

DEFAULT_BATCH = 100_000
_PAGE = 10_000
_MOST_ROW_READS = 1_000
"""Above this number of coarse partitions, scanning the whole table of marks is cheaper than reading each row."""


class RawEntry(NamedTuple):
    """An entry as it is stored in the queue: its start, its cell and its bytes. A column that can't be read has no
    start, and its entry can only be quarantined."""

    start: int | None
    place: Cell
    value: bytes


class Reference(NamedTuple):
    """A reference from a shared row to the dedicated rows that hold the writes of one transaction."""

    start: int
    rows: int


@dataclass(slots=True)
class Batch:
    """Entries of the queue that are judged together, and the rows that can be cleaned afterwards."""

    entries: list[RawEntry] = field(default_factory=list)
    through: int | None = None
    """The progress to advance to after the entries are applied; None if no start timestamp is complete yet."""
    dedicated: list[tuple[int, bytes]] = field(default_factory=list)
    """Dedicated rows that this batch completes, each with its start timestamp."""
    partitions: list[int] = field(default_factory=list)
    """Fine partitions that this batch completes."""
    completes_a_row: bool = False
    """True if the batch completes a dedicated row that had entries: a run that ends here does not restart that row."""

    @property
    def starts(self) -> set[int]:
        return {raw.start for raw in self.entries if raw.start is not None}


class _Group(NamedTuple):
    """The entries of one start timestamp, or one page of them."""

    start: int | None
    entries: list[RawEntry]
    complete: bool
    dedicated: list[tuple[int, bytes]]
    completes_a_row: bool = False


class QueueReader:
    """Reads the queue of one strategy and shard. Changes nothing."""

    def __init__(self, store: Store, strategy: SweepStrategy, shard: int) -> None:
        self._store = store
        self._strategy = strategy
        self._shard = shard

    def partitions(self, after: int, before: int) -> list[int]:
        """Return the fine partitions that are marked as having entries with `after < start < before`."""
        first, last = fine(after + 1), fine(before - 1)
        if before <= after + 1:
            return []
        marks = Span(var_long(first), var_long(last + 1))
        found: set[int | None] = set()
        for row in self._mark_rows(coarse(after + 1), coarse(before - 1)):
            found.update(self._marked(cell.column) for cell, _ in self._marks(Span.only(row), marks))
        return sorted(partition for partition in found if partition is not None)

    def _marks(self, rows: Span = EVERYTHING, columns: Span = EVERYTHING) -> Iterator[tuple[Cell, Version]]:
        def page(after: Cell | None) -> CellPage:
            return self._store.scan(QUEUE_TIMESTAMPS, MAX_TS, rows, columns, _PAGE, after)

        return every(page)

    def _marked(self, column: bytes) -> int | None:
        """Return the partition of a mark, or None if it can't be read. Such a mark must not stop the shard."""
        try:
            partition, at = read_var_long(column)
        except BadValue:
            at = -1
        if at != len(column):
            log.warning(
                "skipped an unreadable partition mark in the queue", strategy=self._strategy.value, shard=self._shard
            )
            return None
        return partition

    def _mark_rows(self, first: int, last: int) -> list[bytes]:
        if last - first < _MOST_ROW_READS:
            return [timestamps_row(self._shard, partition, self._strategy) for partition in range(first, last + 1)]
        rows = {cell.row for cell, _ in self._marks()}
        return sorted(row for row in rows if self._is_ours(row, first, last))

    def _is_ours(self, row: bytes, first: int, last: int) -> bool:
        """A row that can't be read is none of ours: those have names that are computed."""
        try:
            shard, partition, strategy = read_timestamps_row(row)
        except BadValue:
            return False
        return shard == self._shard and strategy == self._strategy and first <= partition <= last

    def batches(self, after: int, before: int, size: int = DEFAULT_BATCH) -> Iterator[Batch]:
        """Everything with `after < start < before`, oldest first, about `size` entries at a time."""
        batch = Batch()
        for partition in self.partitions(after, before):
            for start, entries, complete, dedicated, completes_a_row in self._groups(partition, after, before, size):
                if batch.entries and len(batch.entries) + len(entries) > size:
                    yield batch
                    batch = Batch()
                batch.entries += entries
                batch.dedicated += dedicated
                batch.completes_a_row |= completes_a_row
                if complete:
                    batch.through = start
            end = (partition + 1) * FINE
            batch.through = min(end, before) - 1
            if end <= before:
                batch.partitions.append(partition)
        if batch.through is not None:
            yield batch

    def shared(
        self, partition: int, after: int, before: int, within: Span = EVERYTHING, most: int | None = None
    ) -> Iterator[RawEntry | Reference]:
        """Yield the entries and references of a shared row with `after < start < before`, in order. `most` limits how
        many columns are read.

        A row that will be cleaned is read completely. References that were processed before lead to dedicated rows that
        must be removed too, and a column that can't be read must be quarantined before its row is removed.
        """
        base = partition * FINE
        pages = self.shared_pages(partition, after, before, within, most or _PAGE)
        for cell, (_, value) in islice(chain.from_iterable(pages), most):
            found = place(base, after, cell, value)
            if found is not None:
                yield found

    def shared_pages(
        self, partition: int, after: int, before: int, within: Span = EVERYTHING, page: int = _PAGE
    ) -> Iterator[list[tuple[Cell, Version]]]:
        """Yield the columns of a shared row by pages. A row that will be cleaned is read completely."""
        base = partition * FINE
        columns = within
        if base + FINE > before:
            columns = _overlap(Span(var_long(max(after + 1 - base, 0)), var_long(before - base)), within)
        return self._row_pages(shared_row(partition, self._strategy, self._shard), columns, page)

    def _groups(self, partition: int, after: int, before: int, size: int) -> Iterator[_Group]:
        entries: list[RawEntry] = []
        current: int | None = None
        for found in self.shared(partition, after, before):
            if found.start is None:
                yield _Group(None, [found], False, [])
                continue
            if found.start != current:
                if current is not None:
                    yield _Group(current, entries, True, [])
                entries, current = [], found.start if found.start > after else None
            if isinstance(found, RawEntry):
                entries.append(found)
            elif current is None:
                yield _Group(None, [], False, [(found.start, row) for row in self.dedicated_rows(found)])
            else:
                yield from self._dedicated(found, size)
        if current is not None:
            yield _Group(current, entries, True, [])

    def dedicated_rows(self, reference: Reference) -> list[bytes]:
        return dedicated_rows(reference.start, self._strategy, self._shard, reference.rows)

    def _dedicated(self, reference: Reference, size: int) -> Iterator[_Group]:
        start = reference.start
        for row in self.dedicated_rows(reference):
            after: Cell | None = None
            found = False
            while True:
                page = self._store.scan(QUEUE_CELLS, MAX_TS, Span.only(row), limit=min(size, _PAGE), after=after)
                entries = [RawEntry(start, cell, version.value) for cell, version in page.items]
                after = page.resume
                found = found or bool(entries)
                yield _Group(start, entries, False, [] if after else [(start, row)], found and after is None)
                if after is None:
                    break

    def dedicated(self, start: int, row: bytes) -> Iterator[RawEntry]:
        return (
            RawEntry(start, cell, version.value) for cell, version in chain.from_iterable(self.dedicated_pages(row))
        )

    def dedicated_pages(self, row: bytes) -> Iterator[list[tuple[Cell, Version]]]:
        """Yield the columns of a dedicated row by pages."""
        return self._row_pages(row, EVERYTHING, _PAGE)

    def _row_pages(self, row: bytes, columns: Span, size: int) -> Iterator[list[tuple[Cell, Version]]]:
        return pages(lambda after: self._store.scan(QUEUE_CELLS, MAX_TS, Span.only(row), columns, size, after))

    def late(self, since: int, progress: int, most: int) -> Iterator[Batch]:
        """Yield what is below the current partition: one batch, to be cleaned, for each past partition that has
        entries or is marked again.

        Past partitions since a timestamp are found by their marks. The last `most` of them are also found by reading
        their rows, because a writer that has cached a mark does not write it again.
        """
        past = fine(progress + 1)
        for partition, marked in self._past(since, past, most):
            batch = self.all_of(partition, partition * FINE, (partition + 1) * FINE)
            if batch.entries or batch.dedicated or marked:
                batch.partitions.append(partition)
                yield batch

    def late_partitions(self, since: int, progress: int, most: int) -> list[int]:
        """Return the past partitions that `late` would return, with one read for each."""
        return [
            partition
            for partition, marked in self._past(since, fine(progress + 1), most)
            if marked or not self.is_empty(partition, -1, (partition + 1) * FINE)
        ]

    def _past(self, since: int, past: int, most: int) -> Iterator[tuple[int, bool]]:
        marked = set(self.partitions(fine(since) * FINE - 1, past * FINE))
        for partition in sorted({*marked, *range(max(fine(since), past - most), past)}):
            yield partition, partition in marked

    def is_empty(self, partition: int, after: int, before: int) -> bool:
        return next(self.shared(partition, after, before), None) is None

    def all_of(self, partition: int, first: int, before: int) -> Batch:
        """Return all entries of a partition between two starts, including those in dedicated rows."""
        groups = list(self._groups(partition, first - 1, before, _PAGE))
        return Batch(
            [entry for group in groups for entry in group.entries],
            dedicated=[row for group in groups for row in group.dedicated],
        )


def _overlap(one: Span, other: Span) -> Span:
    ends = [span.end for span in (one, other) if span.end]
    return Span(max(one.start, other.start), min(ends, default=b""))


def place(base: int, after: int, cell: Cell, value: bytes) -> RawEntry | Reference | None:
    """Return what a column of a shared row is: an entry, a reference, or None for an entry that is not above `after`.
    A column that can't be read is an entry without a start."""
    try:
        modulus, index = read_cells_column(cell.column)
    except BadValue:
        modulus, index = FINE, 0
    if modulus >= FINE or index < -MAX_DEDICATED_ROWS:
        return RawEntry(None, cell, value)
    if index < 0:
        return Reference(base + modulus, -index)
    return RawEntry(base + modulus, cell, value) if base + modulus > after else None
