"""The frames of a sweep and their native Spark operations. Each function is named after its result.

A frame of **entries** is what was read from the queue: a row for each entry, decoded, with its transaction's outcome
and its segment; a row for each reference to dedicated rows; and a row of totals for each part that was read. A frame
of **results** has a row for each cell that was touched, and a row of totals for each Spark partition. Only totals
reach the driver.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

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
    "crowded": "string",
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
    """Return the rows with `after < start < before`. A row without a start comes before all others."""
    if after is not None:
        entries = entries.where(F.col("start") > after)
    if before is not None:
        entries = entries.where(F.coalesce(F.col("start"), F.lit(0)) < before)
    return entries


def newest_by_segment(cells: DataFrame, partitions: int) -> DataFrame:
    """Keep the greatest start of the entries of a cell in one segment: the others add nothing.

    Cells are cut by range, so that no two tasks delete from the same neighbourhood, and come in order.
    """
    cut = cells.coalesce(1) if partitions == 1 else cells.repartitionByRange(partitions, "table", "row", "column")
    newest = cut.groupBy(*CELL, "segment").agg(F.max(F.struct("start", "commit", "delete")).alias("newest"))
    return newest.sortWithinPartitions("table", "row", "column").select(
        *CELL, "newest.start", "newest.commit", "newest.delete"
    )


def entries_by_start(cells: DataFrame) -> DataFrame:
    return cells.where("start IS NOT NULL").groupBy("start").count().orderBy("start").select("start", "count")


def row_number(table: str, row: bytes) -> int:
    """Return a number that stands for a row where tombstones are counted. Two rows with the same number count as one,
    which can only end a run early."""
    return zlib.crc32(row, zlib.crc32(table.encode()))


def first_start_over(cap: int, cells: DataFrame, crowded: Mapping[int, int], first: int | None) -> DataFrame:
    """Return the least start that would put more than `cap` entries of this run into one row, except the first start of
    the run. `crowded` has the rows that may get too many, with the entries that they have from earlier batches."""
    number = F.crc32(F.concat(F.col("table").cast("binary"), F.col("row"))).alias("row")
    before = F.create_map(*(F.lit(each) for pair in crowded.items() for each in pair))
    here = cells.select(number, "start", F.xxhash64("column").alias("place")).where(F.col("row").isin(list(crowded)))
    so_far = F.expr("count(1) OVER (PARTITION BY row ORDER BY start, place ROWS UNBOUNDED PRECEDING)")
    over = here.withColumn("so_far", so_far + before[F.col("row")]).where(F.col("so_far") > cap)
    if first is not None:
        over = over.where(F.col("start") != first)
    return over.agg(F.min("start").alias("start")).select("start")


class Touched(NamedTuple):
    range_deletes: int
    sentinels: int


def count_touched(results: list[DataFrame]) -> Touched:
    """Count distinct cells over several batches, shards and parked entries."""
    cells = _union(results).where("cell IS NOT NULL").groupBy("cell").agg(F.max("ranged"), F.max("sentinel"))
    found = cells.toDF("cell", "ranged", "sentinel").agg(F.count_if("ranged"), F.count_if("sentinel")).first()
    return Touched(*found) if found else Touched(0, 0)


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
