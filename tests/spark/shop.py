"""A store with a lively past, written to and swept, and what a reader sees in it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.export_frames import read_export
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

ORDERS, CARTS, EMPTY, NOTES = (TableRef.parse(f"shop.{name}") for name in ("orders", "carts", "empty", "notes"))
REMOTE_ROOT = TableRef.parse("billing.bills")
TABLES = {
    ORDERS: TableMetadata(SweepStrategy.CONSERVATIVE),
    CARTS: TableMetadata(SweepStrategy.THOROUGH),
    EMPTY: TableMetadata(SweepStrategy.CONSERVATIVE),
    NOTES: TableMetadata(SweepStrategy.NOTHING),
    REMOTE_ROOT: TableMetadata(SweepStrategy.THOROUGH),
}
FILLED = [ORDERS, CARTS, NOTES, REMOTE_ROOT]
CELLS = [Cell(b"row-%02d" % (number // 3), b"column-%d" % (number % 3)) for number in range(60)]
View = dict[str, dict[Cell, bytes]]


class Shop:
    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.timestamps = TimestampService(store)
        self.manager = TransactionManager(store, settings, renew_leases=False)
        self.commits = CommitTable(store)

    @classmethod
    def opened(cls, store: Store, settings: Settings) -> Shop:
        for table, metadata in TABLES.items():
            Catalog(store).create(table, metadata)
        return cls(store, settings)

    def write(self, rng: random.Random, times: int, tables: list[TableRef] = FILLED) -> None:
        """Most commit; some abort or die after they have written. A third of all writes are deletes."""
        for _ in range(times):
            table = rng.choice(tables)
            cells = rng.sample(CELLS, rng.randint(1, 20))
            values = {cell: rng.choice((b"", b"%d" % rng.randrange(9), rng.randbytes(9))) for cell in cells}
            ends = rng.choice(("commits", "commits", "commits", "aborts", "dies"))
            if ends != "commits":
                self.left_behind(table, values, aborted=ends == "aborts")
                continue
            with self.manager.transaction() as tx:
                tx.put_many(table, {cell: value for cell, value in values.items() if value})
                tx.delete_many(table, [cell for cell, value in values.items() if not value])

    def left_behind(self, table: TableRef, values: dict[Cell, bytes], *, aborted: bool) -> int:
        """Values in the store that must not appear in any output."""
        start = self.timestamps.fresh()
        QueueWriter(self.store).enqueue(start, {table: values}, self.store.tables([table]))
        self.store.put(start, {table: values})
        if aborted:
            self.commits.decide(start, ABORTED)
        return start

    def committing(self, table: TableRef, values: dict[Cell, bytes]) -> int:
        """A live writer with written values: readers of them wait."""
        leases = Leases(self.store, ttl_s=3_600)
        lease = leases.take(self.timestamps.fresh(), "alice")
        start = self.timestamps.fresh()
        assert leases.stamp(lease, start)
        self.store.put(start, {table: values})
        return start

    def sweep(self) -> int:
        """As far as one may go now. How many cells were touched."""
        return sum(each.range_deletes for each in Sweeper(self.store, self.settings, SystemClock()).sweep())

    def threshold(self, table: TableRef) -> int:
        return Thresholds(self.store).of_tables([table])[table].for_readers

    def view(self, ts: int, tables: Iterable[TableRef]) -> View:
        """What a reader at this timestamp sees."""
        snapshot = self.manager.read_at(ts)
        return {str(table): found for table in tables if (found := dict(snapshot.scan(table)))}

    def held(self) -> int:
        return len(ProtectionCatalog(self.store).records())


def exported(spark: SparkSession, folder: Path) -> View:
    """What an export and those it builds on show; no cell twice."""
    view: View = {}
    for row in read_export(spark, folder).collect():
        cells = view.setdefault(row.table, {})
        cell = Cell(bytes(row.row), bytes(row.column))
        assert cell not in cells
        cells[cell] = bytes(row.value)
    return view
