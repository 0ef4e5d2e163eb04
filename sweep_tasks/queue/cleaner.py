"""Removing what is swept from the queue, so that a crash in between leaves work to repeat and nothing unfindable.

Order: dedicated rows, then the shared row that leads to them, then the mark that leads to the shared row.
"""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.encoding import var_long
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, SweepStrategy, VersionRange
from sweep_tasks.queue.encoding import FINE, coarse, shared_row, timestamps_row
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import QUEUE_CELLS, QUEUE_TIMESTAMPS


class QueueCleaner:
    def __init__(self, store: Store, strategy: SweepStrategy, shard: int) -> None:
        self._store = store
        self._strategy = strategy
        self._shard = shard

    def clean(self, dedicated: Collection[bytes], partitions: Collection[int]) -> None:
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
