"""Entries that were judged and must be judged again: parked, each under the reason that holds it.

A shard's progress never waits for a protection, a retention, a paused table or a slow writer: the entry is parked and
the shard goes on. Parked entries of a shard share a row and sort by reason, so that those which are not due are skipped
over: one look at the first entry under a reason tells whether the rest need be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

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
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import PARKED
from sweep_tasks.timestamps.service import TimestampService


class Why(IntEnum):
    REPLICAS = 0
    """Comes first: what a sweep lets go elsewhere and parks here, it does not meet again and try at once."""
    GRACE = 1
    PROTECTED = 2
    RETENTION = 3
    PAUSED = 4


_OF_A_TABLE = (Why.RETENTION, Why.PAUSED)


class Hold(NamedTuple):
    """What an entry waits for: a wall-clock time in milliseconds, a record at a timestamp, a table's retention, that a
    table is swept again, or that all replicas are there, which only another try can tell."""

    why: Why
    until_ms: int = 0
    record: str = ""
    record_ts: int = 0
    table_id: int = 0

    def encoded(self) -> bytes:
        if self.why is Why.PROTECTED:
            rest = sized(self.record.encode()) + var_long(self.record_ts)
        elif self.why in _OF_A_TABLE:
            rest = var_long(self.table_id)
        elif self.why is Why.GRACE:
            rest = var_long(self.until_ms)
        else:
            rest = b""
        return bytes([self.why]) + rest


WAITING_FOR_REPLICAS = Hold(Why.REPLICAS)


class ParkedEntry(NamedTuple):
    hold: Hold
    table_id: int
    cell: Cell
    start: int
    commit: int
    delete: bool

    def column(self) -> bytes:
        """Within a hold by start timestamp: what is old enough comes first."""
        entry = var_long(self.start) + var_long(self.table_id) + sized(self.cell.row) + self.cell.column
        return self.hold.encoded() + entry


class ParkedPage(NamedTuple):
    entries: list[ParkedEntry]
    as_of: int
    """What was parked later than this has not been seen."""


class Parking:
    """The parked entries of one shard."""

    def __init__(self, store: Store, timestamps: TimestampService, strategy: SweepStrategy, shard: int) -> None:
        self._store = store
        self._timestamps = timestamps
        self._row = strategy.value.encode() + b":" + var_long(checked_shard(shard))

    def park(self, entries: Collection[ParkedEntry]) -> None:
        """Stored at a fresh timestamp, above that of every removal before: an entry may come back under a hold it was
        once released from."""
        if entries:
            values = {
                Cell(self._row, entry.column()): bytes([entry.delete]) + var_signed_long(entry.commit)
                for entry in entries
            }
            self._store.put(self._timestamps.fresh(), {PARKED: values})

    def remove(self, entries: Collection[ParkedEntry], as_of: int = MAX_TS - 1) -> None:
        """As they were seen: one that somebody has parked again since, under the same hold, stays."""
        if entries:
            cells = [Cell(self._row, entry.column()) for entry in entries]
            self._store.delete_ranges(PARKED, [VersionRange(cell, 0, as_of + 1) for cell in cells])

    def page(self, after: bytes, limit: int, within: Span = EVERYTHING) -> ParkedPage:
        """Entries behind a column, in order."""
        span = Span(max(within.start, after + b"\0" if after else b""), within.end)
        if span.end and span.start >= span.end:
            return ParkedPage([], 0)
        found = self._store.scan(PARKED, MAX_TS, Span.only(self._row), span, limit).items
        entries = [_decoded(cell.column, version.value) for cell, version in found]
        return ParkedPage(entries, max((version.ts for _, version in found), default=0))

    def all(self, page: int = 1_000) -> Iterator[ParkedEntry]:
        after = b""
        while entries := self.page(after, page).entries:
            yield from entries
            after = entries[-1].column()

    def of_cell(self, table_id: int, cell: Cell, starts: Collection[int], most: int) -> list[ParkedEntry]:
        """The entries of one cell: of these starts under every hold, and of others as far as they are among the first
        `most`. A hold is found by its first entry, and passed over then."""
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
            found += [_decoded(place.column, version.value) for place, version in read.items()]
        return list(dict.fromkeys(found))

    @staticmethod
    def started(hold: Hold, since: int, before: int) -> Span:
        """The columns of entries under this hold with `since <= start < before`."""
        under = hold.encoded()
        return Span(under + var_long(since), under + var_long(before))

    @staticmethod
    def behind(hold: Hold) -> bytes:
        """A column behind every entry under this hold."""
        return hold.encoded() + b"\xff" * 10


def all_parked(store: Store, most: int) -> dict[tuple[SweepStrategy, int], list[ParkedEntry]] | None:
    """Of every queue at once, in one call; None if there are more."""
    page = store.scan(PARKED, MAX_TS, limit=most)
    if page.resume is not None:
        return None
    found: dict[tuple[SweepStrategy, int], list[ParkedEntry]] = {}
    for cell, version in page.items:
        name, _, shard = cell.row.partition(b":")
        queue = SweepStrategy(name.decode()), read_var_long(shard)[0]
        found.setdefault(queue, []).append(_decoded(cell.column, version.value))
    return found


def _decoded(column: bytes, value: bytes) -> ParkedEntry:
    hold, at = _decoded_hold(column)
    start, at = read_var_long(column, at)
    table_id, at = read_var_long(column, at)
    row, at = read_sized(column, at)
    commit, _ = read_var_signed_long(value, 1)
    return ParkedEntry(hold, table_id, Cell(row, column[at:]), start, commit, bool(value[0]))


def _decoded_hold(column: bytes) -> tuple[Hold, int]:
    why = Why(column[0])
    if why is Why.PROTECTED:
        record, at = read_sized(column, 1)
        ts, at = read_var_long(column, at)
        return Hold(why, record=record.decode(), record_ts=ts), at
    if why is Why.REPLICAS:
        return WAITING_FOR_REPLICAS, 1
    number, at = read_var_long(column, 1)
    return (Hold(why, table_id=number) if why in _OF_A_TABLE else Hold(why, until_ms=number)), at
