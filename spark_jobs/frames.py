"""The frames of a sweep and their native Spark operations. Each function is named after its result.

The frame of what was **read** from the queue has a row for each block of entries (`blocks.py`), a row for each entry
that can't be read, a row for each reference to dedicated rows, and a row of totals for each part that was read. A frame
of **results** has the cells that were touched, as hashes in several groups, and a row of totals for each Spark
partition. Only totals reach the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.blocks import Starts
from sweep_tasks.encoding import var_long
from sweep_tasks.model import Span
from sweep_tasks.queue.encoding import FINE

# ---------------------------------------------------------------------------------------------------------------------
# How much of the queue to read at a time, and where to cut what was read. Pure.
#
# The number of entries of a fine partition is known only after it was read: none, or millions. So a window of a few
# partitions is read first, and its size is used to estimate the next window. A window is cut into batches between two
# start timestamps, so that the progress can be stored there.
# ---------------------------------------------------------------------------------------------------------------------

_FASTEST_GROWTH = 16


class Windows:
    """The partitions of a sweep, some at a time."""

    def __init__(self, partitions: list[int], entries: int, first: int) -> None:
        self._left = partitions
        self._entries = entries
        self._size = first

    def __iter__(self) -> Iterator[list[int]]:
        while self._left:
            window, self._left = self._left[: self._size], self._left[self._size :]
            yield window

    @property
    def left(self) -> list[int]:
        return self._left

    def record_window(self, entries: int) -> None:
        """Record the number of entries of the last window."""
        wanted = self._entries * self._size // max(entries, 1)
        self._size = max(1, min(wanted, self._size * _FASTEST_GROWTH))


class Cut(NamedTuple):
    """A batch within a window: everything with `after < start <= last`; None is open."""

    after: int | None
    last: int | None
    entries: int
    through: int
    """The progress after this batch."""
    partitions: list[int]
    """Partitions that end in this batch."""

    @property
    def is_whole(self) -> bool:
        return self.after is None and self.last is None

    def covers(self, start: int) -> bool:
        return (self.after is None or start > self.after) and (self.last is None or start <= self.last)


def cuts(by_start: Iterable[tuple[int, int]], size: int, window: list[int], before: int) -> Iterator[Cut]:
    """Yield batches of about `size` entries, from the number of entries of each start, in order; a start is never
    cut."""
    after: int | None = None
    last: int | None = None
    entries = 0
    left = list(window)
    for start, count in by_start:
        if last is not None and entries + count > size:
            passed = [partition for partition in left if partition < start // FINE]
            left = left[len(passed) :]
            through = max(last, min((passed[-1] + 1) * FINE, before) - 1) if passed else last
            yield Cut(after, last, entries, through, passed)
            after, entries = last, 0
        last, entries = start, entries + count
    yield Cut(after, None, entries, min((window[-1] + 1) * FINE, before) - 1, left)


def column_spans(parts: int) -> list[Span]:
    """Divide the columns of a shared row into this many ranges that cover all possible columns."""
    bounds = [var_long(FINE * number // parts) for number in range(1, parts)]
    return [Span(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True)]


READ = {
    # Of a block:
    "block": "binary",
    "first_cell": "binary",
    "last_cell": "binary",
    "first_start": "long",
    "last_start": "long",
    # Of an entry that can't be read; its row and column are those of the queue:
    "start": "long",
    "row": "binary",
    "column": "binary",
    "value": "binary",
    "reason": "string",
    # Of a reference, with its start:
    "dedicated_rows": "long",
    # Of totals:
    "worker": "string",
    "entries": "long",
    "unreadable": "long",
    "references": "long",
    "first": "long",
    "blocked": "long",
    "crowded": "string",
    "cells": "array<binary>",
}

BLOCKS = {"task": "int", "block": "binary"}
TRANSACTIONS = {"start": "long", "commit": "long", "entries": "long"}
PLACES = {"row": "long", "start": "long", "place": "long"}

RESULTS = {
    # Of a group of touched cells: 64-bit numbers, one after the other.
    "group": "int",
    "ranged": "binary",
    "sentinel": "binary",
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

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "array<binary>": pa.list_(pa.binary()),
}


def ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def blocks(read: DataFrame, starts: Starts) -> DataFrame:
    """Return the blocks that may have entries of these transactions."""
    found = read.where("block IS NOT NULL")
    if starts.after is not None:
        found = found.where(F.col("last_start") > starts.after)
    if starts.before is not None:
        found = found.where(F.col("first_start") < starts.before)
    return found.select("block", "first_cell", "last_cell")


def unreadable(read: DataFrame, starts: Starts) -> DataFrame:
    """Return the entries that can't be read. One without a start comes before all others."""
    found = read.where("reason IS NOT NULL")
    if starts.after is not None:
        found = found.where(F.col("start") > starts.after)
    if starts.before is not None:
        found = found.where(F.coalesce(F.col("start"), F.lit(0)) < starts.before)
    if starts.without:
        partition = F.expr(f"start DIV {FINE}")
        found = found.where(F.col("start").isNull() | ~partition.isin(sorted(starts.without)))
    return found.select("start", "row", "column", "value", "reason")


def references(read: DataFrame) -> DataFrame:
    return read.where("dedicated_rows IS NOT NULL").select("start", "dedicated_rows")


def totals(frame: DataFrame) -> DataFrame:
    return frame.where("worker IS NOT NULL").drop("block")


def transactions(readable: DataFrame, not_readable: DataFrame) -> DataFrame:
    """Return the number of entries of each transaction, in order; `readable` has those of each block."""
    others = not_readable.selectExpr("start", "CAST(NULL AS LONG) AS commit", "1L AS entries")
    by_start = readable.unionByName(others).groupBy("start")
    return by_start.agg(F.max("commit").alias("commit"), F.sum("entries").alias("entries")).orderBy("start")


def first_start_over(cap: int, places: DataFrame, crowded: Mapping[int, int], first: int | None) -> DataFrame:
    """Return the least start that would put more than `cap` entries of this run into one row, except the first start of
    the run. `crowded` has the rows that may get too many, with the entries that they have from earlier batches, and
    `places` the entries of this batch in those rows."""
    before = F.create_map(*(F.lit(each) for pair in crowded.items() for each in pair))
    so_far = F.expr("count(1) OVER (PARTITION BY row ORDER BY start, place ROWS UNBOUNDED PRECEDING)")
    over = places.withColumn("so_far", so_far + before[F.col("row")]).where(F.col("so_far") > cap)
    if first is not None:
        over = over.where(F.col("start") != first)
    return over.agg(F.min("start").alias("start")).select("start")


class Touched(NamedTuple):
    range_deletes: int
    sentinels: int


TOUCHED = dict.fromkeys(Touched._fields, "long")


def touched_cells(results: list[DataFrame], tasks: int) -> DataFrame:
    """Return the groups of cells that several batches, shards and parked entries touched, each group at one task."""
    groups = reduce(DataFrame.unionByName, results).where("group IS NOT NULL").select("group", "ranged", "sentinel")
    return groups.repartitionById(tasks, F.col("group") % tasks)


def sum_touched(counted: DataFrame) -> Touched:
    found = counted.agg(F.sum("range_deletes"), F.sum("sentinels")).first()
    return Touched(*(each or 0 for each in found)) if found else Touched(0, 0)
