"""Statistics of what sweeps have deleted, by table, day and token range.

A sweep counts while it deletes, and the counts are kept in the store. Compaction uses them for nodes whose files can't
be read from here.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import add, sub
from typing import Any, NamedTuple, Self

import structlog

from sweep_tasks.encoding import sized
from sweep_tasks.errors import BadValue, StoreError
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN, Cell, TableRef
from sweep_tasks.store.contract import Change, Store, chunks
from sweep_tasks.store.schema import DELETIONS

# ---------------------------------------------------------------------------------------------------------------------
# Tallies: how much a sweep deletes, by table, kind and token. They hold numbers, never cells.
#
# Deletes are only counted in a store with a ring. In other stores a delete leaves nothing that a compaction would have
# to purge. Tallies of parallel tasks can be merged in any order.
# ---------------------------------------------------------------------------------------------------------------------

MOST_RANGES = 512
"""Token ranges per table and kind: a few kilobytes as text, and fine enough to show a row with constant deletes."""


class DeleteKind(StrEnum):
    """What a delete writes to the store."""

    RANGES = "ranges"
    """Range tombstones: all versions of a cell below one."""
    VERSIONS = "versions"
    """Tombstones of single versions."""
    SENTINELS = "sentinels"
    """Sentinels: no tombstones, but a compaction merges them."""


TOMBSTONES = (DeleteKind.RANGES, DeleteKind.VERSIONS)


class TableTally:
    """The deletes of one table, by kind."""

    def __init__(self) -> None:
        self.by_kind = {kind: TokenHistogram(MOST_RANGES) for kind in DeleteKind}

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
    def _of_kinds(cls, counts: Callable[[DeleteKind], TokenHistogram]) -> Self:
        result = cls()
        result.by_kind = {kind: counts(kind) for kind in DeleteKind}
        return result

    def document(self) -> dict[str, Any]:
        return {kind.value: counts.document() for kind, counts in self.by_kind.items() if counts.deleted}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        result = cls()
        result.by_kind |= {DeleteKind(kind): TokenHistogram.of(counts) for kind, counts in document.items()}
        return result


class DeleteTally:
    """The deletes of one task, by table."""

    def __init__(self) -> None:
        self._tables: dict[TableRef, TableTally] = {}

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __iter__(self) -> Iterator[tuple[TableRef, TableTally]]:
        return iter(self._tables.items())

    def add(self, table: TableRef, kind: DeleteKind, tokens: list[int]) -> None:
        if tokens:
            self._of(table).by_kind[kind].add_all(tokens)

    def merge(self, other: DeleteTally) -> None:
        for table, counts in other:
            self._of(table).merge(counts)

    def take(self) -> DeleteTally:
        """Return what was counted so far, and start again at zero."""
        counted = DeleteTally()
        counted._tables, self._tables = self._tables, {}
        return counted

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON values, for the way from a worker to the driver."""
        return {str(table): counts.document() for table, counts in self}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        result = cls()
        result._tables = {TableRef.stored(table): TableTally.of(counts) for table, counts in document.items()}
        return result

    def _of(self, table: TableRef) -> TableTally:
        return self._tables.setdefault(table, TableTally())


# ---------------------------------------------------------------------------------------------------------------------
# The stored statistics: for each table one tally per day, and one tally per node of what compactions have purged there.
#
# Deletes are kept by day, because a compaction purges a tombstone only after gc_grace: a compaction today does not
# purge the tombstones of yesterday. When a compaction is recorded, its purges are added to the tally of the node and
# subtracted from the sum of the days, so that it stays subtracted when old days are merged. A compaction purges the
# oldest tombstones of a range first, so the oldest days are reduced first. The size is bounded: a tally has a maximum
# number of ranges, and a table a maximum number of days. The resulting error is that too much is shown as left.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

DAY_MS = 86_400_000
MOST_DAYS = 32
_DAY, _NODE = b"d", b"n"


class Left(NamedTuple):
    """The tombstones that sweeps have left in a table, by the statistics."""

    since_ms: int
    tally: TableTally
    droppable: TableTally
    """The part that is older than gc_grace."""
    all_from_ms: int
    """The time at which all of it will be older than gc_grace."""


class Deletions:
    """The stored statistics of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, tally: DeleteTally, now_ms: int) -> None:
        """Add the counts of a sweep. A failure is only logged: missing statistics must not stop a sweep."""
        for table, counts in tally:
            try:
                self._add(table, counts, now_ms // DAY_MS)
            except StoreError as error:
                log.warning(f"deletes of {table} are missing in the statistics of its token ranges: {error}")

    def record_compaction(
        self, table: TableRef, node: str, gc_grace_s: int, at_ms: int, first_token: int, last_token: int
    ) -> None:
        """Record that all files of a node with rows between these tokens, both included, were compacted together."""
        days, _ = self._read(table, None)

        def with_it(current: bytes | None) -> bytes:
            purged = _purged(current)
            if left := _left(days, purged, gc_grace_s, at_ms):
                purged.merge(left.droppable.within(first_token, last_token))
            return _stored(purged)

        self._store.update(DELETIONS, Cell(_row(table), _NODE + node.encode()), with_it)

    def left(self, table: TableRef, gc_grace_s: int, now_ms: int, node: str | None = None) -> Left | None:
        """Return what is left on a node; without a node, what is left on one that was never compacted."""
        return _left(*self._read(table, node), gc_grace_s, now_ms)

    def forget(self, table: TableRef) -> None:
        """Remove the statistics of a table."""
        self._store.remove(DELETIONS, self._store.read_rows(DELETIONS, [_row(table)]))

    def _add(self, table: TableRef, counts: TableTally, day: int) -> None:
        began = False

        def with_them(current: bytes | None) -> bytes:
            nonlocal began
            began = current is None
            both = TableTally() if current is None else TableTally.of(json.loads(current))
            both.merge(counts)
            return _stored(both)

        self._store.update(DELETIONS, Cell(_row(table), _column(day)), with_them)
        if began:
            self._merge_old_days(table)

    def _merge_old_days(self, table: TableRef) -> None:
        """Merge the oldest days until the table has few enough.

        Two days become the later one, so that no tombstone counts as older than it is. If another process changes the
        row at the same time, the merge is left for the next day.
        """
        found = sorted(self._store.read_rows(DELETIONS, [_row(table)]).items())
        days = [(cell.column, value) for cell, value in found if cell.column.startswith(_DAY)]
        while len(days) > MOST_DAYS:
            (oldest, first), (later, second), *rest = days
            both = TableTally.of(json.loads(first))
            both.merge(TableTally.of(json.loads(second)))
            joined = _stored(both)
            changes = {oldest: Change(first, None), later: Change(second, joined)}
            if not self._store.compare_and_set(DELETIONS, _row(table), changes):
                return
            days = [(later, joined), *rest]

    def _read(self, table: TableRef, node: str | None) -> tuple[dict[int, TableTally], TableTally]:
        found = {cell.column: value for cell, value in self._store.read_rows(DELETIONS, [_row(table)]).items()}
        days = {
            int.from_bytes(column[1:], "big"): TableTally.of(json.loads(value))
            for column, value in found.items()
            if column.startswith(_DAY)
        }
        return days, _purged(found.get(_NODE + node.encode()) if node else None)


def _left(days: Mapping[int, TableTally], purged: TableTally, gc_grace_s: int, now_ms: int) -> Left | None:
    found, droppable, left_of = TableTally(), TableTally(), []
    for day, tally in sorted(days.items()):
        left, purged = tally.less(purged), purged.less(tally)
        if left.document():
            left_of.append(day)
            found.merge(left)
            if _droppable_from_ms(day, gc_grace_s) <= now_ms:
                droppable.merge(left)
    if not left_of:
        return None
    return Left(left_of[0] * DAY_MS, found, droppable, _droppable_from_ms(left_of[-1], gc_grace_s))


def _droppable_from_ms(day: int, gc_grace_s: int) -> int:
    """Return the time from which every tombstone of a day can be purged."""
    return (day + 1) * DAY_MS + gc_grace_s * 1000


def _purged(current: bytes | None) -> TableTally:
    """Return what compactions have purged on a node. The list that earlier versions stored there is ignored."""
    kept = json.loads(current) if current else {}
    return TableTally.of(kept) if isinstance(kept, dict) else TableTally()


def _stored(tally: TableTally) -> bytes:
    return json.dumps(tally.document(), separators=(",", ":")).encode()


def _row(table: TableRef) -> bytes:
    return sized(str(table).encode())


def _column(day: int) -> bytes:
    return _DAY + day.to_bytes(4, "big")


# ---------------------------------------------------------------------------------------------------------------------
# Token histograms: how much was deleted in which part of the token ring.
#
# A histogram has ranges of equal width and is as fine as its maximum size allows. It starts with one range per token.
# If there are more ranges than the maximum, all neighbours are merged until they fit. The result depends only on what
# was added, not on the order or on the distribution of work, so that every task keeps one and they are merged.
# ---------------------------------------------------------------------------------------------------------------------

RING_BITS = 64

Both = Callable[[Counter[int], Counter[int]], Counter[int]]


class DeletedRange(NamedTuple):
    """A token range, both ends included, with the number of deletes in it."""

    first_token: int
    last_token: int
    deleted: int


class TokenHistogram:
    """Deletes by token range."""

    def __init__(self, most_ranges: int = 4_096) -> None:
        if most_ranges < 1:
            raise BadValue("most_ranges", f"is {most_ranges}; it must be at least 1")
        self._most = most_ranges
        self._bits = RING_BITS
        self._deleted: Counter[int] = Counter()

    def add(self, token: int, count: int = 1) -> None:
        if not LEAST_TOKEN <= token <= GREATEST_TOKEN:
            raise BadValue("token", f"must be from {LEAST_TOKEN} to {GREATEST_TOKEN}")
        if count < 0:
            raise BadValue("count", f"{count} is negative; give the number of deletes")
        if count:
            self._deleted[_range_of(token, self._bits)] += count
            self._fit()

    def add_all(self, tokens: Collection[int]) -> None:
        """Add one delete for each token; several times as fast as adding them one by one."""
        if tokens and not (min(tokens) >= LEAST_TOKEN and max(tokens) <= GREATEST_TOKEN):
            raise BadValue("tokens", f"must be from {LEAST_TOKEN} to {GREATEST_TOKEN}")
        for part in chunks(tokens, 4 * self._most):
            shift = RING_BITS - self._bits
            self._deleted.update([(token - LEAST_TOKEN) >> shift for token in part])
            self._fit()

    def merge(self, other: TokenHistogram) -> None:
        """Add all deletes of another histogram; the smaller of the two maximum sizes applies."""
        both = self._with(other, add)
        self._most, self._bits, self._deleted = both._most, both._bits, both._deleted

    def less(self, other: TokenHistogram) -> TokenHistogram:
        """Return the difference to another histogram."""
        return self._with(other, sub)

    @property
    def deleted(self) -> int:
        return self._deleted.total()

    def deleted_between(self, first_token: int, last_token: int) -> int:
        """Return an upper bound of the deletes between two tokens: ranges that cross an end are counted in full."""
        first, last = _range_of(first_token, self._bits), _range_of(last_token, self._bits)
        return sum(count for number, count in self._deleted.items() if first <= number <= last)

    def within(self, first_token: int, last_token: int) -> TokenHistogram:
        """Return what a compaction between two tokens certainly purges: ranges that cross an end are omitted."""
        found = TokenHistogram(self._most)
        found._bits = self._bits
        for number, count in self._deleted.items():
            first, last, _ = _tokens_of(number, count, self._bits)
            if first_token <= first <= last <= last_token:
                found._deleted[number] = count
        return found

    def dense_ranges(self, at_least: int, bits: int = 16) -> list[DeletedRange]:
        """Split the ring into 2**bits parts, and return those with `at_least` deletes or more; neighbours are merged.

        Return nothing if `at_least` is zero or less. A coarser histogram uses its own ranges.
        """
        seen_at = min(bits, self._bits)
        counts = _coarser(self._deleted, self._bits - seen_at)
        dense = sorted((number, count) for number, count in counts.items() if 0 < at_least <= count)
        return _neighbours_joined(_tokens_of(number, count, seen_at) for number, count in dense)

    def document(self) -> dict[str, Any]:
        """Return the histogram as JSON values, for storage and for other tasks."""
        counts = [[number, count] for number, count in sorted(self._deleted.items())]
        return {"most_ranges": self._most, "bits": self._bits, "deleted": counts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TokenHistogram:
        histogram = cls(document["most_ranges"])
        histogram._bits = document["bits"]
        histogram._deleted = Counter(dict(document["deleted"]))
        return histogram

    def _with(self, other: TokenHistogram, both: Both) -> TokenHistogram:
        """Combine two histograms, both reduced to the width of the coarser one."""
        result = TokenHistogram(min(self._most, other._most))
        result._bits = min(self._bits, other._bits)
        result._deleted = both(
            _coarser(self._deleted, self._bits - result._bits), _coarser(other._deleted, other._bits - result._bits)
        )
        result._fit()
        return result

    def _fit(self) -> None:
        """Merge ranges until they fit. The step is found by bisection, because most single steps merge nothing."""
        if len(self._deleted) > self._most:
            fewest = 1 + bisect_left(range(1, self._bits + 1), True, key=self._would_fit)
            self._deleted = _coarser(self._deleted, fewest)
            self._bits -= fewest

    def _would_fit(self, by_bits: int) -> bool:
        return len({number >> by_bits for number in self._deleted}) <= self._most


def _range_of(token: int, bits: int) -> int:
    return (token - LEAST_TOKEN) >> (RING_BITS - bits)


def _tokens_of(number: int, count: int, bits: int) -> DeletedRange:
    width = 1 << (RING_BITS - bits)
    first = LEAST_TOKEN + number * width
    return DeletedRange(first, first + width - 1, count)


def _coarser(deleted: Counter[int], by_bits: int) -> Counter[int]:
    if not by_bits:
        return deleted
    counts: Counter[int] = Counter()
    for number, count in deleted.items():
        counts[number >> by_bits] += count
    return counts


def _neighbours_joined(ranges: Iterable[DeletedRange]) -> list[DeletedRange]:
    joined: list[DeletedRange] = []
    for each in ranges:
        if joined and joined[-1].last_token + 1 == each.first_token:
            before = joined.pop()
            each = DeletedRange(before.first_token, each.last_token, before.deleted + each.deleted)
        joined.append(each)
    return joined
