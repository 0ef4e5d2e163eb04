"""Announcing a transaction's writes, before they are made.

Order: which partition, then the shared row (the entries, or a reference to dedicated rows), then the dedicated rows.
A sweeper that finds a reference deletes all the rows it names and takes missing ones for empty, so whoever dies in
between leaves nothing that can't be found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

import mmh3

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import TransactionTooLarge
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import (
    DEDICATED_WRITES,
    FINE,
    MAX_DEDICATED_ROWS,
    SHARED_WRITES,
    cells_column,
    coarse,
    dedicated_rows,
    fine,
    shared_row,
    timestamps_row,
    write_bytes,
)
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import QUEUE_CELLS, QUEUE_TIMESTAMPS

_PRESENT = b""
_REMEMBERED_MS = 60_000
_MARKED_PARTITIONS = 10_000
_DUMMY = write_bytes(0, Cell(b"0", b"0"), False)
"""The value of a reference: only its write index is read."""

Writes = Mapping[TableRef, Mapping[Cell, bytes]]
Put = Callable[[int, Writes], None]
Target = tuple[SweepStrategy, int]
"""A strategy and a shard: one of the queues that the queue is made of."""


def shard_of(table: TableRef, cell: Cell, shards: int) -> int:
    if shards == 1:
        return 0
    return mmh3.hash(b"\0".join((str(table).encode(), *cell)), 0, signed=False) % shards


class QueueWriter:
    """What a transaction manager is given as its queue."""

    def __init__(self, store: Store, ids: TableIds | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._ids = ids or TableIds(store)
        self._progress = Progress(store)
        self._clock = clock or SystemClock()
        self._shards = 1
        self._look_again_ms = 0
        self._marked: set[tuple[Target, int]] = set()
        """Partitions known to be marked. One that a sweep has cleaned since is below the published threshold, so the
        look that follows enqueuing aborts whoever relied on this memory."""

    def enqueue(self, start: int, writes: Writes, tables: Mapping[TableRef, TableMetadata], late: bool = False) -> None:
        """`late` is for a writer that sweeps have passed and that is to be found nevertheless."""
        put = self._store.put_late if late else self._store.put
        queued = self._by_target(writes, tables)
        for target, entries in queued.items():
            if len(entries) > DEDICATED_WRITES * MAX_DEDICATED_ROWS:
                raise TransactionTooLarge(target[1], len(entries), DEDICATED_WRITES * MAX_DEDICATED_ROWS)
        self._mark_partition(start, queued, put)
        modulus = start % FINE
        shared: dict[Cell, bytes] = {}
        for target, entries in queued.items():
            row = shared_row(fine(start), *target)
            if len(entries) > SHARED_WRITES:
                shared[Cell(row, cells_column(modulus, -_rows_for(entries)))] = _DUMMY
            else:
                shared.update({Cell(row, cells_column(modulus, index)): value for index, value in enumerate(entries)})
        if shared:
            put(start, {QUEUE_CELLS: shared})
        for target, entries in queued.items():
            if len(entries) > SHARED_WRITES:
                self._fill_dedicated(start, target, entries, put)

    def _by_target(self, writes: Writes, tables: Mapping[TableRef, TableMetadata]) -> dict[Target, list[bytes]]:
        shards = self._known_shards()
        queued: dict[Target, list[bytes]] = {}
        for table, values in writes.items():
            strategy = tables[table].strategy
            if strategy is SweepStrategy.NOTHING:
                continue
            table_id = self._ids.id_of(table)
            for cell, value in values.items():
                target = strategy, shard_of(table, cell, shards)
                queued.setdefault(target, []).append(write_bytes(table_id, cell, not value))
        return queued

    def _known_shards(self) -> int:
        """There are never fewer, and those that there were are swept for ever: who knows of fewer does no harm."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._look_again_ms:
            self._shards, self._look_again_ms = self._progress.shards(), now_ms + _REMEMBERED_MS
        return self._shards

    def _mark_partition(self, start: int, targets: Mapping[Target, object], put: Put) -> None:
        unmarked = [target for target in targets if (target, fine(start)) not in self._marked]
        if unmarked:
            column = var_long(fine(start))
            cells = {Cell(timestamps_row(shard, coarse(start), strategy), column) for strategy, shard in unmarked}
            # One version a partition, however many transactions mark it.
            put(fine(start) * FINE, {QUEUE_TIMESTAMPS: dict.fromkeys(cells, _PRESENT)})
            if len(self._marked) > _MARKED_PARTITIONS:
                self._marked.clear()
            self._marked.update((target, fine(start)) for target in unmarked)

    def _fill_dedicated(self, start: int, target: Target, entries: list[bytes], put: Put) -> None:
        remaining = iter(entries)
        for row in dedicated_rows(start, *target, _rows_for(entries)):
            part = enumerate(islice(remaining, DEDICATED_WRITES))
            values = {Cell(row, cells_column(start % FINE, index)): value for index, value in part}
            put(start, {QUEUE_CELLS: values})

    def withdraw(self, start: int, writes: Writes, tables: Mapping[TableRef, TableMetadata]) -> None:
        """Take the entries of an aborted transaction back. Dedicated rows first: the reference leads to them."""
        rows: list[bytes] = []
        columns: list[tuple[Cell, int]] = []
        for target, entries in self._by_target(writes, tables).items():
            shared = shared_row(fine(start), *target)
            if len(entries) > SHARED_WRITES:
                rows += dedicated_rows(start, *target, _rows_for(entries))
                indexes = range(-_rows_for(entries), -_rows_for(entries) + 1)
            else:
                indexes = range(len(entries))
            columns += [(Cell(shared, cells_column(start % FINE, index)), start) for index in indexes]
        if rows:
            self._store.delete_rows(QUEUE_CELLS, rows)
        if columns:
            self._store.delete_versions(QUEUE_CELLS, columns)


def _rows_for(entries: list[bytes]) -> int:
    return -(-len(entries) // DEDICATED_WRITES)
