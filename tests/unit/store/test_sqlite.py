"""What is special about the SQLite store: many processes, schema versions, files that are something else."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import NotInitialised, OtherSchema, StoreBusy, StoreError, StoreMissing
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, TableState, Version, VersionRange
from sweep_tasks.store import Change, Store
from sweep_tasks.store.schema import LEASES, MARKS_MOVE_AT, SYSTEM_TABLES, THRESHOLDS, old_mark
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.sqlite.schema import STEPS, add_table, physical_name, quoted
from sweep_tasks.tables.catalog import Catalog
from tests.support.errors import having
from tests.support.processes import in_processes

WRITERS = 8
COUNTER = Cell(b"counter", b"v")
TABLE = TableRef.parse("app.items")
DROPPED = TableRef.parse("app.dropped")
A = Cell(b"a", b"c")


def count_up(_: int, url: str, times: int) -> int:
    """Half by update, half by compare-and-set; how often the latter had to be tried again."""
    retries = 0
    with open_store(url, Settings()) as store:
        for index in range(times):
            if index % 2:
                store.update(LEASES, COUNTER, lambda old: var_long(read_var_long(old or b"\0")[0] + 1))
                continue
            while True:
                old = store.read(LEASES, [COUNTER]).get(COUNTER)
                new = var_long(read_var_long(old or b"\0")[0] + 1)
                if store.compare_and_set(LEASES, COUNTER.row, {COUNTER.column: Change(old, new)}):
                    break
                retries += 1
    return retries


def write_rows(number: int, url: str, rounds: int) -> int:
    """Each call writes the same mark to a hundred cells; a reader must never see a mix. Returns the number of reads."""
    reads = 0
    cells = [Cell(b"%03d" % n, b"c") for n in range(100)]
    with open_store(url, Settings()) as store:
        for index in range(rounds):
            store.put(7, {TABLE: dict.fromkeys(cells, b"%d-%d" % (number, index))})
            seen = {version.value for version in store.get(TABLE, dict.fromkeys(cells, 8)).values()}
            assert len(seen) == 1, "a torn write was seen"
            reads += 1
    return reads


def test_no_call_about_some_cells_scans_a_whole_table(sqlite_url: str) -> None:
    cells = [Cell(b"%03d" % n, b"c") for n in range(3)]
    output: list[str] = []
    opened = SQLiteStore(sqlite_url.removeprefix("sqlite:///"))
    with opened as store:
        store.create_table(TABLE, TableMetadata())
        with opened.connections.reading() as connection:
            connection.set_trace_callback(output.append)
        store.put(7, {TABLE: dict.fromkeys(cells, b"v")})
        store.get(TABLE, dict.fromkeys(cells, 8))
        store.newest(TABLE, dict.fromkeys(cells, 8))
        store.timestamps(TABLE, cells)
        store.scan_versions(TABLE, limit=1, after=(cells[0], 7))
        store.delete_versions(TABLE, [(cell, 7) for cell in cells])
        store.delete_ranges(TABLE, [VersionRange(cell, 0, 7) for cell in cells])
        store.put_if_absent(LEASES, dict.fromkeys(cells, b"v"))
        store.compare_and_set(LEASES, cells[0].row, {cells[0].column: Change(b"v", b"w")})
        store.read(LEASES, cells)
        store.read_rows(LEASES, [cell.row for cell in cells])
        store.remove(LEASES, cells)
        connection.set_trace_callback(None)
        plans = {
            statement: [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in output
            if statement.startswith(("SELECT", "WITH", "DELETE"))
        }
    assert len(plans) > 9
    scans = [step for steps in plans.values() for step in steps if step.startswith("SCAN")]
    assert {step for step in scans if step != "SCAN wanted" and "CONSTANT ROW" not in step} == set()


def test_eight_writer_processes_lose_no_update(sqlite_url: str) -> None:
    in_processes(WRITERS, count_up, sqlite_url, 200)
    with open_store(sqlite_url, Settings()) as store:
        assert read_var_long(store.read(LEASES, [COUNTER])[COUNTER])[0] == WRITERS * 200


def test_eight_writer_processes_never_see_a_torn_write(sqlite_url: str, sqlite: Store) -> None:
    sqlite.create_table(TABLE, TableMetadata())
    assert in_processes(WRITERS, write_rows, sqlite_url, 50) == [50] * WRITERS


def test_threads_share_a_store(sqlite: Store) -> None:
    def count() -> None:
        for _ in range(100):
            sqlite.update(LEASES, COUNTER, lambda old: var_long(read_var_long(old or b"\0")[0] + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_var_long(sqlite.read(LEASES, [COUNTER])[COUNTER])[0] == 400


def test_a_forked_child_opens_connections_of_its_own(sqlite: Store) -> None:
    sqlite.create_table(TABLE, TableMetadata())
    sqlite.put(5, {TABLE: {A: b"parent"}})
    child = os.fork()
    if child == 0:
        sqlite.put(6, {TABLE: {A: b"child"}})
        sqlite.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sqlite.get(TABLE, {A: 9}) == {A: Version(6, b"child")}
    sqlite.put(7, {TABLE: {A: b"parent again"}})
    assert sqlite.get(TABLE, {A: 9}) == {A: Version(7, b"parent again")}


def test_a_locked_store_says_so_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SQLiteStore.initialise(path)
    with SQLiteStore(path, busy_timeout_s=0.05) as store:
        store.create_table(TABLE, TableMetadata())
        hog = sqlite3.connect(path, isolation_level=None)
        hog.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy) as refused:
            store.put(5, {TABLE: {A: b"v"}})
        assert (refused.value.reason, "0.05" in str(refused.value)) == ("locked", True)
        hog.execute("ROLLBACK")
        hog.close()
        assert store.scan_versions(TABLE).items == []
        store.put(5, {TABLE: {A: b"v"}})


def test_a_table_dropped_and_created_again_by_another_process_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SQLiteStore.initialise(path)
    with SQLiteStore(path) as here, SQLiteStore(path) as there:
        here.create_table(TABLE, TableMetadata())
        here.put(5, {TABLE: {A: b"old"}})
        Catalog(there).drop(TABLE)
        Catalog(there).create(TABLE, TableMetadata())
        here.put(6, {TABLE: {A: b"new"}})
        assert there.timestamps(TABLE, [A]) == {A: [6]}


class TestOpening:
    def test_a_file_that_is_not_there_is_missing_and_not_created(self, tmp_path: Path) -> None:
        path = tmp_path / "nothing.db"
        with pytest.raises(StoreMissing) as refused:
            SQLiteStore(path)
        assert (refused.value.where, refused.value.reason) == (f"sqlite:///{path}", "missing_file")
        assert not path.exists()

    def test_a_folder_that_is_not_there_is_not_created_for_a_new_store(self, tmp_path: Path) -> None:
        with pytest.raises(StoreMissing) as refused:
            SQLiteStore.initialise(tmp_path / "not" / "mounted" / "store.db")
        assert refused.value.reason == "missing_folder"
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_file_is_not_a_store_until_it_is_initialised(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.db"
        path.touch()
        with pytest.raises(NotInitialised):
            SQLiteStore(path)
        assert SQLiteStore.initialise(path)

    def test_initialising_again_keeps_everything(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        assert SQLiteStore.initialise(path)
        with SQLiteStore(path) as store:
            store.create_table(TABLE, TableMetadata())
        assert not SQLiteStore.initialise(path)
        with SQLiteStore(path) as store:
            assert TABLE in store.tables()

    def test_many_processes_may_initialise_at_once(self, tmp_path: Path) -> None:
        assert sum(in_processes(4, initialise, str(tmp_path / "store.db"))) == 1

    def test_another_programs_database_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE theirs (x)")
        other.close()
        for use in (SQLiteStore.initialise, SQLiteStore):
            with pytest.raises(StoreError) as refused:
                use(path)
            assert refused.value.reason == "another_program"

    def test_a_file_that_is_no_database_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("dear diary, " * 100)
        with pytest.raises(StoreError) as refused:
            SQLiteStore.initialise(path)
        assert refused.value.reason == "not_sqlite"
        assert path.read_text().startswith("dear diary")

    def test_a_newer_schema_is_refused_and_untouched(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        later = [*STEPS, note_of_a_later_version]
        SQLiteStore.initialise(path, steps=later)
        with pytest.raises(OtherSchema, check=having(is_older=False)) as refused:
            SQLiteStore(path)
        assert (refused.value.found, refused.value.known) == (len(later), len(STEPS))
        with pytest.raises(OtherSchema, check=having(is_older=False)):
            SQLiteStore.initialise(path)
        SQLiteStore(path, steps=later).close()

    def test_an_older_schema_is_migrated_on_opening_and_keeps_its_data(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        SQLiteStore.initialise(path)
        with SQLiteStore(path) as store:
            store.create_table(TABLE, TableMetadata())
            store.put(5, {TABLE: {A: b"v"}})
        with SQLiteStore(path, steps=[*STEPS, note_of_a_later_version]) as store:
            assert store.get(TABLE, {A: 6}) == {A: Version(5, b"v")}
        raw = sqlite3.connect(path)
        assert raw.execute("SELECT text FROM later_version").fetchall() == [("migrated",)]
        raw.close()

    @pytest.mark.parametrize("version", range(1, len(STEPS)))
    def test_every_earlier_schema_is_brought_up_to_this_one(self, tmp_path: Path, version: int) -> None:
        path = tmp_path / "store.db"
        SQLiteStore.initialise(path, steps=STEPS[:version])
        with SQLiteStore(path) as store:
            assert store.tables() == SYSTEM_TABLES

    def test_a_migration_that_fails_leaves_the_store_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        SQLiteStore.initialise(path)

        def broken(connection: sqlite3.Connection) -> None:
            note_of_a_later_version(connection)
            raise RuntimeError("half way")

        with pytest.raises(RuntimeError):
            SQLiteStore(path, steps=[*STEPS, broken])
        SQLiteStore(path).close()
        SQLiteStore(path, steps=[*STEPS, note_of_a_later_version]).close()


def initialise(_: int, path: str) -> bool:
    return SQLiteStore.initialise(path)


def note_of_a_later_version(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE later_version (text)")
    connection.execute("INSERT INTO later_version VALUES ('migrated')")


class TestMarksOfAnOlderStore:
    """They were stored with the thresholds; nothing else was left of a dropped table."""

    def opened(self, path: Path) -> SQLiteStore:
        before = STEPS[:MARKS_MOVE_AT]
        SQLiteStore.initialise(path, steps=before)
        with sqlite3.connect(path) as old:
            numbers = {name: number for number, name, *_ in old.execute("SELECT * FROM catalog")}
            thresholds = quoted(physical_name(THRESHOLDS, numbers[str(THRESHOLDS)]))
            for table, mark in ((TABLE, 70), (DROPPED, 80)):
                row, column = old_mark(table)
                old.execute(f"INSERT INTO {thresholds} VALUES (?, ?, ?, NULL)", (row, column, var_long(mark)))
            add_table(old, TABLE, TableMetadata(SweepStrategy.THOROUGH))
        old.close()
        return SQLiteStore(path)

    def test_move_into_the_catalog(self, tmp_path: Path) -> None:
        with self.opened(tmp_path / "store.db") as store:
            rows = store.catalog_rows([TABLE, DROPPED])
            assert rows[TABLE] == TableMetadata(SweepStrategy.THOROUGH, mark=70)
            assert (rows[DROPPED].state, rows[DROPPED].mark) == (TableState.GONE, 80)
            assert DROPPED not in store.tables()

    def test_a_table_that_was_dropped_there_is_created_again_as_another_incarnation(self, tmp_path: Path) -> None:
        with self.opened(tmp_path / "store.db") as store:
            TimestampService(store).move_past(90)
            Catalog(store).create(DROPPED, TableMetadata())
            created = store.tables([DROPPED])[DROPPED]
            assert (created.incarnation, created.mark) == (2, 91)
            store.put(95, {DROPPED: {A: b"v"}})
            assert store.timestamps(DROPPED, [A]) == {A: [95]}


class TestPrivacy:
    @staticmethod
    def modes(path: Path) -> dict[str, int]:
        """While the store is open, so that its log and its index are there."""
        settings = load_settings(store=f"sqlite:///{path}")
        with open_store(settings.store, settings) as store:
            TimestampService(store).fresh()
            return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
    def test_a_new_store_is_for_its_owner_alone(self, tmp_path: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            SQLiteStore.initialise(tmp_path / "store.db")
            assert self.modes(tmp_path / "store.db") == dict.fromkeys(
                ("store.db", "store.db-wal", "store.db-shm"), 0o600
            )
        finally:
            os.umask(before)

    def test_one_that_was_opened_to_others_stays_open(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        SQLiteStore.initialise(path)
        path.chmod(0o664)
        SQLiteStore.initialise(path)
        assert self.modes(path) == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o664)
