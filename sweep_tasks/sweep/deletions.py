"""What sweeps have deleted, kept in the store: of each table a tally for every day, and what was compacted since.

By days, because a compaction drops a tombstone only when gc_grace has passed: one that runs today says nothing about
what was deleted yesterday. What is kept stays small: a tally has so many ranges at most, a table so many days, of which
the oldest are put together, and a node so many compactions, of which the oldest are forgotten. Each of that errs on the
side of showing too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import structlog

from sweep_tasks.encoding import sized
from sweep_tasks.errors import StoreError
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN, Cell, TableRef
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import DELETIONS
from sweep_tasks.sweep.tally import TableTally, Tally

log = structlog.get_logger(__name__)

DAY_MS = 86_400_000
MOST_DAYS = 32
MOST_COMPACTIONS = 64
_DAY, _NODE = b"d", b"n"


class Compacted(NamedTuple):
    """All files of a node that hold rows between these tokens, both included, were compacted together."""

    first_token: int
    last_token: int
    at_ms: int

    def drops(self, day: int, gc_grace_s: int) -> bool:
        """Whether every tombstone of that day could go."""
        return (day + 1) * DAY_MS + gc_grace_s * 1000 <= self.at_ms


class Left(NamedTuple):
    """What sweeps have left in a table, as far as is known."""

    since_ms: int
    tally: TableTally
    droppable: TableTally
    """Of that, what is older than gc_grace."""


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

    def compacted(self, table: TableRef, node: str, at_ms: int, first_token: int, last_token: int) -> None:
        done = Compacted(first_token, last_token, at_ms)

        def with_it(standing: bytes | None) -> bytes:
            before = _compactions(standing)
            newest = sorted({*before, done}, key=lambda each: each.at_ms)[-MOST_COMPACTIONS:]
            return json.dumps(newest).encode()

        self._store.update(DELETIONS, Cell(_row(table), _NODE + node.encode()), with_it)

    def left(self, table: TableRef, gc_grace_s: int, now_ms: int, node: str | None = None) -> Left | None:
        """What is left on this node, or on one that was never compacted if none is named."""
        days, compactions = self._read(table, node)
        whole = Compacted(LEAST_TOKEN, GREATEST_TOKEN, now_ms)
        found, droppable, since = TableTally(), TableTally(), None
        for day, tally in sorted(days.items()):
            for done in compactions:
                if done.drops(day, gc_grace_s):
                    tally = tally.without(done.first_token, done.last_token)
            if tally.document():
                since = day if since is None else since
                found.merge(tally)
                if whole.drops(day, gc_grace_s):
                    droppable.merge(tally)
        return None if since is None else Left(since * DAY_MS, found, droppable)

    def forget(self, table: TableRef) -> None:
        self._store.remove(DELETIONS, self._store.read_rows(DELETIONS, [_row(table)]))

    def _add(self, table: TableRef, counts: TableTally, day: int) -> None:
        began = False

        def with_them(standing: bytes | None) -> bytes:
            nonlocal began
            began = standing is None
            both = TableTally() if standing is None else TableTally.of(json.loads(standing))
            both.merge(counts)
            return json.dumps(both.document(), separators=(",", ":")).encode()

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
            joined = json.dumps(both.document(), separators=(",", ":")).encode()
            changes = {oldest: Change(first, None), later: Change(second, joined)}
            if not self._store.compare_and_set(DELETIONS, _row(table), changes):
                return
            days = [(later, joined), *rest]

    def _read(self, table: TableRef, node: str | None) -> tuple[dict[int, TableTally], Iterable[Compacted]]:
        found = {cell.column: value for cell, value in self._store.read_rows(DELETIONS, [_row(table)]).items()}
        days = {
            int.from_bytes(column[1:], "big"): TableTally.of(json.loads(value))
            for column, value in found.items()
            if column.startswith(_DAY)
        }
        return days, _compactions(found.get(_NODE + node.encode())) if node else []


def _compactions(standing: bytes | None) -> list[Compacted]:
    return [Compacted(*each) for each in json.loads(standing)] if standing else []


def _row(table: TableRef) -> bytes:
    return sized(str(table).encode())


def _column(day: int) -> bytes:
    return _DAY + day.to_bytes(4, "big")
