"""What Spark does with the frames by itself, on a handful of rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import frames
from spark_jobs.blocks import Starts
from spark_jobs.frames import PLACES, READ, RESULTS, TOUCHED, TRANSACTIONS
from spark_jobs.workers import counting_cells
from sweep_tasks.queue.encoding import FINE


def frame_of(spark: SparkSession, columns: Mapping[str, str], *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], frames.ddl(columns))


def block(first_start: int, last_start: int) -> dict[str, Any]:
    cells = {"first_cell": b"a", "last_cell": b"z"}
    return {"block": b"%d" % first_start, **cells, "first_start": first_start, "last_start": last_start}


def found(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.block) for row in frame.collect())


@pytest.fixture(scope="module")
def mixed(spark: SparkSession) -> DataFrame:
    return frame_of(
        spark,
        READ,
        block(10, 20),
        block(21, 21),
        {"start": 30, "row": b"q", "column": b"q", "value": b"?", "reason": "no sense"},
        {"start": FINE, "row": b"q", "column": b"q", "value": b"?", "reason": "of a later partition"},
        {"row": b"q", "column": b"?", "value": b"?", "reason": "no start"},
        {"start": 40, "dedicated_rows": 3},
        {"worker": "me", "entries": 4, "unreadable": 2, "references": 1},
    )


def reasons(read: DataFrame, starts: Starts) -> list[str]:
    return sorted(row.reason for row in frames.unreadable(read, starts).collect())


def test_rows_of_a_frame_are_distinguished(mixed: DataFrame) -> None:
    assert found(frames.blocks(mixed, Starts())) == [b"10", b"21"]
    assert reasons(mixed, Starts()) == ["no sense", "no start", "of a later partition"]
    assert [tuple(row) for row in frames.references(mixed).collect()] == [(40, 3)]
    assert [row.entries for row in frames.totals(mixed).collect()] == [4]


def test_blocks_without_a_transaction_of_the_batch_are_left_out(mixed: DataFrame) -> None:
    assert found(frames.blocks(mixed, Starts(after=19))) == [b"10", b"21"]
    assert found(frames.blocks(mixed, Starts(after=20))) == [b"21"]
    assert found(frames.blocks(mixed, Starts(before=22))) == [b"10", b"21"]
    assert found(frames.blocks(mixed, Starts(before=21))) == [b"10"]
    assert found(frames.blocks(mixed, Starts(before=10))) == []


def test_unreadable_entries_without_a_start_belong_to_the_first_transaction(mixed: DataFrame) -> None:
    assert reasons(mixed, Starts(before=30)) == ["no start"]
    assert reasons(mixed, Starts(29, 31)) == ["no sense"]
    assert reasons(mixed, Starts(after=30)) == ["of a later partition"]
    assert reasons(mixed, Starts(without=frozenset([1]))) == ["no sense", "no start"]
    assert reasons(mixed, Starts(without=frozenset([0]))) == ["no start", "of a later partition"]


def test_the_partition_of_a_large_start_is_exact(spark: SparkSession) -> None:
    last = 2**55 // FINE
    starts = ((last + 1) * FINE - 1, (last + 1) * FINE)
    read = frame_of(spark, READ, *({"start": start, "reason": f"of {start // FINE}"} for start in starts))
    assert reasons(read, Starts(without=frozenset([last + 1]))) == [f"of {last}"]


def test_entries_are_counted_by_transaction_in_order(spark: SparkSession, mixed: DataFrame) -> None:
    names = list(TRANSACTIONS)
    in_blocks = [dict(zip(names, row, strict=True)) for row in ((20, 21, 2), (10, -1, 1), (20, 21, 3), (30, 31, 1))]
    counted = frames.transactions(frame_of(spark, TRANSACTIONS, *in_blocks), frames.unreadable(mixed, Starts()))
    assert [tuple(row) for row in counted.collect()] == [
        (None, None, 1),
        (10, -1, 1),
        (20, 21, 5),
        (30, 31, 2),
        (FINE, None, 1),
    ]


class TestTheCapOnTombstones:
    HOT, COLD = 7, 8

    def over(self, spark: SparkSession, cap: int, crowded: dict[int, int], first: int | None = None) -> int | None:
        entries = [(row, start) for row in crowded for start in ((1, 2, 3) if row == self.HOT else (2,))]
        places = frame_of(spark, PLACES, *({"row": row, "start": start, "place": 10 * start} for row, start in entries))
        found = frames.first_start_over(cap, places, crowded, first).first()
        assert found is not None
        start: int | None = found.start
        return start

    def test_the_first_start_that_is_too_much_for_a_row_is_found(self, spark: SparkSession) -> None:
        assert self.over(spark, 2, {self.HOT: 0, self.COLD: 0}) == 3
        assert self.over(spark, 3, {self.HOT: 0, self.COLD: 0}) is None

    def test_what_earlier_batches_put_into_the_row_counts(self, spark: SparkSession) -> None:
        assert self.over(spark, 3, {self.HOT: 1}) == 3
        assert self.over(spark, 3, {self.HOT: 2}) == 2

    def test_each_row_is_counted_by_itself(self, spark: SparkSession) -> None:
        assert self.over(spark, 0, {self.COLD: 0}) == 2
        assert self.over(spark, 3, {self.HOT: 0, self.COLD: 3}) == 2

    def test_the_first_start_of_a_run_never_does(self, spark: SparkSession) -> None:
        assert self.over(spark, 0, {self.HOT: 0}, first=1) == 2


def test_a_cell_that_several_touched_counts_once(spark: SparkSession) -> None:
    def results(*groups: tuple[int, list[int], list[int]]) -> DataFrame:
        return frame_of(
            spark,
            RESULTS,
            {"worker": "me", "range_deletes": 9},
            *(
                {"group": group, "ranged": packed(*ranged), "sentinel": packed(*cells)}
                for group, ranged, cells in groups
            ),
        )

    def counted(*found: DataFrame) -> frames.Touched:
        cells = frames.touched_cells(list(found), 2)
        return frames.sum_touched(cells.mapInArrow(counting_cells, frames.ddl(TOUCHED)))

    one = results((1, [1, 65], [65]), (2, [2], []))
    other = results((2, [2], []), (3, [], [3]), (1, [65], [1]))
    assert counted(one, other) == (3, 3)
    assert counted(one) == (3, 1)
    assert counted(results()) == (0, 0)


def packed(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)
