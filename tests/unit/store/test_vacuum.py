"""A SQLite file returns the space of deleted data to the disk, and keeps every stored byte."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sweep_tasks.errors import StoreBusy, StoreUnavailable
from sweep_tasks.model import MAX_TS, Cell, TableMetadata, TableRef
from sweep_tasks.store.sqlite import SQLiteStore

TABLE = TableRef.parse("app.items")


class Created(NamedTuple):
    store: SQLiteStore
    path: Path

    def contents(self) -> tuple[Any, ...]:
        cells = self.store.scan(TABLE, MAX_TS, limit=10_000).items
        with closing(sqlite3.connect(self.path)) as connection:
            schema = connection.execute("SELECT type, tbl_name, name, sql FROM sqlite_schema ORDER BY 1, 3").fetchall()
            versions = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        return cells, self.store.tables(), schema, versions

    def bytes_on_disk(self) -> int:
        return sum(file.stat().st_size for file in self.path.parent.glob("store.db*"))


@pytest.fixture(params=["vacuum", "incremental_vacuum"])
def created(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Created]:
    with half_empty(tmp_path / "store.db", request.param) as found:
        yield found


@contextmanager
def half_empty(path: Path, how: str) -> Iterator[Created]:
    """With most of what was in it deleted again."""
    if how == "incremental_vacuum":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA auto_vacuum = incremental")
            connection.execute("VACUUM")
    SQLiteStore.initialise(path)
    with closing(SQLiteStore(path, busy_timeout_s=0.2)) as store:
        assert store.how_to_vacuum() == how
        store.create_table(TABLE, TableMetadata())
        cells = [Cell(b"row-%04d" % number, b"c") for number in range(2_000)]
        store.put(10, {TABLE: dict.fromkeys(cells, b"v" * 2_500)})
        store.delete_versions(TABLE, [(cell, 10) for cell in cells[100:]])
        yield Created(store, path)


def test_the_file_shrinks_by_what_was_free_and_holds_the_same(created: Created) -> None:
    before, contents, on_disk = created.store.size(), created.contents(), created.bytes_on_disk()
    assert before.free > 5 * before.used
    done = created.store.vacuum()
    assert (done.before, done.waiting) == (before, False)
    assert done.after.free == 0
    assert done.after.used <= before.used
    assert created.contents() == contents
    assert created.bytes_on_disk() <= on_disk - before.free
    assert created.path.stat().st_size == sum(done.after)


def test_again_changes_nothing(created: Created) -> None:
    first = created.store.vacuum().after
    assert created.store.vacuum().after == first


def test_during_a_write_it_is_refused_and_nothing_changes(created: Created) -> None:
    before, contents = created.store.size(), created.contents()
    with closing(sqlite3.connect(created.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy) as refused:
            created.store.vacuum()
        assert refused.value.reason == "locked"
        other.execute("ROLLBACK")
    assert (created.store.size(), created.contents()) == (before, contents)


def test_during_a_read_it_is_done_and_reports_that_the_file_shrinks_later(created: Created) -> None:
    contents = created.contents()
    with closing(sqlite3.connect(created.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM catalog").fetchone()
        assert created.store.vacuum().waiting
        assert created.contents() == contents
        other.execute("ROLLBACK")


def test_a_disk_without_space_for_a_second_file_is_reported_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with half_empty(tmp_path / "store.db", "vacuum") as created:
        usage, before = shutil.disk_usage(tmp_path), created.store.size()
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000))
        with pytest.raises(StoreUnavailable) as refused:
            created.store.vacuum()
        assert (refused.value.reason, "1000" in str(refused.value)) == ("disk_full", True)
        assert created.store.size() == before
