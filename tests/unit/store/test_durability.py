"""Which commits of a SQLite store survive a power cut: all of them, or, with the setting `normal`, those that must."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile

import pytest

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Change, Store
from sweep_tasks.store.schema import ALWAYS_DURABLE, TRANSACTIONS
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.sqlite.connection import Durability

OFF, NORMAL, FULL = 0, 1, 2
TABLE = TableRef.parse("app.items")
A = Cell(b"a", b"c")


@pytest.fixture(params=["normal", "full"])
def durability(request: pytest.FixtureRequest) -> Durability:
    found: Durability = request.param
    return found


@pytest.fixture
def opened(tmp_path: Path, empty_sqlite: Path, durability: Durability) -> Iterator[SQLiteStore]:
    store = SQLiteStore(copyfile(empty_sqlite, tmp_path / "store.db"), durability=durability)
    with store:
        store.create_table(TABLE, TableMetadata())
        yield store


@contextmanager
def watched(store: SQLiteStore) -> Iterator[list[int]]:
    """How each commit of this thread is synced, as SQLite itself reports at that moment."""
    seen: list[int] = []

    def look(statement: str) -> None:
        if statement == "COMMIT":
            seen.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    with store.connections.reading() as connection:
        connection.set_trace_callback(look)
    yield seen
    connection.set_trace_callback(None)


CHANGES: dict[str, Callable[[Store, TableRef], object]] = {
    "update": lambda store, table: store.update(table, A, lambda _: b"1"),
    "put_if_absent": lambda store, table: store.put_if_absent(table, {A: b"1"}),
    "compare_and_set": lambda store, table: store.compare_and_set(table, A.row, {A.column: Change(None, b"1")}),
    "remove": lambda store, table: store.remove(table, [A]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", sorted(ALWAYS_DURABLE))
def test_data_that_others_rely_on_is_synced_at_every_change_whatever_the_setting(
    opened: SQLiteStore, change: str, table: TableRef
) -> None:
    opened.put(1, {TABLE: {A: b"before"}})
    with watched(opened) as seen:
        CHANGES[change](opened, table)
    assert seen == [FULL]


def test_timestamps_are_synced_and_other_commits_as_the_setting_says(
    opened: SQLiteStore, durability: Durability
) -> None:
    timestamps = TimestampService(opened)
    other = NORMAL if durability == "normal" else FULL
    with watched(opened) as seen:
        timestamps.fresh()
        opened.put(1, {TABLE: {A: b"1"}})
        opened.put_if_absent(TRANSACTIONS, {A: b"1"})
        timestamps.fresh_many(10)
        opened.put(2, {TABLE: {A: b"2"}})
        timestamps.move_past(1_000)
    assert seen == [FULL, other, other, FULL, other, FULL]


def test_a_store_for_a_moment_syncs_nothing(tmp_path: Path, empty_sqlite: Path) -> None:
    store = SQLiteStore(copyfile(empty_sqlite, tmp_path / "store.db"), durability="off")
    with store, watched(store) as seen:
        TimestampService(store).fresh()
        store.create_table(TABLE, TableMetadata())
    assert seen == [OFF, OFF]


def test_an_accepted_protection_is_synced(opened: SQLiteStore, durability: Durability) -> None:
    record = Record("backup", TimestampService(opened).fresh(), Mode.AT, (Target(TABLE),))
    with watched(opened) as seen:
        ProtectionCatalog(opened).protect(record)
    *before, outcome_copied, outcome = seen
    assert before
    assert set(before) == {FULL}
    assert (outcome_copied, outcome) == (NORMAL if durability == "normal" else FULL, FULL), (
        "a log is synced up to its last commit"
    )
