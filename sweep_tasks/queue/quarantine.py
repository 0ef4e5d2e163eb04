"""Entries that can't be judged, set aside with the reason so that the shard goes on.

An entry is set aside before its row is cleaned, with its bytes and its place, so that it can be judged anew once the
cause is gone (a table that was restored, a version that can read it).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from sweep_tasks.encoding import read_sized, read_var_long, read_var_signed_long, sized, var_long, var_signed_long
from sweep_tasks.model import MAX_TS, Cell, SweepStrategy, VersionRange
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.system import QUARANTINE
from sweep_tasks.timestamps.service import TimestampService

_PAGE = 1_000
_NO_START = -1


class Quarantined(NamedTuple):
    strategy: SweepStrategy
    shard: int
    start: int | None
    place: Cell
    value: bytes
    reason: str

    @property
    def cell(self) -> Cell:
        row = bytes([QUEUES.index(self.strategy)]) + var_long(self.shard)
        return Cell(row, sized(self.place.row) + self.place.column)


class Quarantine:
    def __init__(self, store: Store, timestamps: TimestampService) -> None:
        self._store = store
        self._timestamps = timestamps

    def add(self, entries: Collection[Quarantined]) -> None:
        if entries:
            values = {entry.cell: _encoded(entry) for entry in entries}
            self._store.put(self._timestamps.fresh(), {QUARANTINE: values})

    def remove(self, entries: Collection[Quarantined]) -> None:
        if entries:
            self._store.delete_ranges(QUARANTINE, [VersionRange(entry.cell, 0, MAX_TS) for entry in entries])

    def all(self) -> Iterator[Quarantined]:
        found = every(lambda after: self._store.scan(QUARANTINE, MAX_TS, limit=_PAGE, after=after))
        return (_decoded(cell, version.value) for cell, version in found)


def _encoded(entry: Quarantined) -> bytes:
    start = _NO_START if entry.start is None else entry.start
    return var_signed_long(start) + sized(entry.reason.encode()) + entry.value


def _decoded(cell: Cell, value: bytes) -> Quarantined:
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
