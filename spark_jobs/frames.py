"""The frames of a sweep, and what Spark does with them by itself. Each function is named after what comes out.

A frame of **entries** is what was read from the queue: a row for each entry, decoded, with its transaction's outcome
and its segment; a row for each reference to dedicated rows; and a row of totals for each thing that was read. A frame
of **results** is what was done: a row for each cell that was touched, and a row of totals for each Spark partition.
Totals are all that ever reaches the driver.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

ENTRIES = {
    "start": "long",
    "commit": "long",
    "table": "string",
    "table_id": "long",
    "row": "binary",
    "column": "binary",
    "delete": "boolean",
    "segment": "string",
    # Of an entry that can't be read; its row and column are those of the queue:
    "reason": "string",
    "value": "binary",
    # Of a reference:
    "dedicated_rows": "long",
    # Of totals:
    "worker": "string",
    "entries": "long",
    "unreadable": "long",
    "references": "long",
    "first": "long",
    "blocked": "long",
}

RESULTS = {
    "cell": "long",
    "ranged": "boolean",
    "sentinel": "boolean",
    # Of totals:
    "worker": "string",
    "range_deletes": "long",
    "sentinels": "long",
    "aborted_deletes": "long",
    "parked": "long",
    "unparked": "long",
    # Of the totals of a table:
    "table": "string",
    "writes": "long",
    "deletes": "long",
    "deleted": "string",
}

CELL = ("table", "table_id", "row", "column")


def ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def entries_only(entries: DataFrame) -> DataFrame:
    return entries.where("worker IS NULL AND dedicated_rows IS NULL")


def readable(entries: DataFrame) -> DataFrame:
    return entries.where("table IS NOT NULL").select(*CELL, "segment", "start", "commit", "delete")


def unreadable(entries: DataFrame) -> DataFrame:
    return entries.where("reason IS NOT NULL").select("start", "row", "column", "value", "reason")


def references(entries: DataFrame) -> DataFrame:
    return entries.where("dedicated_rows IS NOT NULL").select("start", "dedicated_rows")


def totals(frame: DataFrame) -> DataFrame:
    return frame.where("worker IS NOT NULL")


def between(entries: DataFrame, after: int | None, before: int | None) -> DataFrame:
    """Those with `after < start < before`. What has no start comes before everything."""
    if after is not None:
        entries = entries.where(F.col("start") > after)
    if before is not None:
        entries = entries.where(F.coalesce(F.col("start"), F.lit(0)) < before)
    return entries


def newest_by_segment(cells: DataFrame, partitions: int) -> DataFrame:
    """Of the entries of a cell in one segment only the greatest start: the others have nothing to add.

    Cells are cut by range, so that no two tasks delete from the same neighbourhood, and come in order.
    """
    cut = cells.coalesce(1) if partitions == 1 else cells.repartitionByRange(partitions, "table", "row", "column")
    newest = cut.groupBy(*CELL, "segment").agg(F.max(F.struct("start", "commit", "delete")).alias("newest"))
    return newest.sortWithinPartitions("table", "row", "column").select(
        *CELL, "newest.start", "newest.commit", "newest.delete"
    )


def entries_by_start(cells: DataFrame) -> DataFrame:
    return cells.where("start IS NOT NULL").groupBy("start").count().orderBy("start").select("start", "count")


def entries_by_row(cells: DataFrame) -> DataFrame:
    """How many tombstones each row may get. Rows by a hash: two that share one would only end a run early."""
    return cells.groupBy(F.xxhash64("table", "row").alias("row")).count().select("row", "count")


def rows_over(cap: int, counts: list[DataFrame]) -> DataFrame:
    together = _union(counts).groupBy("row").agg(F.sum("count").alias("count"))
    return together.where(F.col("count") > cap).select("row")


def first_start_over(cap: int, cells: DataFrame, spent: list[DataFrame], first: int | None) -> DataFrame:
    """The least start that would put more than `cap` entries of this run into one row, the first start of the run
    aside; `spent` is what earlier batches put into each row."""
    row = F.xxhash64("table", "row").alias("row")
    so_far = F.expr("count(1) OVER (PARTITION BY row ORDER BY start, place ROWS UNBOUNDED PRECEDING)")
    here = cells.select(row, "start", F.xxhash64("column").alias("place")).withColumn("so_far", so_far)
    if spent:
        before = _union(spent).groupBy("row").agg(F.sum("count").alias("before"))
        here = here.join(before, "row", "left").withColumn("so_far", F.expr("so_far + coalesce(before, 0)"))
    over = here.where(F.col("so_far") > cap)
    if first is not None:
        over = over.where(F.col("start") != first)
    return over.agg(F.min("start").alias("start")).select("start")


class Touched(NamedTuple):
    range_deletes: int
    sentinels: int


def touched(results: list[DataFrame]) -> Touched:
    """Distinct cells over several batches, shards and parked entries."""
    cells = _union(results).where("cell IS NOT NULL").groupBy("cell").agg(F.max("ranged"), F.max("sentinel"))
    found = cells.toDF("cell", "ranged", "sentinel").agg(F.count_if("ranged"), F.count_if("sentinel")).first()
    return Touched(*found) if found else Touched(0, 0)


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
