"""The public API: everything an application needs, from one import."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

import sweep_tasks
from sweep_tasks import (
    AlreadyExists,
    AlreadySwept,
    BadValue,
    Cell,
    Database,
    RecordChanged,
    SnapshotSwept,
    Span,
    StoreMissing,
    SweepStrategy,
    TableRef,
    Target,
    Transaction,
    UnknownTable,
    WriteConflict,
    acting_for,
)
from sweep_tasks.diagnosis.explanation import CellExplanation, QueueExplanation
from sweep_tasks.journal.journal import Journal
from sweep_tasks.metrics.samples import history
from sweep_tasks.metrics.tally import LIBRARY
from sweep_tasks.protection.records import State
from tests.support.errors import having

ORDERS = TableRef.parse("shop.orders")


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Connecting configures where log lines go, for the whole process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(params=["memory:", "sqlite:///{}/shop.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    """With nothing kept for a time, so that a sweep removes what was replaced before it."""
    with sweep_tasks.connect(url, create=True, retention_s=0, grace_s=0) as opened:
        opened.tables.create("shop.orders")
        yield opened


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Database]:
    """In a file, for other processes and threads."""
    with sweep_tasks.connect(f"sqlite:///{tmp_path}/shared.db", create=True) as opened:
        opened.tables.create("shop.orders")
        yield opened


def put(db: Database, value: bytes, row: bytes = b"one") -> int:
    with db.transaction() as tx:
        tx.put("shop.orders", row, b"state", value)
    assert tx.commit_ts is not None
    return tx.commit_ts


def state(tx: Transaction, row: bytes = b"one") -> bytes | None:
    return tx.get("shop.orders", row, b"state")


class TestConnecting:
    def test_a_store_is_only_created_on_request(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/shop.db"
        with pytest.raises(StoreMissing):
            sweep_tasks.connect(url)
        assert list(tmp_path.iterdir()) == []
        sweep_tasks.connect(url, create=True).close()
        with sweep_tasks.connect(url) as db:
            assert db.tables.list() == {}

    def test_without_an_address_the_setting_names_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWEEPFLOW_STORE", f"sqlite:///{tmp_path}/set.db")
        sweep_tasks.connect(create=True).close()
        assert (tmp_path / "set.db").exists()

    def test_arguments_are_settings_and_checked(self, tmp_path: Path) -> None:
        with sweep_tasks.connect("memory:", retention_s=7) as db:
            assert db.settings.retention_s == 7
        for wrong in ({"retention": 7}, {"retention_s": -1}):
            with pytest.raises(BadValue):
                sweep_tasks.connect(f"sqlite:///{tmp_path}/new.db", create=True, **wrong)
        assert list(tmp_path.iterdir()) == []

    def test_everything_that_is_exported_is_there(self) -> None:
        assert dir(sweep_tasks) == sweep_tasks.__all__
        for name in sweep_tasks.__all__:
            assert getattr(sweep_tasks, name).__name__ == name
        with pytest.raises(AttributeError):
            _ = sweep_tasks.nothing

    def test_importing_it_loads_nothing_else(self) -> None:
        shown = "import sweep_tasks, sys; print(*sys.modules)"
        answer = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
        assert [name for name in answer.stdout.split() if name.startswith("sweep_tasks")] == ["sweep_tasks"]


class TestTransactions:
    def test_a_block_commits_and_an_exception_aborts(self, db: Database) -> None:
        put(db, b"paid")

        def fail() -> None:
            with db.transaction() as tx:
                tx.put("shop.orders", b"one", b"state", b"lost")
                raise LookupError

        with pytest.raises(LookupError):
            fail()
        with db.transaction(read_only=True) as tx:
            assert state(tx) == b"paid"
            assert list(tx.scan("shop.orders")) == [(Cell(b"one", b"state"), b"paid")]

    def test_work_that_meets_a_conflict_is_run_again(self, db: Database) -> None:
        put(db, b"0")
        attempts: list[bytes] = []

        def increment(tx: Transaction) -> bytes:
            value = b"%d" % (int(state(tx) or b"0") + 1)
            if not attempts:
                put(db, b"5")
            attempts.append(value)
            tx.put("shop.orders", b"one", b"state", value)
            return value

        assert db.run(increment) == b"6"
        assert attempts == [b"1", b"6"]

    def test_the_second_commit_fails_with_a_conflict(self, db: Database) -> None:
        tx = db.transaction()
        tx.put("shop.orders", b"one", b"state", b"mine")
        put(db, b"theirs")
        with pytest.raises(WriteConflict):
            tx.commit()

    def test_a_past_snapshot_can_be_read_until_it_is_swept(self, db: Database) -> None:
        put(db, b"old")
        then = db.fresh_timestamp()
        put(db, b"new")
        assert db.read_at(then).get("shop.orders", b"one", b"state") == b"old"
        db.sweep()
        with pytest.raises(SnapshotSwept):
            db.read_at(then).get("shop.orders", b"one", b"state")


class TestTables:
    def test_they_are_created_listed_changed_and_dropped(self, db: Database) -> None:
        created = db.tables.create("shop.carts", "thorough", conflicts="none", retention_s=60, look_before_delete=True)
        assert (created.strategy, created.retention_s, created.look_before_delete) == (SweepStrategy.THOROUGH, 60, True)
        assert set(db.tables.list()) == {ORDERS, TableRef.parse("shop.carts")}
        assert db.tables.change("shop.carts", strategy="conservative").strategy is SweepStrategy.CONSERVATIVE
        assert db.tables.change("shop.carts", retention_s=None).retention_s is None
        db.tables.drop("shop.carts")
        assert set(db.tables.list()) == {ORDERS}
        with pytest.raises(UnknownTable):
            db.tables.show("shop.carts")

    def test_truncating_removes_what_was_there(self, db: Database) -> None:
        put(db, b"paid")
        db.tables.truncate("shop.orders")
        with db.transaction() as tx:
            assert state(tx) is None

    def test_a_protected_one_is_neither_truncated_nor_dropped(self, db: Database) -> None:
        put(db, b"paid")
        db.protect("shop.orders", id="backup")
        for empty in (db.tables.truncate, db.tables.drop):
            with pytest.raises(BadValue, check=having(reason="protected")):
                empty(ORDERS)
        with db.transaction() as tx:
            assert state(tx) == b"paid"

    def test_an_unknown_property_changes_nothing(self, db: Database) -> None:
        with pytest.raises(BadValue, check=having(field="strategy")):
            db.tables.create("shop.carts", "sometimes")
        with pytest.raises(BadValue, check=having(field="conflicts")):
            db.tables.create("shop.carts", conflicts="sometimes")
        assert set(db.tables.list()) == {ORDERS}

    def test_reasons_are_recorded(self, shared: Database, tmp_path: Path) -> None:
        shared.tables.truncate("shop.orders", reason="a new season")
        with sweep_tasks.connect(f"sqlite:///{tmp_path}/shared.db") as again:
            last = Journal(again._store).last()[0]
        assert (last.what, last.about, last.reason, last.outcome) == ("truncate", "shop.orders", "a new season", "done")

    def test_a_program_names_who_acts_for_what_it_removes_too(self, db: Database) -> None:
        with acting_for("billing-migration", "orders moved"):
            db.tables.truncate("shop.orders")
            db.tables.drop("shop.orders", reason="it is empty")
        acts = [(note.by, note.what, note.reason) for note in Journal(db._store).last(2)]
        assert acts == [
            ("billing-migration", "drop", "it is empty"), ("billing-migration", "truncate", "orders moved")
        ]  # fmt: skip


class TestProtections:
    def test_a_protected_snapshot_survives_a_sweep(self, db: Database) -> None:
        put(db, b"old")
        held = db.protect("shop.*", id="backup", meta={"job": "nightly"})
        put(db, b"new")
        db.sweep()
        assert (held.id, held.state, held.meta) == ("backup", State.ACCEPTED, {"job": "nightly"})
        assert db.read_at(held.ts).get("shop.orders", b"one", b"state") == b"old"
        db.release("backup", held.version)
        db.sweep()
        with pytest.raises(SnapshotSwept):
            db.read_at(held.ts).get("shop.orders", b"one", b"state")

    def test_what_is_swept_can_not_be_protected(self, db: Database) -> None:
        then = db.fresh_timestamp()
        put(db, b"new")
        db.sweep()
        with pytest.raises(AlreadySwept):
            db.protect("shop.orders", ts=then)
        assert db.protections() == []

    def test_a_known_id_is_refused(self, db: Database) -> None:
        first = db.protect("shop.orders", id="backup")
        with pytest.raises(AlreadyExists):
            db.protect("shop.orders", id="backup")
        assert db.protection("backup") == first

    def test_one_that_changed_is_not_released_by_its_old_version(self, db: Database) -> None:
        before = db.protect("shop.orders", id="backup", mode="after")
        moved = db.move("backup", db.fresh_timestamp())
        assert moved.ts > before.ts
        with pytest.raises(RecordChanged):
            db.release("backup", before.version)
        assert db.protections() == [moved]

    def test_the_catalogue_has_a_version_and_counts(self, db: Database) -> None:
        before = db.protection_metadata()
        db.protect("shop.orders", "shop.*", id="backup")
        meta, records = db.protection_state()
        assert (meta.records, meta.spans, [record.id for record in records]) == (1, 2, ["backup"])
        assert meta.version > before.version
        assert db.protection_metadata() == meta

    def test_an_expiry_is_a_moment(self, db: Database) -> None:
        moment = datetime.now(UTC) + timedelta(hours=1)
        held = db.protect("shop.orders", expires_at=moment)
        assert (held.meta_type, held.expires_ms) == ("expiry", round(moment.timestamp() * 1000))

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"mode": "around"}, "mode"),
            ({"owner": "expiry"}, "expires"),
            ({"expires_at": datetime(2030, 1, 1)}, "expires"),
            ({"ts": -5}, "ts"),
        ],
    )
    def test_wrong_arguments_change_nothing(self, db: Database, given: dict[str, Any], field: str) -> None:
        with pytest.raises(BadValue, check=having(field=field)):
            db.protect("shop.orders", **given)
        with pytest.raises(BadValue, check=having(field=field)), db.transaction() as tx:
            tx.protect("shop.orders", **given)
        assert db.protections() == []

    def test_a_transaction_protects_its_own_snapshot_with_its_commit(self, db: Database) -> None:
        put(db, b"old")
        with db.transaction() as tx:
            name = tx.protect("shop.orders", meta={"job": "export"})
            tx.put("shop.orders", b"one", b"state", b"exporting")
        (held,) = db.protections()
        assert (held.id, held.ts, held.state, held.meta) == (name, tx.start, State.ACCEPTED, {"job": "export"})
        assert db.read_at(held.ts).get("shop.orders", b"one", b"state") == b"old"


class TestTheTracker:
    def test_it_reports_the_time_of_its_last_read(self, db: Database) -> None:
        first = db.tracker.known()
        assert first.records == ()
        db.protect("shop.orders", id="backup")
        assert db.tracker.known() == first, "not older than its interval"
        fresh = db.tracker.refresh()
        assert [record.id for record in fresh.records] == ["backup"]
        assert fresh.as_of_ms >= first.as_of_ms

    def test_it_finds_what_covers_some_of_the_rows(self, db: Database) -> None:
        db.tables.create("shop.carts")
        db.protect(Target(ORDERS, Span(b"b", b"d")), id="rows")
        db.protect("shop.orders", id="whole")
        db.protect("shop.carts", id="other")

        def found(table: str, *rows: bytes) -> set[str]:
            return {record.id for record in db.tracker.intersecting(table, Span(*rows)).records}

        assert found("shop.orders") == {"rows", "whole"}
        assert found("shop.orders", b"c", b"z") == found("shop.orders", b"a", b"b\0") == {"rows", "whole"}
        assert found("shop.orders", b"a", b"b") == found("shop.orders", b"d") == {"whole"}
        assert found("shop.carts", b"c") == {"other"}
        assert found("shop.none") == set()
        assert db.tracker.intersecting(ORDERS).as_of_ms == db.tracker.known().as_of_ms


class TestSweepingAndDiagnosis:
    def test_a_dry_run_changes_nothing(self, db: Database) -> None:
        put(db, b"old")
        put(db, b"new")
        before = [each.ts for each in db.explain("shop.orders", b"one", b"state").versions]
        summaries = db.sweep(["conservative"], dry_run=True)
        assert [(each.dry_run, each.entries) for each in summaries] == [(True, 2)]
        assert [each.ts for each in db.explain("shop.orders", b"one", b"state").versions] == before

    def test_a_sweep_is_in_the_history(self, db: Database) -> None:
        put(db, b"old")
        assert {summary.strategy for summary in db.sweep()} == {SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH}
        assert [run.dag for run in history(db._store).runs] == [LIBRARY]

    @pytest.mark.parametrize("strategy", ["nothing", "sometimes"])
    def test_what_is_never_swept_is_refused(self, db: Database, strategy: str) -> None:
        with pytest.raises(BadValue, check=having(field="strategy")):
            db.sweep([strategy])

    def test_a_cell_and_a_table_are_explained(self, db: Database) -> None:
        put(db, b"old")
        put(db, b"new")
        cell = db.explain("shop.orders", b"one", b"state")
        assert isinstance(cell, CellExplanation)
        assert [each.state for each in cell.versions] == ["garbage", "live"]
        assert isinstance(db.explain("shop.orders"), QueueExplanation)
        with pytest.raises(BadValue, check=having(field="column", reason="incomplete")):
            db.explain("shop.orders", b"one")  # type: ignore[call-overload]

    def test_the_status_is_a_typed_model(self, db: Database) -> None:
        db.protect("shop.orders", id="backup")
        status = db.status()
        assert [each.id for each in status.protection_records] == ["backup"]
        assert {each.strategy for each in status.shards} == {"conservative", "thorough"}


class TestThreadsAndForks:
    def test_threads_share_a_handle(self, shared: Database) -> None:
        def work(number: int) -> None:
            for _ in range(5):
                shared.run(lambda tx: tx.put("shop.orders", b"%d" % number, b"count", _next(tx, number)))

        threads = [threading.Thread(target=work, args=[number % 2]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with shared.transaction() as tx:
            assert [tx.get("shop.orders", b"%d" % number, b"count") for number in (0, 1)] == [b"10", b"10"]

    def test_a_forked_child_continues_to_use_the_handle_and_nothing_is_lost(self, shared: Database) -> None:
        put(shared, b"before")
        child = os.fork()
        if not child:  # only `_exit` ends it: the rest of the tests is the parent's
            try:
                put(shared, b"child")
                shared.fresh_timestamp()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with shared.transaction() as tx:
            assert state(tx) == b"child"
        assert put(shared, b"parent") > tx.start


def _next(tx: Transaction, number: int) -> bytes:
    return b"%d" % (int(tx.get("shop.orders", b"%d" % number, b"count") or b"0") + 1)


LOGGING = """
import json, logging, sys
lines = []
handler = logging.Handler()
def emit(record):
    line = json.loads(record.getMessage())
    lines.append((line["what"], line["outcome"]))
handler.emit = emit
if sys.argv[2] == "listens":
    logging.basicConfig(level=logging.INFO, handlers=[handler])
import sweep_tasks
with sweep_tasks.connect(sys.argv[1], create=True) as db:
    db.tables.create("shop.orders")
    db.protect("shop.orders", id="backup")
print(json.dumps(lines))
"""


@pytest.mark.parametrize(
    ("application", "lines"), [("silent", []), ("listens", [["protect", "asked"], ["protect", "done"]])]
)
def test_an_application_decides_by_logging_which_lines_it_sees(
    tmp_path: Path, application: str, lines: list[list[str]]
) -> None:
    arguments = [sys.executable, "-c", LOGGING, f"sqlite:///{tmp_path}/shop.db", application]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    assert (json.loads(ended.stdout), ended.stderr) == (lines, "")


def test_the_program_in_the_readme_imports_nothing_else_and_runs(tmp_path: Path) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    (program,) = [part.partition("```")[0] for part in readme.read_text().split("```python\n")[1:]]
    imported = [each for each in ast.walk(ast.parse(program)) if isinstance(each, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(each) for each in imported] == ["import sweep_tasks"]
    checked = f"{program}\n" + textwrap.dedent("""
        with sweep_tasks.connect("sqlite:///shop.db") as db, db.transaction(read_only=True) as tx:
            assert tx.get("shop.orders", b"order-1", b"state") == b"shipped"
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", checked], cwd=tmp_path, check=True)
