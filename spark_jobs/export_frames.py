"""The frames of an export, and the workers that read the cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.frames import ddl
from spark_jobs.store_settings import WorkerStoreSettings
from spark_jobs.worker_errors import Batches, Worker, report_errors
from sweep_tasks.connections import borrow_store
from sweep_tasks.export.files import Export, ExportedCells, chain, present_since
from sweep_tasks.model import Cell, Version
from sweep_tasks.store.contract import Page, ScanRange
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.snapshot import Snapshot

# ---------------------------------------------------------------------------------------------------------------------
# The frames of an export. Each function is named after what comes out.
#
# A frame of **cells** is what a reader sees: a row for each cell that has a value, with the start timestamp of the
# transaction that wrote it. A frame of **changes** also has a row for each cell that no longer exists. A change is
# detected by the start timestamp alone, since no two writers share one. So it does not matter how a cell was removed,
# or whether its delete marker was swept since.
# ---------------------------------------------------------------------------------------------------------------------

CELLS = {"table": "string", "row": "binary", "column": "binary", "start": "long", "value": "binary"}
CHANGES = CELLS | {"deleted": "boolean"}
CELL = ("table", "row", "column")


def read_export(spark: SparkSession, folder: Path | str) -> DataFrame:
    """Return the cells as of the timestamp of an export, combined from its chain."""
    return cells_of(spark, chain(Path(folder).absolute()))


def cells_of(spark: SparkSession, exports: list[Export]) -> DataFrame:
    since = present_since(exports)
    links = [
        written(spark, export.data)
        .where(one_of([table for table, first in since.items() if first <= number]))
        .withColumn("link", F.lit(number))
        for number, export in enumerate(exports)
    ]
    if len(links) == 1:
        return links[0].where("NOT deleted").select(*CELLS)
    newest = F.max_by(F.struct("start", "value", "deleted"), "link").alias("newest")
    cells = reduce(DataFrame.unionByName, links).groupBy(*CELL).agg(newest)
    return cells.where("NOT newest.deleted").select(*CELL, "newest.start", "newest.value")


def one_of(tables: list[str]) -> Column:
    return F.col("table").isin(tables)


def few_files(changes: DataFrame) -> DataFrame:
    """Keep the changes of a table together, unless they are many: otherwise each of many tasks would write a small
    file."""
    return changes.hint("rebalance", "table")


def written(spark: SparkSession, data: Path) -> DataFrame:
    """Return the changes in the folder of one export."""
    return spark.read.schema(ddl(CHANGES)).parquet(str(data)).select(*CHANGES)


def all_new(cells: DataFrame) -> DataFrame:
    return cells.withColumn("deleted", F.lit(False)).select(*CHANGES)


def changes(before: DataFrame, now: DataFrame) -> DataFrame:
    """Return the changes that turn the cells of `before` into those of `now`."""
    was = before.select(*CELL, F.col("start").alias("was"))
    differs = ~F.col("start").eqNullSafe(F.col("was"))
    both = now.join(was, list(CELL), "full_outer").where(differs)
    return both.withColumn("deleted", F.col("start").isNull()).select(*CHANGES)


def counts_by_table(changes: DataFrame) -> dict[str, ExportedCells]:
    counted = changes.groupBy("table").agg(F.expr("count_if(NOT deleted)"), F.count_if("deleted"))
    return {table: ExportedCells(puts, deletes) for table, puts, deletes in counted.collect()}


# ---------------------------------------------------------------------------------------------------------------------
# The workers of an export: each reads ranges of tables, as of one timestamp.
#
# The reader checks every page: if a sweep has passed the timestamp, the page fails, and with it the job. So an export
# has exactly what a reader at that timestamp saw, or it does not exist.
# ---------------------------------------------------------------------------------------------------------------------

_CELLS = pa.schema(
    [
        ("table", pa.string()),
        ("row", pa.binary()),
        ("column", pa.binary()),
        ("start", pa.int64()),
        ("value", pa.binary()),
    ]
)


class ExportPart(NamedTuple):
    table: str
    scan_range: ScanRange


@dataclass(frozen=True, slots=True)
class ExportContext:
    store: WorkerStoreSettings
    at: int
    parts: list[ExportPart]


def reading(context: ExportContext) -> Worker:
    """Return a worker for a frame of numbers, each the index of a part. It yields cells."""

    @report_errors
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        settings = context.store.load()
        with (
            borrow_store(settings) as store,
            TransactionManager(store, settings, enqueue=False, renew_leases=False) as manager,
        ):
            snapshot = manager.read_at(context.at)
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield from _pages(snapshot, context.parts[number])

    return read


def _pages(snapshot: Snapshot, part: ExportPart) -> Iterator[pa.RecordBatch]:
    after: Cell | None = None
    while True:
        page: Page[tuple[Cell, Version], Cell] = snapshot.version_page(
            part.table, after=after, scan_range=part.scan_range
        )
        if page.items:
            yield _cells(part.table, page.items)
        after = page.resume
        if after is None:
            return


def _cells(table: str, found: list[tuple[Cell, Version]]) -> pa.RecordBatch:
    columns = [
        pa.array([table] * len(found), pa.string()),
        pa.array([cell.row for cell, _ in found], pa.binary()),
        pa.array([cell.column for cell, _ in found], pa.binary()),
        pa.array([version.ts for _, version in found], pa.int64()),
        pa.array([version.value for _, version in found], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CELLS)
