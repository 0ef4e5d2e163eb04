"""A store with something in its sweep queue, shard by shard, and what is left of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Self

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import SENTINEL_TS, Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store import StoreLocation, initialise_store
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.transactions import TransactionManager

CELLS = 20
TABLES = {strategy: TableRef.parse(f"app.{strategy}") for strategy in QUEUES}


class QueuedStore:
    """A batch of a Spark job holds what one transaction wrote, and conservative tables keep nothing. Histories are
    invented, so no clock is too far from them."""

    def __init__(self, url: str, shards: int, **settings: Any) -> None:
        self._shards = shards
        self.settings = Settings(
            store=url,
            retention_s=0,
            spark_batch_entries=CELLS,
            sqlite_busy_timeout_s=300,
            clock_step_max_s=0,
            **settings,
        )
        initialise_store(self.settings.store, self.settings)
        self.store = open_store(self.settings.store, self.settings)
        self.clock_history = ClockHistory(self.store)
        self.timestamps = TimestampService(self.store)
        self.progress = Progress(self.store)
        self.progress.raise_shards(shards)
        for strategy, table in TABLES.items():
            self.store.create_table(table, TableMetadata(strategy))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def settings_file(self) -> str:
        given = self.settings
        return (
            f'store = "{given.store}"\n'
            f"retention_s = {given.retention_s}\n"
            f"spark_batch_entries = {given.spark_batch_entries}\n"
            f"sqlite_busy_timeout_s = {given.sqlite_busy_timeout_s}\n"
            f"clock_step_max_s = {given.clock_step_max_s}\n"
        )

    def write(self, strategy: SweepStrategy, shard: int, times: int, clock: Clock | None = None) -> None:
        """Commit this many transactions, each of which writes the same cells of the shard, then take a clock sample."""
        with TransactionManager(self.store, self.settings, clock=clock, renew_leases=False) as manager:
            for number in range(times):
                with manager.transaction() as tx:
                    for row, column in self.cells(strategy, shard):
                        tx.put(TABLES[strategy], row, column, b"%d" % number)
        self.clock_history.record_now(self.timestamps, clock or SystemClock(), step_max_s=0)

    def cells(self, strategy: SweepStrategy, shard: int) -> list[Cell]:
        found = (Cell(b"row-%d" % number, b"column") for number in range(100 * self._shards))
        return [cell for cell in found if shard_of(TABLES[strategy], cell, self._shards) == shard][:CELLS]

    def versions(self, strategy: SweepStrategy, shard: int) -> set[tuple[bool, int]]:
        """Return if each cell of the shard has a sentinel, and its number of versions; one pair if all are alike."""
        kept = self.store.timestamps(TABLES[strategy], self.cells(strategy, shard))
        return {(SENTINEL_TS in found, len(set(found) - {SENTINEL_TS})) for found in kept.values()}

    def queue_is_empty(self) -> bool:
        return not self.store.scan_versions(QUEUE_CELLS).items

    @contextmanager
    def writers_blocked(self) -> Iterator[None]:
        """Block all writers; readers continue. For SQLite."""
        file = StoreLocation.parse(self.settings.store).path
        assert file
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")
