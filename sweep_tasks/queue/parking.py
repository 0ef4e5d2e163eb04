"""Entries that leave the queue before they are finished: parked entries and quarantined entries.

A shard's progress never waits for a protection, a retention, a paused table or a slow writer. The entry is parked under
the reason that holds it, and the shard continues. Parked entries of a shard share a row and sort by reason, so that
those that are not due are skipped: the first entry under a reason shows whether the others need to be read.

An entry that can't be read is quarantined instead, with the reason, its bytes and its place in the queue. It is stored
there before its queue row is cleaned, so that it can be judged again when the cause is fixed (a table that was
restored, a version that can read it).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import (
    read_sized,
    read_var_long,
    read_var_signed_long,
    sized,
    var_long,
    var_signed_long,
)
from sweep_tasks.model import EVERYTHING, MAX_TS, Cell, Span, SweepStrategy, VersionRange
from sweep_tasks.queue.encoding import checked_shard
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.schema import PARKED, QUARANTINE


class HoldReason(IntEnum):
    """The reason that holds a parked entry. The numbers are stored, and parked entries sort by them."""

    REPLICAS = 0
    """Sorts first, so that an entry that a run moves here is not read and attempted again by the same run."""
    GRACE = 1
    PROTECTED = 2
    RETENTION = 3
    PAUSED = 4


_TABLE_HOLDS = (HoldReason.RETENTION, HoldReason.PAUSED)


class Hold(NamedTuple):
    """What a parked entry waits for: a wall-clock time in milliseconds, a protection record at a timestamp, a table's
    retention, a paused table to be resumed, or all replicas to be available, which only another attempt shows."""

    why: HoldReason
    until_ms: int = 0
    record: str = ""
    record_ts: int = 0
    table_id: int = 0

    def encoded(self) -> bytes:
        if self.why is HoldReason.PROTECTED:
            rest = sized(self.record.encode()) + var_long(self.record_ts)
        elif self.why in _TABLE_HOLDS:
            rest = var_long(self.table_id)
        elif self.why is HoldReason.GRACE:
            rest = var_long(self.until_ms)
        else:
            rest = b""
        return bytes([self.why]) + rest


WAITING_FOR_REPLICAS = Hold(HoldReason.REPLICAS)


class ParkedEntry(NamedTuple):
    """A judged entry, the hold that it waits for, and the outcome of its transaction."""

    hold: Hold
    table_id: int
    cell: Cell
    start: int
    commit: int
    delete: bool

    def column(self) -> bytes:
        """Return the column that it is stored under. Within a hold, entries sort by start timestamp."""
        return _column(self.hold.encoded(), var_long(self.start), self.table_id, self.cell)


def _column(hold: bytes, start: bytes, table_id: int, cell: Cell) -> bytes:
    return hold + start + var_long(table_id) + sized(cell.row) + cell.column


_FLAGS = bytes([False]), bytes([True])


class _Memo(dict[int, bytes]):
    """Integers that were encoded before."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, number: int) -> bytes:
        encoded = self[number] = self._encode(number)
        return encoded


class ParkedPage(NamedTuple):
    """A page of parked entries."""

    entries: list[ParkedEntry]
    as_of: int
    """Entries that were parked at a later timestamp are not in this page."""

    @property
    def holds(self) -> dict[Hold, ParkedEntry]:
        """Return the first entry of the page under each hold."""
        found: dict[Hold, ParkedEntry] = {}
        for entry in self.entries:
            found.setdefault(entry.hold, entry)
        return found


class Parking:
    """The parked entries of one shard."""

    def __init__(self, store: Store, timestamps: TimestampService, strategy: SweepStrategy, shard: int) -> None:
        self._store = store
        self._timestamps = timestamps
        self._row = strategy.value.encode() + b":" + var_long(checked_shard(shard))

    def park(self, entries: Collection[ParkedEntry]) -> None:
        """Store entries at a fresh timestamp, above that of every earlier removal: an entry may be parked again under a
        hold that it was removed from before."""
        if entries:
            self._store.put(self._timestamps.fresh(), {PARKED: dict(self._encoded(entries))})

    def _encoded(self, entries: Iterable[ParkedEntry]) -> Iterator[tuple[Cell, bytes]]:
        """Yield the cell and the value of each entry. Many entries share a hold and a transaction, so each of these is
        encoded once."""
        row = self._row
        starts, outcomes = _Memo(var_long), _Memo(var_signed_long)
        under: dict[Hold, bytes] = {}
        for hold, table_id, cell, start, commit, delete in entries:
            if hold not in under:
                under[hold] = hold.encoded()
            yield Cell(row, _column(under[hold], starts[start], table_id, cell)), _FLAGS[delete] + outcomes[commit]

    def remove(self, entries: Collection[ParkedEntry], as_of: int = MAX_TS - 1) -> None:
        """Remove entries as they were read. One that was parked again since, under the same hold, stays."""
        if entries:
            ranges = [VersionRange(cell, 0, as_of + 1) for cell, _ in self._encoded(entries)]
            self._store.delete_ranges(PARKED, ranges)

    def page(self, after: bytes, limit: int, within: Span = EVERYTHING) -> ParkedPage:
        """Return the entries after a column, in order."""
        span = Span(max(within.start, after + b"\0" if after else b""), within.end)
        if span.end and span.start >= span.end:
            return ParkedPage([], 0)
        found = self._store.scan(PARKED, MAX_TS, Span.only(self._row), span, limit).items
        entries = [_decoded_parked(cell.column, version.value) for cell, version in found]
        return ParkedPage(entries, max((version.ts for _, version in found), default=0))

    def all(self, page: int = 1_000) -> Iterator[ParkedEntry]:
        """Yield every parked entry of the shard, in order."""
        after = b""
        while entries := self.page(after, page).entries:
            yield from entries
            after = entries[-1].column()

    def entries_of_cell(self, table_id: int, cell: Cell, starts: Collection[int], most: int) -> list[ParkedEntry]:
        """Return the parked entries of one cell: those with one of `starts`, and others only if they are among the
        first `most` of the shard. Each hold is found by reading its first entry and skipping the rest."""
        first = list(islice(self.all(), most))
        found = [entry for entry in first if (entry.table_id, entry.cell) == (table_id, cell)]
        if len(first) == most:
            after = first[-1].column()
            holds = {first[-1].hold}
            while page := self.page(after, 1).entries:
                holds.add(page[0].hold)
                after = self.behind(page[0].hold)
            wanted = [ParkedEntry(hold, table_id, cell, start, 0, False) for hold in holds for start in starts]
            read = self._store.get(PARKED, {Cell(self._row, each.column()): MAX_TS for each in wanted})
            found += [_decoded_parked(place.column, version.value) for place, version in read.items()]
        return list(dict.fromkeys(found))

    @staticmethod
    def started(hold: Hold, since: int, before: int) -> Span:
        """Return the columns of entries under this hold with `since <= start < before`."""
        under = hold.encoded()
        return Span(under + var_long(since), under + var_long(before))

    @staticmethod
    def behind(hold: Hold) -> bytes:
        """Return a column that sorts after every entry under this hold."""
        return hold.encoded() + b"\xff" * 10


def all_parked(store: Store, most: int) -> dict[tuple[SweepStrategy, int], list[ParkedEntry]] | None:
    """Return the parked entries of all shards with a single scan, or None if there are more than `most`."""
    page = store.scan(PARKED, MAX_TS, limit=most)
    if page.resume is not None:
        return None
    found: dict[tuple[SweepStrategy, int], list[ParkedEntry]] = {}
    for cell, version in page.items:
        name, _, shard = cell.row.partition(b":")
        queue = SweepStrategy(name.decode()), read_var_long(shard)[0]
        found.setdefault(queue, []).append(_decoded_parked(cell.column, version.value))
    return found


def _decoded_parked(column: bytes, value: bytes) -> ParkedEntry:
    hold, at = _decoded_hold(column)
    start, at = read_var_long(column, at)
    table_id, at = read_var_long(column, at)
    row, at = read_sized(column, at)
    commit, _ = read_var_signed_long(value, 1)
    return ParkedEntry(hold, table_id, Cell(row, column[at:]), start, commit, bool(value[0]))


def _decoded_hold(column: bytes) -> tuple[Hold, int]:
    why = HoldReason(column[0])
    if why is HoldReason.PROTECTED:
        record, at = read_sized(column, 1)
        ts, at = read_var_long(column, at)
        return Hold(why, record=record.decode(), record_ts=ts), at
    if why is HoldReason.REPLICAS:
        return WAITING_FOR_REPLICAS, 1
    number, at = read_var_long(column, 1)
    return (Hold(why, table_id=number) if why in _TABLE_HOLDS else Hold(why, until_ms=number)), at


# ---------------------------------------------------------------------------------------------------------------------
# Quarantined entries: those that can't be read.
# ---------------------------------------------------------------------------------------------------------------------

_PAGE = 1_000
_NO_START = -1


class Quarantined(NamedTuple):
    """A queue entry that could not be read, with its bytes, its place in the queue and the reason."""

    strategy: SweepStrategy
    shard: int
    start: int | None
    place: Cell
    value: bytes
    reason: str

    @property
    def cell(self) -> Cell:
        """Return the cell of the quarantine table that it is stored in."""
        row = bytes([QUEUES.index(self.strategy)]) + var_long(self.shard)
        return Cell(row, sized(self.place.row) + self.place.column)


class Quarantine:
    """The quarantined entries of all shards."""

    def __init__(self, store: Store, timestamps: TimestampService) -> None:
        self._store = store
        self._timestamps = timestamps

    def add(self, entries: Collection[Quarantined]) -> None:
        if entries:
            values = {entry.cell: _encoded_quarantined(entry) for entry in entries}
            self._store.put(self._timestamps.fresh(), {QUARANTINE: values})

    def remove(self, entries: Collection[Quarantined]) -> None:
        if entries:
            self._store.delete_ranges(QUARANTINE, [VersionRange(entry.cell, 0, MAX_TS) for entry in entries])

    def all(self) -> Iterator[Quarantined]:
        found = every(lambda after: self._store.scan(QUARANTINE, MAX_TS, limit=_PAGE, after=after))
        return (_decoded_quarantined(cell, version.value) for cell, version in found)


def _encoded_quarantined(entry: Quarantined) -> bytes:
    start = _NO_START if entry.start is None else entry.start
    return var_signed_long(start) + sized(entry.reason.encode()) + entry.value


def _decoded_quarantined(cell: Cell, value: bytes) -> Quarantined:
    shard, _ = read_var_long(cell.row, 1)
    row, at = read_sized(cell.column)
    start, value_at = read_var_signed_long(value)
    reason, value_at = read_sized(value, value_at)
    return Quarantined(
        QUEUES[cell.row[0]],
        shard,
        None if start == _NO_START else start,
        Cell(row, cell.column[at:]),
        value[value_at:],
        reason.decode(),
    )
