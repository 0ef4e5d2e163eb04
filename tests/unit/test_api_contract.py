"""The public API as a contract: complete, typed, strict about its arguments, and safe to fork at any time."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import sweep_tasks
from sweep_tasks import (
    BadValue,
    Cell,
    Database,
    Snapshot,
    Span,
    StoreError,
    SweepflowError,
    SweepStrategy,
    TableRef,
    Tables,
    Tracker,
    Transaction,
    connect,
)
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import ScanReason
from sweep_tasks.tables.deletions import DeleteKind, DeleteTally, Deletions
from tests.support.errors import having

ORDERS = TableRef.parse("shop.orders")
JOURNAL = TableRef("", "_journal")
HANDLES = (Database, Tables, Transaction, Snapshot, Tracker)
API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture
def db() -> Iterator[Database]:
    with connect("memory:") as opened:
        opened.tables.create(ORDERS)
        yield opened


class TestWhatItOffers:
    def methods(self) -> Iterator[tuple[type, str, Any]]:
        for handle in HANDLES:
            for name, member in inspect.getmembers(handle):
                of_jobs = handle is Snapshot and not hasattr(Transaction, name)  # what only our own jobs read
                is_call = inspect.isfunction(member) or isinstance(member, property)
                if is_call and not name.startswith("_") and not of_jobs:
                    yield handle, name, member

    def test_every_type_in_a_signature_can_be_imported_from_the_package(self) -> None:
        functions = [connect, *(each.fget if isinstance(each, property) else each for _, _, each in self.methods())]
        named = {kind for function in functions for hint in hints(function) for kind in classes(hint)}
        ours = {kind.__name__ for kind in named if kind.__module__.startswith("sweep_tasks")}
        assert {"Status", "Summary", "TableMetadata", "Record", "KnownProtections"} <= ours
        assert ours - set(sweep_tasks.__all__) == set()

    def test_every_method_of_the_handle_is_on_its_page(self) -> None:
        page = API_PAGE.read_text()
        left_out = [name for handle, name, _ in self.methods() if handle in (Database, Tables) and name not in page]
        assert left_out == []

    def test_every_method_of_the_handle_says_what_it_does(self) -> None:
        assert [
            name for handle, name, member in self.methods() if handle in (Database, Tables) and not member.__doc__
        ] == []


def hints(function: Any) -> list[object]:
    names = {name: getattr(sweep_tasks, name) for name in sweep_tasks.__all__}
    return list(get_type_hints(function, localns=names).values())


def classes(hint: object) -> Iterator[type]:
    """The classes in a type, such as those of `dict[TableRef, TableMetadata] | None`."""
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    origin = getattr(hint, "__origin__", None)
    if isinstance(origin, type):
        yield origin
    arguments = [each for given in get_args(hint) for each in (given if isinstance(given, list) else [given])]
    for argument in arguments:
        yield from classes(argument)


class TestChangingATable:
    def test_strategy_and_retention_change_together(self, db: Database) -> None:
        changed = db.tables.change("shop.orders", strategy="thorough", retention_s=60, reason="cheaper")
        assert (changed.strategy, changed.retention_s) == (SweepStrategy.THOROUGH, 60)
        assert changed.scan_due is not None
        assert changed.scan_due.why is ScanReason.MARKERS
        assert changed == db.tables.show(ORDERS).metadata
        (note,) = Journal(db._store).last(1)
        assert (note.what, note.about, note.reason) == ("change table", "shop.orders", "cheaper")

    def test_what_is_not_named_stays(self, db: Database) -> None:
        db.tables.change("shop.orders", retention_s=60)
        assert db.tables.change("shop.orders", strategy="thorough").retention_s == 60
        changed = db.tables.change("shop.orders", retention_s=None)
        assert (changed.strategy, changed.retention_s) == (SweepStrategy.THOROUGH, None)

    def test_no_change_is_refused(self, db: Database) -> None:
        with pytest.raises(BadValue, check=having(field="strategy", reason="missing")):
            db.tables.change("shop.orders")


def test_a_dropped_table_leaves_no_statistics(db: Database) -> None:
    tally = DeleteTally()
    tally.add(ORDERS, DeleteKind.RANGES, [1, 2, 3])
    statistics = Deletions(db._store)
    statistics.add(tally, 0)
    assert statistics.left(ORDERS, 0, 10**12) is not None
    db.tables.drop(ORDERS)
    assert statistics.left(ORDERS, 0, 10**12) is None


class TestArguments:
    @pytest.mark.parametrize(
        ("call", "field"),
        [
            (lambda db: db.tables.create(7), "table"),
            (lambda db: db.tables.create(("shop", "carts")), "table"),
            (lambda db: db.tables.create(TableRef("a.b", "c d")), "table"),
            (lambda db: db.tables.create("shop.carts", retention_s="1h"), "retention_s"),
            (lambda db: db.tables.change("shop.orders", retention_s=1.5), "retention_s"),
            (lambda db: db.read_at("now"), "timestamp"),
            (lambda db: db.protect(7), "targets"),
            (lambda db: db.protect("shop.orders", id=7), "id"),
            (lambda db: db.protect("shop.orders", owner=7), "owner"),
            (lambda db: db.protect("shop.orders", meta={"run": 7}), "meta"),
            (lambda db: db.protect("shop.orders", meta={"run": None}), "meta"),
            (lambda db: db.protect("shop.orders", ts="now"), "ts"),
            (lambda db: db.protect("shop.orders", expires_at="tomorrow"), "expires"),
            (lambda db: db.tracker.intersecting(7), "table"),
            (lambda db: db.tracker.intersecting("shop.orders", (b"a", b"b")), "rows"),
            (lambda db: db.tracker.intersecting("shop.orders", Span("a", "b")), "rows"),  # type: ignore[arg-type]
            (lambda db: db.sweep("sometimes"), "strategy"),
            (lambda db: db.sweep(max_entries=-1), "max_entries"),
            (lambda db: db.sweep(max_seconds=-1), "max_seconds"),
            (lambda db: reading(db).get(7, b"a", b"b"), "table"),
            (lambda db: reading(db).get_many("shop.orders", [7]), "cells"),
            (lambda db: reading(db).page("shop.orders", rows=(b"a", b"b")), "rows"),
            (lambda db: reading(db).page("shop.orders", columns=b"state"), "columns"),
            (lambda db: reading(db).page("shop.orders", columns=["state"]), "columns"),
            (lambda db: reading(db).page("shop.orders", limit=0), "limit"),
        ],
    )  # fmt: skip
    def test_a_wrong_one_is_named_and_changes_nothing(
        self, db: Database, call: Callable[[Any], object], field: str
    ) -> None:
        with pytest.raises(BadValue, check=having(field=field)):
            call(db)
        assert set(db.tables.list()) == {ORDERS}
        assert db.protections() == []

    @pytest.mark.parametrize(
        "call",
        [
            lambda db: db.tables.create(JOURNAL),
            lambda db: db.tables.change(JOURNAL, strategy="thorough"),
            lambda db: db.tables.truncate(JOURNAL, force=True),
            lambda db: db.tables.drop(JOURNAL, force=True),
            lambda db: db.run(lambda tx: tx.put(JOURNAL, b"row", b"column", b"value")),
            lambda db: db.run(lambda tx: tx.delete(JOURNAL, b"row", b"column")),
        ],
    )
    def test_the_tables_of_the_store_itself_can_not_be_changed(
        self, db: Database, call: Callable[[Database], object]
    ) -> None:
        before = Journal(db._store).last(100)
        with pytest.raises(BadValue, check=having(field="table", reason="reserved")):
            call(db)
        assert Journal(db._store).last(100) == before

    def test_one_strategy_needs_no_list(self, db: Database) -> None:
        for one in ("thorough", SweepStrategy.THOROUGH):
            assert [each.strategy for each in db.sweep(one)] == [SweepStrategy.THOROUGH]

    def test_cells_may_be_pairs(self, db: Database) -> None:
        with db.transaction() as tx:
            tx.put_many("shop.orders", {Cell(b"one", b"state"): b"paid"})
            found = tx.get_many("shop.orders", [(b"one", b"state")])  # type: ignore[list-item]
        assert found == {Cell(b"one", b"state"): b"paid"}


def reading(db: Any) -> Any:
    return db.read_at(db.fresh_timestamp())


class TestAClosedHandle:
    @pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/shop.db"])
    @pytest.mark.parametrize(
        "call",
        [
            lambda db: db.transaction(),
            lambda db: db.run(lambda tx: None),
            lambda db: db.fresh_timestamp(),
            lambda db: db.tables.list(),
            lambda db: db.protections(),
            lambda db: db.tracker.known(),
            lambda db: db.sweep(),
            lambda db: db.status(),
            lambda db: db.explain("shop.orders"),
            lambda db: db.__enter__(),
        ],
    )
    def test_it_is_refused_with_a_reason(self, tmp_path: Path, url: str, call: Callable[[Database], object]) -> None:
        db = connect(url.format(tmp_path), create=True)
        db.tables.create(ORDERS)
        db.close()
        db.close()
        with pytest.raises(StoreError, check=having(reason="closed", retryable=False)):
            call(db)

    def test_what_was_taken_from_it_before_opens_no_connection(self, tmp_path: Path) -> None:
        db = connect(f"sqlite:///{tmp_path}/shop.db", create=True)
        db.tables.create(ORDERS)
        tables, snapshot = db.tables, reading(db)
        tx = db.transaction()
        tx.put("shop.orders", b"one", b"state", b"paid")
        db.close()
        uses: list[Callable[[], object]] = [
            tables.list,
            tx.commit,
            lambda: snapshot.get("shop.orders", b"one", b"state"),
        ]
        for use in uses:
            with pytest.raises(SweepflowError, check=having(reason="closed")):
                use()


EVERYTHING_THAT_A_HANDLE_DOES = """
import sys
from datetime import UTC, datetime
from pydantic import BaseModel
import sweep_tasks

def unbuilt(base=BaseModel):
    for model in base.__subclasses__():
        if model.__module__.startswith("sweep_tasks") and not model.__pydantic_complete__:
            yield model.__name__
        yield from unbuilt(model)

with sweep_tasks.connect(sys.argv[1], create=True, retention_s=0, grace_s=0) as db:
    left = list(unbuilt())
    before = set(sys.modules)
    db.tables.create("shop.orders")
    for value in (b"old", b"new"):
        db.run(lambda tx: tx.put("shop.orders", b"one", b"state", value))
    held = db.protect("shop.*", id="backup", expires_at=datetime(2040, 1, 1, tzinfo=UTC))
    list(db.read_at(held.ts).scan("shop.orders"))
    with db.transaction() as tx:
        tx.protect("shop.orders", id="mine")
    db.move("mine", db.fresh_timestamp())
    db.protection_state(), db.protection_metadata(), db.protections(), db.tracker.intersecting("shop.orders")
    db.release("mine"), db.release("backup")
    db.sweep(), db.status(), db.explain("shop.orders"), db.explain("shop.orders", b"one", b"state")
    try:
        db.tables.show("shop.carts")
    except sweep_tasks.UnknownTable:
        pass
    db.tables.change("shop.orders", strategy="thorough", retention_s=3, reason="why")
    db.tables.truncate("shop.orders"), db.tables.drop("shop.orders")
    [getattr(sweep_tasks, name) for name in sweep_tasks.__all__]
    import json
    print(json.dumps([left, sorted(set(sys.modules) - before)]))
"""


def test_nothing_is_imported_or_built_after_connecting(tmp_path: Path) -> None:
    """A child that is forked while another thread imports a module, or builds a validator, inherits the lock of that
    without the thread that would release it: it waits for ever at the same place."""
    program = [sys.executable, "-c", EVERYTHING_THAT_A_HANDLE_DOES, f"sqlite:///{tmp_path}/shop.db"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[], []]
