"""What sweeps have deleted, kept in the store: of a table a tally for every day, and for each node what is gone there.

By days, because a compaction drops a tombstone only when gc_grace has passed: one that runs today says nothing about
what was deleted yesterday. What it drops is counted when it is told of, in a tally of the node, and taken off whatever
the days come to: so it stays off when old days are put together. A compaction drops the oldest of a range first, so
what is off is off the oldest days. What is kept stays small: a tally has so many ranges at most, a table so many days.
Where that is too coarse, it errs on the side of showing too much.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import structlog

from sweep_tasks.encoding import sized
from sweep_tasks.errors import StoreError
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import DELETIONS
from sweep_tasks.sweep.tally import TableTally, Tally

log = structlog.get_logger(__name__)

DAY_MS = 86_400_000
MOST_DAYS = 32
_DAY, _NODE = b"d", b"n"


class Left(NamedTuple):
    """What sweeps have left in a table, as far as is known."""

    since_ms: int
    tally: TableTally
    droppable: TableTally
    """Of that, what is older than gc_grace."""
    all_from_ms: int
    """The moment from which all of it is."""


class Deletions:
    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, tally: Tally, now_ms: int) -> None:
        """Statistics: a store that can't take them now does not keep a sweep from going on."""
        for table, counts in tally:
            try:
                self._add(table, counts, now_ms // DAY_MS)
            except StoreError as error:
                log.warning(f"what was deleted from {table} is missing in the statistics of its ranges: {error}")

    def compacted(
        self, table: TableRef, node: str, gc_grace_s: int, at_ms: int, first_token: int, last_token: int
    ) -> None:
        """All files of a node that hold rows between these tokens, both included, were compacted together."""
        days, _ = self._read(table, None)

        def with_it(standing: bytes | None) -> bytes:
            gone = _gone(standing)
            if left := _left(days, gone, gc_grace_s, at_ms):
                gone.merge(left.droppable.within(first_token, last_token))
            return _stored(gone)

        self._store.update(DELETIONS, Cell(_row(table), _NODE + node.encode()), with_it)

    def left(self, table: TableRef, gc_grace_s: int, now_ms: int, node: str | None = None) -> Left | None:
        """What is left on this node, or on one that was never compacted if none is named."""
        return _left(*self._read(table, node), gc_grace_s, now_ms)

    def forget(self, table: TableRef) -> None:
        self._store.remove(DELETIONS, self._store.read_rows(DELETIONS, [_row(table)]))

    def _add(self, table: TableRef, counts: TableTally, day: int) -> None:
        began = False

        def with_them(standing: bytes | None) -> bytes:
            nonlocal began
            began = standing is None
            both = TableTally() if standing is None else TableTally.of(json.loads(standing))
            both.merge(counts)
            return _stored(both)

        self._store.update(DELETIONS, Cell(_row(table), _column(day)), with_them)
        if began:
            self._put_old_days_together(table)

    def _put_old_days_together(self, table: TableRef) -> None:
        """As the later of both: so that none is taken for older than it is. Who comes second leaves it for tomorrow."""
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
        return days, _gone(found.get(_NODE + node.encode()) if node else None)


def _left(days: Mapping[int, TableTally], gone: TableTally, gc_grace_s: int, now_ms: int) -> Left | None:
    found, droppable, left_of = TableTally(), TableTally(), []
    for day, tally in sorted(days.items()):
        left, gone = tally.less(gone), gone.less(tally)
        if left.document():
            left_of.append(day)
            found.merge(left)
            if _droppable_from_ms(day, gc_grace_s) <= now_ms:
                droppable.merge(left)
    if not left_of:
        return None
    return Left(left_of[0] * DAY_MS, found, droppable, _droppable_from_ms(left_of[-1], gc_grace_s))


def _droppable_from_ms(day: int, gc_grace_s: int) -> int:
    """When every tombstone of that day can go."""
    return (day + 1) * DAY_MS + gc_grace_s * 1000


def _gone(standing: bytes | None) -> TableTally:
    """From a node. Compactions used to be kept there, as a list; what those dropped shows once more."""
    kept = json.loads(standing) if standing else {}
    return TableTally.of(kept) if isinstance(kept, dict) else TableTally()


def _stored(tally: TableTally) -> bytes:
    return json.dumps(tally.document(), separators=(",", ":")).encode()


def _row(table: TableRef) -> bytes:
    return sized(str(table).encode())


def _column(day: int) -> bytes:
    return _DAY + day.to_bytes(4, "big")
