from __future__ import annotations

import pytest

import sweep_tasks.queue.writer as writer_module
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import dedicated_rows, shared_row
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.queue.writer import QueueCleaner, QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.faults import ProcessCrashed, crash, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from tests.conftest import memory_store
from tests.unit.queue.recording import Recorder

CONSERVATIVE, THOROUGH, _ = SweepStrategy
TABLE = TableRef.parse("app.items")
TABLES = {TABLE: TableMetadata()}
CELLS, TIMESTAMPS = str(QUEUE_CELLS), str(QUEUE_TIMESTAMPS)


def fill(store: Store) -> list[bytes]:
    """A small transaction in partition 0, one with two dedicated rows in 1, one beyond the coarse partition in 300."""
    writer = QueueWriter(store)
    for start, count in ((5, 3), (50_005, 60), (15_000_005, 1)):
        writes = {TABLE: {Cell(b"row%d" % number, b"c"): b"v" for number in range(count)}}
        writer.enqueue(start, writes, TABLES)
    return dedicated_rows(50_005, CONSERVATIVE, 0, 2)


@pytest.fixture(autouse=True)
def small_dedicated_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 40)


def test_dedicated_rows_then_shared_rows_then_marks(memory: MemoryStore) -> None:
    dedicated = fill(memory)
    recorder = Recorder(memory)
    QueueCleaner(recorder.store, CONSERVATIVE, 0).clean(dedicated, [0, 1])
    assert recorder.steps == [("delete_rows", CELLS), ("delete_rows", CELLS), ("delete_ranges", TIMESTAMPS)]
    assert list(recorder.last_argument(0)) == dedicated
    assert recorder.last_argument(1) == [shared_row(partition, CONSERVATIVE, 0) for partition in (0, 1)]


def test_cleaning_removes_all_of_a_partition_and_nothing_else(store: Store) -> None:
    dedicated = fill(store)
    cleaner = QueueCleaner(store, CONSERVATIVE, 0)
    cleaner.clean(dedicated, [0, 1])
    assert QueueReader(store, CONSERVATIVE, 0).partitions(-1, 20_000_000) == [300]
    assert {cell.row for cell, _, _ in store.scan_versions(QUEUE_CELLS).items} == {shared_row(300, CONSERVATIVE, 0)}
    cleaner.clean([], [300])
    assert store.scan_versions(QUEUE_CELLS).items == []
    assert store.scan_versions(QUEUE_TIMESTAMPS).items == []


def test_dedicated_rows_alone_leave_the_reference(store: Store) -> None:
    first, second = fill(store)
    QueueCleaner(store, CONSERVATIVE, 0).clean([first], [])
    assert {cell.row for cell, _, _ in store.scan_versions(QUEUE_CELLS).items} == {
        shared_row(0, CONSERVATIVE, 0), shared_row(1, CONSERVATIVE, 0), second, shared_row(300, CONSERVATIVE, 0),
    }  # fmt: skip


def test_other_shards_and_strategies_are_left_alone(store: Store) -> None:
    fill(store)
    before = store.scan_versions(QUEUE_CELLS).items, store.scan_versions(QUEUE_TIMESTAMPS).items
    QueueCleaner(store, THOROUGH, 0).clean([], [0, 1, 300])
    QueueCleaner(store, CONSERVATIVE, 1).clean([], [0, 1, 300])
    assert (store.scan_versions(QUEUE_CELLS).items, store.scan_versions(QUEUE_TIMESTAMPS).items) == before


def test_cleaning_nothing_makes_no_call(memory: MemoryStore) -> None:
    recorder = Recorder(memory)
    QueueCleaner(recorder.store, CONSERVATIVE, 0).clean([], [])
    assert recorder.store.calls == 0


@pytest.mark.parametrize(("name", "nth"), [("delete_rows", 1), ("delete_rows", 2), ("delete_ranges", 1)])
def test_after_a_crash_in_between_the_rows_are_found_again_by_the_mark(name: str, nth: int) -> None:
    memory = memory_store()
    dedicated = fill(memory)
    dying = Recorder(memory).store
    dying.before = on(name, nth, crash)
    with pytest.raises(ProcessCrashed):
        QueueCleaner(dying, CONSERVATIVE, 0).clean(dedicated, [0, 1])
    assert QueueReader(memory, CONSERVATIVE, 0).partitions(-1, 100_000) == [0, 1]
    QueueCleaner(memory, CONSERVATIVE, 0).clean(dedicated, [0, 1, 300])
    assert memory.scan_versions(QUEUE_CELLS).items == []
    assert memory.scan_versions(QUEUE_TIMESTAMPS).items == []
