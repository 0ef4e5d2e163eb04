"""How much of the queue is read at a time, and where it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.frames import Cut, Windows, column_spans, cuts
from sweep_tasks.encoding import var_long
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.queue.writer import QueueWriter
from tests.conftest import memory_store

TABLE = TableRef.parse("app.items")


def test_the_first_window_is_small_and_the_next_as_large_as_the_first_one_suggests() -> None:
    windows = Windows(list(range(100)), entries=1_000, first=4)
    walk = iter(windows)
    assert next(walk) == [0, 1, 2, 3]
    windows.record_window(100)
    assert len(next(walk)) == 40
    windows.record_window(4_000)
    assert len(next(walk)) == 10
    assert windows.left == list(range(54, 100))


def test_an_empty_window_lets_the_next_one_grow_up_to_a_limit() -> None:
    windows = Windows(list(range(1_000)), entries=1_000, first=2)
    walk = iter(windows)
    next(walk)
    windows.record_window(0)
    assert len(next(walk)) == 32


def test_a_window_is_never_empty() -> None:
    windows = Windows([7, 8], entries=10, first=1)
    walk = iter(windows)
    next(walk)
    windows.record_window(10**9)
    assert next(walk) == [8]


def test_entries_that_fit_one_batch_are_not_split() -> None:
    (only,) = cuts([(10, 3), (60_000, 4)], 7, [0, 1], before=100_000)
    assert only == Cut(None, None, 7, 99_999, [0, 1])
    assert only.is_whole


def test_a_batch_that_ends_a_partition_completes_it() -> None:
    first, second = cuts([(10, 3), (60_000, 4)], 5, [0, 1], before=70_000)
    assert first == Cut(None, 10, 3, 49_999, [0])
    assert second == Cut(10, None, 4, 69_999, [1])


def test_a_start_is_never_split_even_if_it_is_larger_than_a_batch() -> None:
    assert [cut.entries for cut in cuts([(1, 2), (2, 90), (3, 2)], 5, [0], before=100)] == [2, 90, 2]


starts = st.lists(st.tuples(st.integers(0, 6 * FINE), st.integers(1, 9)), unique_by=lambda each: each[0], max_size=30)


@given(starts, st.integers(1, 20), st.integers(1, 7 * FINE))
def test_batches_end_where_those_of_the_in_process_reader_do(
    by_start: list[tuple[int, int]], size: int, before: int
) -> None:
    store = memory_store()
    store.create_table(TABLE, TableMetadata())
    for start, count in by_start:
        values = {Cell(b"r", b"%d" % n): b"v" for n in range(count)}
        QueueWriter(store).enqueue(start, {TABLE: values}, {TABLE: TableMetadata()})
    reader = QueueReader(store, SweepStrategy.CONSERVATIVE, 0)
    window = reader.partitions(-1, before)
    known = sorted(each for each in by_start if each[0] < before)
    expected = list(reader.batches(-1, before, size))
    found = list(cuts(known, size, window, before)) if window else []
    assert [(cut.entries, cut.through) for cut in found] == [(len(b.entries), b.through) for b in expected]
    used_up = [[each for each in cut.partitions if (each + 1) * FINE <= before] for cut in found]
    assert used_up == [batch.partitions for batch in expected]


@given(st.integers(1, 9), st.binary(max_size=4))
def test_parts_of_a_row_cover_every_column_once(parts: int, column: bytes) -> None:
    assert sum(column in scan_range for scan_range in column_spans(parts)) == 1


def test_parts_share_a_full_row_evenly() -> None:
    found = [sum(var_long(n) in scan_range for n in range(FINE)) for scan_range in column_spans(4)]
    assert found == [FINE // 4] * 4
