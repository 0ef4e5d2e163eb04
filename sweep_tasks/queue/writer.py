"""Writes to the queue: adds entries before a transaction writes its values, and removes them when they are swept.

Both use an order of writes in which a crash leaves work to repeat, but never loses an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice

import mmh3

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import EXIT_BAD_INPUT, LimitExceeded
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
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
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS

# ---------------------------------------------------------------------------------------------------------------------
# Adding the entries of a transaction, before its values are written.
#
# Order: the mark of the partition, then the shared row (the entries, or a reference to dedicated rows), then the
# dedicated rows. A sweep that finds a reference deletes all the rows it names and treats missing rows as empty, so a
# writer that stops in between leaves nothing that a sweep can't find.
# ---------------------------------------------------------------------------------------------------------------------

_PRESENT = b""
_SHARDS_CACHED_MS = 60_000
_MARKED_PARTITIONS = 10_000
_DUMMY = write_bytes(0, Cell(b"0", b"0"), False)
"""The value of a reference: only its write index is read."""

Writes = Mapping[TableRef, Mapping[Cell, bytes]]
Put = Callable[[int, Writes], None]
Queue = tuple[SweepStrategy, int]
"""A strategy and a shard. Each pair has its own queue."""


def shard_of(table: TableRef, cell: Cell, shards: int) -> int:
    """Return the shard that a cell's entries are written to: a hash of the table and the cell."""
    if shards == 1:
        return 0
    return mmh3.hash(b"\0".join((str(table).encode(), *cell)), 0, signed=False) % shards


class QueueWriter:
    """Adds and withdraws the entries of transactions. A transaction manager uses one as its queue."""

    def __init__(self, store: Store, ids: TableIds | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._ids = ids or TableIds(store)
        self._progress = Progress(store)
        self._clock = clock or SystemClock()
        self._shards = 1
        self._shards_expire_ms = 0
        self._marked: set[tuple[Queue, int]] = set()
        """A cache of marked partitions. A partition that a sweep has cleaned since is below the published threshold, so
        the threshold check after enqueuing aborts a transaction that relied on a stale entry of this cache."""

    def enqueue(self, start: int, writes: Writes, tables: Mapping[TableRef, TableMetadata], late: bool = False) -> None:
        """Add the entries of a transaction. With `late`, they are stored so that they are readable even if sweeps have
        already passed the start timestamp."""
        put = self._store.put_late if late else self._store.put
        queued = self._by_target(writes, tables)
        for target, entries in queued.items():
            if len(entries) > DEDICATED_WRITES * MAX_DEDICATED_ROWS:
                most = DEDICATED_WRITES * MAX_DEDICATED_ROWS
                raise LimitExceeded(
                    f"transaction: {len(entries)} writes belong to shard {target[1]}, at most {most} are allowed; "
                    "split the transaction, or raise the number of shards",
                    exit_code=EXIT_BAD_INPUT,
                    shard=target[1],
                    writes=len(entries),
                    most=most,
                )
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

    def _by_target(self, writes: Writes, tables: Mapping[TableRef, TableMetadata]) -> dict[Queue, list[bytes]]:
        shards = self._known_shards()
        queued: dict[Queue, list[bytes]] = {}
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
        """Return the number of shards, at most a minute old. It never falls, and existing shards are always swept, so a
        writer may use a lower number than the current one."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._shards_expire_ms:
            self._shards, self._shards_expire_ms = self._progress.shards(), now_ms + _SHARDS_CACHED_MS
        return self._shards

    def _mark_partition(self, start: int, targets: Mapping[Queue, object], put: Put) -> None:
        unmarked = [target for target in targets if (target, fine(start)) not in self._marked]
        if unmarked:
            column = var_long(fine(start))
            cells = {Cell(timestamps_row(shard, coarse(start), strategy), column) for strategy, shard in unmarked}
            # The same timestamp for every transaction, so that a partition's mark is one version.
            put(fine(start) * FINE, {QUEUE_TIMESTAMPS: dict.fromkeys(cells, _PRESENT)})
            if len(self._marked) > _MARKED_PARTITIONS:
                self._marked.clear()
            self._marked.update((target, fine(start)) for target in unmarked)

    def _fill_dedicated(self, start: int, target: Queue, entries: list[bytes], put: Put) -> None:
        remaining = iter(entries)
        for row in dedicated_rows(start, *target, _rows_for(entries)):
            part = enumerate(islice(remaining, DEDICATED_WRITES))
            values = {Cell(row, cells_column(start % FINE, index)): value for index, value in part}
            put(start, {QUEUE_CELLS: values})

    def withdraw(self, start: int, writes: Writes, tables: Mapping[TableRef, TableMetadata]) -> None:
        """Remove the entries of an aborted transaction. Dedicated rows first: the reference leads to them."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Removing swept entries from the queue, so that a crash in between leaves work to repeat and no unreachable row.
#
# Order: dedicated rows, then the shared row that refers to them, then the mark that leads to the shared row.
# ---------------------------------------------------------------------------------------------------------------------


class QueueCleaner:
    """Removes rows of one strategy and shard from the queue."""

    def __init__(self, store: Store, strategy: SweepStrategy, shard: int) -> None:
        self._store = store
        self._strategy = strategy
        self._shard = shard

    def clean(self, dedicated: Collection[bytes], partitions: Collection[int]) -> None:
        """Remove dedicated rows and whole fine partitions."""
        if dedicated:
            self._store.delete_rows(QUEUE_CELLS, dedicated)
        if partitions:
            self._store.delete_rows(
                QUEUE_CELLS, [shared_row(partition, self._strategy, self._shard) for partition in partitions]
            )
            marks = [self._mark(partition) for partition in partitions]
            self._store.delete_ranges(QUEUE_TIMESTAMPS, [VersionRange(mark, SENTINEL_TS, MAX_TS) for mark in marks])

    def _mark(self, partition: int) -> Cell:
        return Cell(timestamps_row(self._shard, coarse(partition * FINE), self._strategy), var_long(partition))
