"""The output about compaction for stores without tombstones, and where sweeps have left some."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sweep_tasks.errors import StoreBusy
from sweep_tasks.model import MAX_TS, Cell, TableMetadata, TableRef
from sweep_tasks.store.sqlite import SQLiteStore
from tests.support.command import sweepflow

TABLE = TableRef.parse("app.items")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of which much was deleted."""
    file = tmp_path / "store.db"
    SQLiteStore.initialise(file)
    with SQLiteStore(file) as store:
        store.create_table(TABLE, TableMetadata())
        cells = [Cell(b"row-%04d" % number, b"c") for number in range(4_000)]
        store.put(10, {TABLE: dict.fromkeys(cells, b"v" * 500)})
        store.delete_versions(TABLE, [(cell, 10) for cell in cells[10:]])
    return file


def test_sqlite_has_no_tombstones_and_returns_its_free_pages(path: Path) -> None:
    url = f"sqlite:///{path}"
    before = path.stat().st_size
    dry = sweepflow("compaction", "vacuum", "--dry-run", "--json", "--store", url)
    assert dry.code == 0
    assert (dry.document["tombstones"], dry.document["how"], dry.document["bytes_freed"]) == (0, "vacuum", 0)
    assert dry.document["bytes_free"] > 1024 * 1024
    assert path.stat().st_size == before
    refused = sweepflow("compaction", "vacuum", "--json", "--store", url)
    assert (refused.code, refused.document["error"]) == (2, "not_confirmed")
    assert path.stat().st_size == before

    done = sweepflow("compaction", "vacuum", "--yes", "--store", url)
    assert done.code == 0
    assert f"{(before - path.stat().st_size) / 1024 / 1024:.1f} MiB" in done.out
    assert path.stat().st_size <= before - dry.document["bytes_free"]
    with SQLiteStore(path) as store:
        assert len(store.scan(TABLE, MAX_TS).items) == 10

    again = sweepflow("compaction", "vacuum", "--json", "--store", url).document
    assert (again["tombstones"], again["bytes_free"], again["bytes_freed"]) == (0, 0, 0)


def test_a_process_that_uses_the_file_is_waited_for_and_then_named(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        refused = sweepflow(
            "compaction", "vacuum", "--yes", "--json", "--store", f"sqlite:///{path}",
            SWEEPFLOW_SQLITE_BUSY_TIMEOUT_S="0.1",
        )  # fmt: skip
    assert (refused.code, refused.document["error"], refused.document["reason"]) == (4, "unavailable", "locked")
    assert isinstance(refused.error, StoreBusy)


def test_the_memory_store_has_nothing_to_vacuum() -> None:
    for_scripts = sweepflow("compaction", "vacuum", "--json", "--store", "memory:").document
    assert (for_scripts["how"], for_scripts["tombstones"], for_scripts["bytes_free"]) == (None, 0, 0)
    answer = sweepflow("compaction", "vacuum", "--store", "memory:")
    assert (answer.code, answer.out.count("\n")) == (0, 1)


def test_a_store_without_a_ring_is_reported(path: Path) -> None:
    for url in ("memory:", f"sqlite:///{path}"):
        assert sweepflow("compaction", "ranges", "--json", "--store", url).document == {"ring": False, "tables": []}
    answer = sweepflow("compaction", "ranges", "--store", f"sqlite:///{path}")
    assert (answer.code, "compaction vacuum" in answer.out) == (0, True)


def test_marking_ranges_as_compacted_needs_a_node() -> None:
    answer = sweepflow("compaction", "ranges", "--done", "--store", "memory:")
    assert (answer.code, answer.err) == (2, f"error: {answer.error}\n")
    assert answer.error
    assert answer.error.field == "done"
    assert "--node" in answer.err
