"""Reading a shard: in order, in bounded batches, and with the rows that each batch completes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweep_tasks.queue.reader as reader_module
import sweep_tasks.queue.writer as writer_module
from sweep_tasks.encoding import var_long
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import FINE, cells_column, dedicated_rows, read_write, shared_row, timestamps_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.reader import Batch, QueueReader
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from tests.conftest import memory_store

CONSERVATIVE, THOROUGH, _ = SweepStrategy
TABLE = TableRef.parse("app.items")
TABLES = {TABLE: TableMetadata()}
LAST = FINE - 1


@pytest.fixture(autouse=True)
def small_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "SHARED_WRITES", 5)
        patch.setattr(writer_module, "DEDICATED_WRITES", 4)
        yield


def enqueue(store: Store, *transactions: tuple[int, int]) -> None:
    """Each is a start and a number of writes."""
    writer = QueueWriter(store)
    for start, count in transactions:
        writes = {Cell(b"%d" % start, b"%03d" % number): b"v" for number in range(count)}
        writer.enqueue(start, {TABLE: writes}, TABLES)


def reader_of(store: Store) -> QueueReader:
    return QueueReader(store, CONSERVATIVE, 0)


def starts(batch: Batch) -> list[int | None]:
    return [entry.start for entry in batch.entries]


class TestPartitions:
    def test_only_those_marked_between_the_two_timestamps(self, store: Store) -> None:
        enqueue(store, (5, 1), (FINE + 5, 1), (7 * FINE, 1), (300 * FINE, 1))
        reader = reader_of(store)
        assert reader.partitions(-1, 400 * FINE) == [0, 1, 7, 300]
        assert reader.partitions(LAST, 400 * FINE) == [1, 7, 300]
        assert reader.partitions(LAST - 1, 400 * FINE) == [0, 1, 7, 300]
        assert reader.partitions(-1, 7 * FINE) == [0, 1]
        assert reader.partitions(-1, 7 * FINE + 1) == [0, 1, 7]
        assert reader.partitions(299 * FINE, 300 * FINE) == []

    @pytest.mark.parametrize(("after", "before"), [(-1, 0), (5, 5), (5, 6), (9, 3), (-1, -1)])
    def test_there_is_nothing_between_adjacent_timestamps(self, store: Store, after: int, before: int) -> None:
        enqueue(store, (5, 1), (6, 1))
        assert reader_of(store).partitions(after, before) == []
        assert list(reader_of(store).batches(after, before)) == []

    def test_distant_partitions_are_found_by_lookup_and_by_scan(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        far = 2_000 * 10_000_000
        enqueue(store, (5, 1), (10_000_005, 1), (far, 1), (far + 10_000_000, 1))
        expected = [0, 200, far // FINE]
        counting = FaultyStore(store)
        assert reader_of(counting).partitions(-1, far + FINE) == expected
        assert counting.calls < 20, "so many coarse partitions are not asked for one by one"
        monkeypatch.setattr(reader_module, "_MOST_ROW_READS", 10_000)
        assert reader_of(store).partitions(-1, far + FINE) == expected

    def test_scanning_skips_other_shards_and_strategies(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        Progress(store).raise_shards(3)
        thorough = {TABLE: TableMetadata(THOROUGH)}
        cells = {Cell(b"r%d" % number, b"c"): b"v" for number in range(5)}
        QueueWriter(store).enqueue(5, {TABLE: cells}, TABLES)
        QueueWriter(store).enqueue(FINE, {TABLE: cells}, thorough)
        for worth in (1_000, 0):
            monkeypatch.setattr(reader_module, "_MOST_ROW_READS", worth)
            for shard in range(3):
                assert QueueReader(store, CONSERVATIVE, shard).partitions(-1, 3 * FINE) == [0]
                assert QueueReader(store, THOROUGH, shard).partitions(-1, 3 * FINE) == [1]

    def test_scanning_skips_rows_that_are_none_of_ours(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows of AtlasDB for transactions that wrote to unswept tables only, and rows that can't be read."""
        enqueue(store, (5, 1))
        unswept = timestamps_row(0, 0, CONSERVATIVE)[:-1] + b"\x02"
        marks = {Cell(row, var_long(2)): b"" for row in (unswept, b"\xff" * 11, b"short")}
        store.put(5, {QUEUE_TIMESTAMPS: marks})
        for worth in (1_000, 0):
            monkeypatch.setattr(reader_module, "_MOST_ROW_READS", worth)
            assert reader_of(store).partitions(-1, 3 * FINE) == [0]

    def test_more_marks_than_fit_a_page(self, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader_module, "_PAGE", 3)
        enqueue(memory, *((number * FINE, 1) for number in range(10)))
        for worth in (1_000, 0):
            monkeypatch.setattr(reader_module, "_MOST_ROW_READS", worth)
            assert reader_of(memory).partitions(-1, 20 * FINE) == list(range(10))


class TestBatches:
    def test_entries_are_ordered_by_their_starts(self, store: Store) -> None:
        enqueue(store, (FINE + 1, 2), (300, 1), (20, 3), (LAST, 1), (7 * FINE, 1))
        (batch,) = reader_of(store).batches(-1, 8 * FINE)
        assert starts(batch) == [20, 20, 20, 300, LAST, FINE + 1, FINE + 1, 7 * FINE]
        assert batch.partitions == [0, 1, 7]
        assert batch.through == 8 * FINE - 1

    def test_both_ends_are_left_out(self, store: Store) -> None:
        enqueue(store, (10, 1), (11, 1), (12, 1), (13, 1))
        (batch,) = reader_of(store).batches(10, 13)
        assert starts(batch) == [11, 12]

    def test_a_partition_is_complete_only_if_all_of_it_was_read(self, store: Store) -> None:
        enqueue(store, (5, 1), (FINE, 1))
        (short,) = reader_of(store).batches(-1, LAST)
        assert (short.partitions, short.through) == ([], LAST - 1)
        (exact,) = reader_of(store).batches(-1, FINE)
        assert (exact.partitions, exact.through) == ([0], LAST)
        (beyond,) = reader_of(store).batches(-1, FINE + 1)
        assert (beyond.partitions, beyond.through) == ([0], FINE)
        assert starts(beyond) == [5, FINE]

    def test_a_partition_that_is_marked_and_empty_is_complete_too(self, store: Store) -> None:
        enqueue(store, (5, 1), (FINE, 1))
        store.delete_rows(QUEUE_CELLS, [shared_row(0, CONSERVATIVE, 0)])
        (batch,) = reader_of(store).batches(-1, FINE)
        assert (batch.entries, batch.partitions, batch.through) == ([], [0], LAST)

    def test_a_start_is_not_split_over_two_batches(self, store: Store) -> None:
        enqueue(store, (10, 2), (11, 4), (12, 1))
        batches = list(reader_of(store).batches(-1, 100, size=3))
        assert [starts(batch) for batch in batches] == [[10, 10], [11] * 4, [12]]
        assert [batch.through for batch in batches] == [10, 11, 99]

    def test_a_batch_ends_between_partitions_with_the_first_complete(self, store: Store) -> None:
        enqueue(store, (10, 2), (FINE, 2))
        first, second = reader_of(store).batches(-1, 2 * FINE, size=2)
        assert (first.partitions, first.through) == ([0], LAST)
        assert (second.partitions, second.through) == ([1], 2 * FINE - 1)

    def test_processed_entries_are_not_read_again_but_their_dedicated_rows_are_removed(self, store: Store) -> None:
        enqueue(store, (10, 9), (11, 1), (12, 2))
        (batch,) = reader_of(store).batches(11, FINE)
        assert starts(batch) == [12, 12]
        assert batch.dedicated == [(10, row) for row in dedicated_rows(10, CONSERVATIVE, 0, 3)]

    def test_an_unfinished_partition_is_read_only_as_far_as_needed(self, store: Store) -> None:
        enqueue(store, (10, 9), (11, 1), (12, 2), (13, 1))
        (batch,) = reader_of(store).batches(10, 13)
        assert starts(batch) == [11, 12, 12]
        assert batch.dedicated == []

    def test_an_unreadable_column_has_no_start(self, store: Store) -> None:
        enqueue(store, (10, 1))
        row = shared_row(0, CONSERVATIVE, 0)
        broken = [b"\x0b", cells_column(FINE, 0), cells_column(12, -65), cells_column(13, 0) + b"\0"]
        store.put(99, {QUEUE_CELLS: {Cell(row, column): b"?" for column in broken}})
        (batch,) = reader_of(store).batches(-1, FINE)
        assert {entry.place.column for entry in batch.entries if entry.start is None} == set(broken)
        assert [entry.start for entry in batch.entries if entry.start is not None] == [10]


class TestDedicatedRows:
    def test_their_entries_are_read_at_the_position_of_the_reference(self, store: Store) -> None:
        enqueue(store, (10, 1), (11, 9), (12, 1))
        (batch,) = reader_of(store).batches(-1, 100)
        assert starts(batch) == [10, *[11] * 9, 12]
        assert batch.dedicated == [(11, row) for row in dedicated_rows(11, CONSERVATIVE, 0, 3)]
        columns = [read_write(entry.value).cell.column for entry in batch.entries[1:-1]]
        assert columns == [b"%03d" % number for number in range(9)]

    def test_they_are_read_in_pages_and_progress_passes_them_after_the_last(self, store: Store) -> None:
        enqueue(store, (10, 1), (11, 9), (12, 1))
        batches = list(reader_of(store).batches(-1, 100, size=3))
        assert all(len(batch.entries) <= 3 for batch in batches)
        assert [start for batch in batches for start in starts(batch)] == [10, *[11] * 9, 12]
        first, second, third = dedicated_rows(11, CONSERVATIVE, 0, 3)
        used = [[row for _, row in batch.dedicated] for batch in batches]
        assert [row for rows in used for row in rows] == [first, second, third]
        passed = next(number for number, batch in enumerate(batches) if (batch.through or 0) >= 11)
        assert third in [row for rows in used[: passed + 1] for row in rows]
        assert all((batch.through or 0) < 11 for batch in batches[:passed])

    def test_missing_rows_count_as_empty_and_are_named(self, store: Store) -> None:
        enqueue(store, (11, 9))
        rows = dedicated_rows(11, CONSERVATIVE, 0, 3)
        store.delete_rows(QUEUE_CELLS, [rows[0], rows[2]])
        (batch,) = reader_of(store).batches(-1, 100)
        assert starts(batch) == [11] * 4
        assert batch.dedicated == [(11, row) for row in rows]
        assert batch.through == 99


@given(
    st.dictionaries(
        st.one_of(st.integers(0, 30), st.integers(LAST - 2, FINE + 2), st.integers(2 * FINE, 2 * FINE + 9)),
        st.one_of(st.integers(1, 5), st.integers(6, 14)),
        max_size=8,
    ),
    st.integers(1, 12),
    st.one_of(st.just(-1), st.integers(0, 40), st.integers(LAST - 2, FINE + 2)),
    st.one_of(st.integers(0, 40), st.integers(LAST - 2, FINE + 2), st.integers(2 * FINE, 3 * FINE + 5)),
)
def test_batches_are_bounded_complete_and_in_order(
    transactions: dict[int, int], size: int, after: int, before: int
) -> None:
    memory = memory_store()
    enqueue(memory, *transactions.items())
    batches = list(reader_of(memory).batches(after, before, size))
    wanted = {start: count for start, count in transactions.items() if after < start < before}
    assert [start for batch in batches for start in starts(batch)] == [
        start for start in sorted(wanted) for _ in range(wanted[start])
    ]
    last_of = {start: number for number, batch in enumerate(batches) for start in starts(batch) if start is not None}
    seen = -1
    for number, batch in enumerate(batches):
        assert len(batch.entries) <= size or len(set(starts(batch))) == 1, "larger only if one start is"
        for start in {start for start in starts(batch) if start is not None and transactions[start] <= 5}:
            assert starts(batch).count(start) == transactions[start], "split"
        if batch.through is not None:
            assert all(last_of[start] <= number for start in wanted if start <= batch.through), "not dealt with yet"
            assert batch.through < before
            seen = max(seen, batch.through)
        assert all((partition + 1) * FINE - 1 <= seen for partition in batch.partitions)
    throughs = [batch.through for batch in batches if batch.through is not None]
    assert all(one < other for one, other in pairwise(throughs))
    if batches:
        touched = {start // FINE for start in transactions if after // FINE <= start // FINE and start < before}
        complete = sorted(partition for partition in touched if (partition + 1) * FINE <= before)
        used_up = [partition for batch in batches for partition in batch.partitions]
        assert used_up == [partition for partition in complete if (partition + 1) * FINE - 1 > after]


class TestLateEntries:
    """Entries in past partitions."""

    def test_whole_partitions_are_read_where_something_is(self, store: Store) -> None:
        enqueue(store, (5, 2), (2 * FINE + 7, 9))
        batches = list(reader_of(store).late(0, 4 * FINE - 1, 200))
        assert [starts(batch) for batch in batches] == [[5, 5], [2 * FINE + 7] * 9]
        assert [batch.partitions for batch in batches] == [[0], [2]]
        assert [row for _, row in batches[1].dedicated] == dedicated_rows(2 * FINE + 7, CONSERVATIVE, 0, 3)

    def test_they_are_found_without_a_mark(self, store: Store) -> None:
        store.put(5, {QUEUE_CELLS: {Cell(shared_row(0, CONSERVATIVE, 0), cells_column(5, 0)): b"?"}})
        assert reader_of(store).partitions(-1, FINE) == []
        (batch,) = reader_of(store).late(0, LAST, 200)
        assert (starts(batch), batch.partitions) == ([5], [0])

    def test_a_mark_without_a_row_is_found_to_be_cleaned(self, store: Store) -> None:
        enqueue(store, (5, 1))
        store.delete_rows(QUEUE_CELLS, [shared_row(0, CONSERVATIVE, 0)])
        (batch,) = reader_of(store).late(0, LAST, 200)
        assert (starts(batch), batch.partitions) == ([], [0])

    def test_the_current_partition_is_not_among_them(self, store: Store) -> None:
        enqueue(store, (5, 2), (10, 9))
        assert list(reader_of(store).late(0, 25, 200)) == []

    def test_it_reads_back_only_to_a_limit(self, store: Store) -> None:
        enqueue(store, (5, 1), (FINE, 1))
        store.put(2, {QUEUE_CELLS: {Cell(shared_row(2, CONSERVATIVE, 0), cells_column(5, 0)): b"?"}})
        assert [batch.partitions for batch in reader_of(store).late(FINE, 5 * FINE - 1, 3)] == [[1], [2]]
        assert [batch.partitions for batch in reader_of(store).late(FINE, 5 * FINE - 1, 2)] == [[1]]
