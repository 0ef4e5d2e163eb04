"""Adding entries: where they are stored, in which order, and how they are withdrawn."""

from __future__ import annotations

from collections import Counter

import pytest

import sweep_tasks.queue.writer as writer_module
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import EXIT_BAD_INPUT, LimitExceeded
from sweep_tasks.model import MAX_TS, Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import (
    QueuedWrite,
    cells_column,
    dedicated_rows,
    read_cells_column,
    read_cells_row,
    read_write,
    shared_row,
    timestamps_row,
)
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter, shard_of
from sweep_tasks.store import Store
from sweep_tasks.store.faults import ProcessCrashed, crash, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.unit.queue.recording import Recorder

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
TABLE, THOROUGH_TABLE, QUIET = (TableRef.parse(f"app.{name}") for name in ("items", "thorough", "quiet"))
TABLES = {
    TABLE: TableMetadata(), THOROUGH_TABLE: TableMetadata(THOROUGH), QUIET: TableMetadata(NOTHING),
}  # fmt: skip
CELLS, TIMESTAMPS = str(QUEUE_CELLS), str(QUEUE_TIMESTAMPS)


def cells(count: int, value: bytes = b"v") -> dict[Cell, bytes]:
    return {Cell(b"row%d" % number, b"c"): value for number in range(count)}


def queued(store: Store) -> dict[bytes, list[tuple[int, int]]]:
    """The queue by row: modulus and write index of each column."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for cell, _ in store.scan(QUEUE_CELLS, MAX_TS).items:
        found.setdefault(cell.row, []).append(read_cells_column(cell.column))
    return found


def marks(store: Store) -> set[Cell]:
    return {cell for cell, _ in store.scan(QUEUE_TIMESTAMPS, MAX_TS).items}


class TestRowsOfWrites:
    def test_a_write_is_marked_and_recorded_at_its_start(self, store: Store) -> None:
        start = 10_050_007
        QueueWriter(store).enqueue(start, {TABLE: {Cell(b"r", b"c"): b"v", Cell(b"r", b"d"): b""}}, TABLES)
        assert marks(store) == {Cell(timestamps_row(0, 1, CONSERVATIVE), var_long(201))}
        entries = store.scan(QUEUE_CELLS, MAX_TS).items
        assert [cell for cell, _ in entries] == [
            Cell(shared_row(201, CONSERVATIVE, 0), cells_column(7, index)) for index in (0, 1)
        ]
        assert {version.ts for _, version in entries} == {start}
        assert {read_write(version.value) for _, version in entries} == {
            QueuedWrite(1, Cell(b"r", b"c"), False), QueuedWrite(1, Cell(b"r", b"d"), True),
        }  # fmt: skip

    def test_each_strategy_has_its_own_row(self, store: Store) -> None:
        QueueWriter(store).enqueue(5, {TABLE: cells(2), THOROUGH_TABLE: cells(3)}, TABLES)
        assert queued(store) == {
            shared_row(0, CONSERVATIVE, 0): [(5, 0), (5, 1)],
            shared_row(0, THOROUGH, 0): [(5, 0), (5, 1), (5, 2)],
        }

    def test_a_table_that_is_not_swept_leaves_nothing_in_the_queue(self, store: Store) -> None:
        recorder = Recorder(store)
        QueueWriter(recorder.store).enqueue(5, {QUIET: cells(60)}, TABLES)
        assert recorder.steps == []
        assert queued(store) == {}
        assert marks(store) == set()

    def test_a_transaction_without_writes_queues_nothing(self, store: Store) -> None:
        recorder = Recorder(store)
        QueueWriter(recorder.store).enqueue(5, {}, {})
        assert recorder.steps == []

    def test_fifty_writes_fit_the_shared_row(self, store: Store) -> None:
        QueueWriter(store).enqueue(5, {TABLE: cells(50)}, TABLES)
        assert queued(store) == {shared_row(0, CONSERVATIVE, 0): [(5, index) for index in range(50)]}

    def test_fifty_one_get_a_dedicated_row_and_a_reference(self, store: Store) -> None:
        start = 50_005
        QueueWriter(store).enqueue(start, {TABLE: cells(51)}, TABLES)
        (dedicated,) = dedicated_rows(start, CONSERVATIVE, 0, 1)
        assert queued(store) == {
            shared_row(1, CONSERVATIVE, 0): [(5, -1)],
            dedicated: [(5, index) for index in range(51)],
        }

    def test_the_number_of_shards_is_read_once_a_minute(self, store: Store, clock: ManualClock) -> None:
        """The number never falls: a writer that knows a lower one uses shards that are swept as well."""
        writer = QueueWriter(store, clock=clock)

        def shards_written(start: int) -> set[int]:
            writer.enqueue(start, {TABLE: cells(40)}, TABLES)
            return {read_cells_row(row)[1].shard for row in queued(store)}

        assert shards_written(5) == {0}
        Progress(store).raise_shards(4)
        clock.advance(59)
        assert shards_written(6) == {0}
        clock.advance(1)
        assert shards_written(7) == {0, 1, 2, 3}

    def test_fifty_is_counted_for_each_shard_alone(self, store: Store) -> None:
        Progress(store).raise_shards(4)
        QueueWriter(store).enqueue(5, {TABLE: cells(150)}, TABLES)
        rows = [read_cells_row(row)[1] for row in queued(store)]
        assert all(not metadata.dedicated for metadata in rows), "150 in four shards are fewer than 51 in each"
        assert {metadata.shard for metadata in rows} == {0, 1, 2, 3}

    def test_several_dedicated_rows_are_filled_in_order(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 30)
        QueueWriter(store).enqueue(5, {TABLE: cells(70)}, TABLES)
        rows = dedicated_rows(5, CONSERVATIVE, 0, 3)
        found = queued(store)
        assert found[shared_row(0, CONSERVATIVE, 0)] == [(5, -3)]
        assert [found[row] for row in rows] == [[(5, index) for index in range(count)] for count in (30, 30, 10)]


class TestTheLimit:
    def test_as_many_writes_as_fit_are_accepted(self, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 2)
        QueueWriter(memory).enqueue(5, {TABLE: cells(128)}, TABLES)
        assert queued(memory)[shared_row(0, CONSERVATIVE, 0)] == [(5, -64)]

    def test_one_write_too_many_is_refused_before_anything_is_queued(
        self, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 2)
        with pytest.raises(LimitExceeded, check=having(exit_code=EXIT_BAD_INPUT)) as refused:
            QueueWriter(memory).enqueue(5, {TABLE: cells(129), THOROUGH_TABLE: cells(1)}, TABLES)
        assert (refused.value.details["writes"], refused.value.details["shard"], refused.value.details["most"]) == (
            129,
            0,
            128,
        )
        assert queued(memory) == {}
        assert marks(memory) == set()


class TestOrder:
    def test_marks_then_the_shared_row_then_the_dedicated_rows(
        self, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 40)
        writer = QueueWriter(memory)
        writer.enqueue(1, {TABLE: cells(1)}, TABLES)
        recorder = Recorder(memory)
        QueueWriter(recorder.store).enqueue(5, {TABLE: cells(60), THOROUGH_TABLE: cells(2)}, TABLES)
        steps = [step for step in recorder.steps if step[1] in (CELLS, TIMESTAMPS)]
        assert steps == [("put", TIMESTAMPS), ("put", CELLS), ("put", CELLS), ("put", CELLS)]
        _, shared, first, second = (call for call in recorder.calls if call.name == "put")
        assert {cell.row for cell in shared.arguments[1][QUEUE_CELLS]} == {
            shared_row(0, CONSERVATIVE, 0), shared_row(0, THOROUGH, 0),
        }  # fmt: skip
        rows = dedicated_rows(5, CONSERVATIVE, 0, 2)
        assert [{cell.row for cell in call.arguments[1][QUEUE_CELLS]} for call in (first, second)] == [
            {rows[0]}, {rows[1]},
        ]  # fmt: skip

    def test_a_writer_that_dies_in_between_leaves_only_what_can_be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 40)
        for puts in (1, 2, 3, 4):
            store = MemoryStore()
            for table in (QUEUE_CELLS, QUEUE_TIMESTAMPS):
                store.create_table(table, TableMetadata(NOTHING))
            for name in ("sweepNameToId", "sweepIdToName", "sweepProgressPerShard"):
                store.create_table(TableRef("sweep", name), TableMetadata(NOTHING))
            dying = Recorder(store).store
            dying.after = on("put", puts, crash)
            with pytest.raises(ProcessCrashed):
                QueueWriter(dying).enqueue(5, {TABLE: cells(60)}, TABLES)
            found = queued(store)
            assert marks(store), "the mark leads to all that is stored"
            assert bool(found) == (puts > 1)
            if found:
                assert found.pop(shared_row(0, CONSERVATIVE, 0)) == [(5, -2)]
            assert found.keys() <= set(dedicated_rows(5, CONSERVATIVE, 0, 2)), "the reference leads to each"

    def test_a_partition_is_marked_once_by_a_process(self, memory: MemoryStore) -> None:
        recorder = Recorder(memory)
        writer = QueueWriter(recorder.store)
        for start in (5, 6, 49_999):
            writer.enqueue(start, {TABLE: cells(1)}, TABLES)
        assert recorder.steps.count(("put", TIMESTAMPS)) == 1
        writer.enqueue(50_000, {TABLE: cells(1)}, TABLES)
        writer.enqueue(50_001, {TABLE: cells(1), THOROUGH_TABLE: cells(1)}, TABLES)
        assert recorder.steps.count(("put", TIMESTAMPS)) == 3, "a new partition, and a new strategy in it"
        assert len(marks(memory)) == 3

    def test_many_processes_leave_one_version_of_a_mark(self, store: Store) -> None:
        for start in (5, 6, 7):
            QueueWriter(store).enqueue(start, {TABLE: cells(1)}, TABLES)
        assert len(store.scan_versions(QUEUE_TIMESTAMPS).items) == 1


class TestWithdrawing:
    @pytest.mark.parametrize("count", [1, 50, 51, 130])
    def test_everything_of_the_transaction_is_removed_and_nothing_else(
        self, store: Store, count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 60)
        writer = QueueWriter(store)
        writes = {TABLE: cells(count), THOROUGH_TABLE: cells(count, b""), QUIET: cells(count)}
        writer.enqueue(5, {TABLE: cells(3)}, TABLES)
        before = store.scan_versions(QUEUE_CELLS).items
        writer.enqueue(6, writes, TABLES)
        writer.withdraw(6, writes, TABLES)
        assert store.scan_versions(QUEUE_CELLS).items == before

    def test_dedicated_rows_are_removed_before_the_reference_that_leads_to_them(self, memory: MemoryStore) -> None:
        recorder = Recorder(memory)
        writer = QueueWriter(recorder.store)
        writer.enqueue(5, {TABLE: cells(60)}, TABLES)
        recorder.calls.clear()
        writer.withdraw(5, {TABLE: cells(60)}, TABLES)
        assert recorder.steps == [("delete_rows", CELLS), ("delete_versions", CELLS)]

    def test_withdrawing_unqueued_entries_is_no_error(self, store: Store) -> None:
        QueueWriter(store).withdraw(5, {TABLE: cells(60), QUIET: cells(1)}, TABLES)
        assert queued(store) == {}


class TestShards:
    def test_a_cell_has_the_same_shard_everywhere_and_always(self) -> None:
        """The numbers are part of the stored data: a change would put new entries of a cell into another shard."""
        found = [shard_of(TABLE, Cell(b"row%d" % number, b"c"), 16) for number in range(8)]
        assert found == [0, 8, 15, 13, 11, 0, 7, 5]

    def test_one_shard_takes_everything(self) -> None:
        assert {shard_of(TABLE, cell, 1) for cell in cells(20)} == {0}

    def test_cells_spread_over_all_shards(self) -> None:
        counts = Counter(shard_of(TABLE, cell, 16) for cell in cells(16_000))
        assert sorted(counts) == list(range(16))
        assert max(counts.values()) < 1.2 * min(counts.values())

    def test_table_row_and_column_all_count(self) -> None:
        shards = [
            {shard_of(table, Cell(b"r", b"c"), 256) for table in (TABLE, THOROUGH_TABLE, QUIET)},
            {shard_of(TABLE, Cell(row, b"c"), 256) for row in (b"1", b"2", b"3")},
            {shard_of(TABLE, Cell(b"r", column), 256) for column in (b"1", b"2", b"3")},
        ]
        assert all(len(found) > 1 for found in shards)
