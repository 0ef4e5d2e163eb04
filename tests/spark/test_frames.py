"""What Spark does with the frames by itself, on a handful of rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import frames
from spark_jobs.frames import ENTRIES, RESULTS


def entry(start: int | None, cell: bytes, **given: Any) -> dict[str, Any]:
    plain = {"commit": (start or 0) + 1, "table": "app.items", "table_id": 1, "row": cell, "column": b"c"}
    return {"start": start, **plain, "delete": False, "segment": "", **given}


def entries(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in ENTRIES) for row in rows], frames.ddl(ENTRIES))


def starts(frame: DataFrame) -> list[int]:
    return sorted(row.start for row in frame.collect())


@pytest.fixture(scope="module")
def mixed(spark: SparkSession) -> DataFrame:
    return entries(
        spark,
        entry(10, b"a"),
        entry(20, b"b"),
        {"start": 30, "row": b"q", "column": b"q", "value": b"?", "reason": "no sense"},
        {"row": b"q", "column": b"?", "value": b"?", "reason": "no start"},
        {"start": 40, "dedicated_rows": 3},
        {"worker": "me", "entries": 4, "unreadable": 2, "references": 1},
    )


def test_rows_of_a_frame_are_distinguished(mixed: DataFrame) -> None:
    assert starts(frames.readable(mixed)) == [10, 20]
    assert [row.reason for row in frames.unreadable(mixed).orderBy("reason").collect()] == ["no sense", "no start"]
    assert [tuple(row) for row in frames.references(mixed).collect()] == [(40, 3)]
    assert [row.entries for row in frames.totals(mixed).collect()] == [4]
    assert frames.entries_only(mixed).count() == 4


def test_a_range_of_starts_excludes_its_bounds(mixed: DataFrame) -> None:
    assert starts(frames.readable(frames.between(mixed, 10, None))) == [20]
    assert starts(frames.readable(frames.between(mixed, None, 20))) == [10]
    assert starts(frames.readable(frames.between(mixed, None, None))) == [10, 20]


def test_entries_without_a_start_belong_to_the_first_transaction(mixed: DataFrame) -> None:
    assert [row.reason for row in frames.unreadable(frames.between(mixed, None, 11)).collect()] == ["no start"]
    assert [row.reason for row in frames.unreadable(frames.between(mixed, 11, None)).collect()] == ["no sense"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_newest_of_a_cell_in_each_segment_stays_as_it_is(spark: SparkSession, partitions: int) -> None:
    frame = entries(
        spark,
        entry(10, b"a"),
        entry(30, b"a", commit=90, delete=True),
        entry(20, b"a", commit=99),
        entry(20, b"b"),
        entry(10, b"a", segment="at 15 backup"),
        entry(10, b"a", table="app.other", table_id=2),
    )
    newest = frames.newest_by_segment(frames.readable(frame), partitions).collect()
    found = sorted((row.table, bytes(row.row), row.start, row.commit, row.delete) for row in newest)
    assert found == [
        ("app.items", b"a", 10, 11, False),
        ("app.items", b"a", 30, 90, True),
        ("app.items", b"b", 20, 21, False),
        ("app.other", b"a", 10, 11, False),
    ]


def test_entries_are_counted_by_start_in_order(spark: SparkSession) -> None:
    frame = entries(spark, entry(20, b"a"), entry(10, b"a"), entry(20, b"b"), entry(None, b"c"))
    assert [tuple(row) for row in frames.entries_by_start(frame).collect()] == [(10, 1), (20, 2)]


class TestTheCapOnTombstones:
    HOT, COLD = (frames.row_number("app.items", row) for row in (b"hot", b"cold"))

    def over(self, spark: SparkSession, cap: int, crowded: dict[int, int], first: int | None = None) -> int | None:
        cells = frames.readable(entries(spark, *(entry(start, b"hot") for start in (1, 2, 3)), entry(2, b"cold")))
        found = frames.first_start_over(cap, cells, crowded, first).first()
        assert found is not None
        start: int | None = found.start
        return start

    def test_the_first_start_that_is_too_much_for_a_row_is_found(self, spark: SparkSession) -> None:
        assert self.over(spark, 2, {self.HOT: 0, self.COLD: 0}) == 3
        assert self.over(spark, 3, {self.HOT: 0, self.COLD: 0}) is None

    def test_what_earlier_batches_put_into_the_row_counts(self, spark: SparkSession) -> None:
        assert self.over(spark, 3, {self.HOT: 1}) == 3
        assert self.over(spark, 3, {self.HOT: 2}) == 2

    def test_rows_that_are_not_crowded_are_not_counted(self, spark: SparkSession) -> None:
        assert self.over(spark, 0, {self.COLD: 0}) == 2

    def test_the_first_start_of_a_run_never_does(self, spark: SparkSession) -> None:
        assert self.over(spark, 0, {self.HOT: 0}, first=1) == 2


def test_a_cell_that_several_touched_counts_once(spark: SparkSession) -> None:
    def results(*rows: tuple[int | None, bool, bool]) -> DataFrame:
        width = len(RESULTS) - 3
        return spark.createDataFrame([(*row, *[None] * width) for row in rows], frames.ddl(RESULTS))

    one = results((1, True, False), (2, True, True))
    other = results((2, True, False), (3, False, True), (1, False, True))
    assert frames.count_touched([one, other]) == (2, 3)
    assert frames.count_touched([one]) == (2, 1)
