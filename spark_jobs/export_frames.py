"""The frames of an export. Each function is named after what comes out.

A frame of **cells** is what a reader sees: a row for each cell that has a value, with the start timestamp of whoever
wrote it. A frame of **changes** has cells as well, and a row for each that is there no longer. That a cell has changed
is told by its start alone: no two writers share one. So it does not matter how a cell went, or whether the marker that
removed it was swept since.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.exports import Export, Written, chain, entered
from spark_jobs.frames import ddl

CELLS = {"table": "string", "row": "binary", "column": "binary", "start": "long", "value": "binary"}
CHANGES = CELLS | {"deleted": "boolean"}
CELL = ("table", "row", "column")


def read_export(spark: SparkSession, folder: Path | str) -> DataFrame:
    """The cells as they were at the timestamp of an export, put together from its chain."""
    return cells_of(spark, chain(Path(folder).absolute()))


def cells_of(spark: SparkSession, exports: list[Export]) -> DataFrame:
    since = entered(exports)
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
    """Those of a table together, unless they are many: a part of the table's cells in each of many tasks would become a
    file in each of many."""
    return changes.hint("rebalance", "table")


def written(spark: SparkSession, data: Path) -> DataFrame:
    """What lies in the folder of one export."""
    return spark.read.schema(ddl(CHANGES)).parquet(str(data)).select(*CHANGES)


def all_new(cells: DataFrame) -> DataFrame:
    return cells.withColumn("deleted", F.lit(False)).select(*CHANGES)


def changes(before: DataFrame, now: DataFrame) -> DataFrame:
    """What makes cells of before into cells of now."""
    was = before.select(*CELL, F.col("start").alias("was"))
    differs = ~F.col("start").eqNullSafe(F.col("was"))
    both = now.join(was, list(CELL), "full_outer").where(differs)
    return both.withColumn("deleted", F.col("start").isNull()).select(*CHANGES)


def counts_by_table(changes: DataFrame) -> dict[str, Written]:
    counted = changes.groupBy("table").agg(F.expr("count_if(NOT deleted)"), F.count_if("deleted"))
    return {table: Written(puts, deletes) for table, puts, deletes in counted.collect()}
