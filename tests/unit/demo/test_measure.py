"""What a store takes on disk."""

from __future__ import annotations

from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore

TABLE = TableRef.parse("app.items")


def test_deleting_from_sqlite_frees_pages_and_keeps_the_file(sqlite: Store) -> None:
    sqlite.create_table(TABLE, TableMetadata())
    empty = sqlite.size()
    sqlite.put(1, {TABLE: {Cell(b"%d" % number, b"c"): b"v" * 1_000 for number in range(1_000)}})
    full = sqlite.size()
    sqlite.truncate(TABLE, 2)
    emptied = sqlite.size()
    assert empty is not None
    assert full is not None
    assert emptied is not None
    assert full.used > empty.used + 1_000_000
    assert emptied.used < full.used - 900_000
    assert emptied.used + emptied.free == full.used + full.free


def test_a_store_without_a_file_has_no_size(memory: MemoryStore) -> None:
    assert memory.size() is None
