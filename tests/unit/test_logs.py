"""Log lines contain the context of the task, and never data of users."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
import structlog
from airflow.sdk.log import configure_logging

from sweep_tasks.config import LogFormat, Settings
from sweep_tasks.connections import open_store
from sweep_tasks.logs import JOURNAL_LINE, bind_log_names, configure_logs, guard_logs
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.orchestration.names import task_defaults
from sweep_tasks.queue.encoding import cells_column, shared_row, write_bytes
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store.faults import FaultyStore, miss_a_replica
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.unit.cli.test_protection_commands import run
from tests.unit.sweep.world import THOROUGH, THOROUGH_TABLE, World

ROW, COLUMN, VALUE = b"conspicuous-row", b"conspicuous-column", b"conspicuous-value"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("form", ["text", "json"])
def test_bytes_are_logged_by_their_length(capsys: pytest.CaptureFixture[str], form: LogFormat) -> None:
    configure_logs(form)
    structlog.get_logger().info("met", cell=Cell(ROW, COLUMN), values={"v": VALUE}, several=[VALUE], plain="yes")
    printed = capsys.readouterr().err
    assert "conspicuous" not in printed
    assert "<15 bytes>" in printed
    assert "yes" in printed


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_is_one_line_and_drives_no_terminal(capsys: pytest.CaptureFixture[str], form: LogFormat) -> None:
    configure_logs(form)
    nasty = "a\x1b[2J\u202eb\nc"
    structlog.get_logger().info(nasty, by=nasty, several=[nasty], error=ValueError(nasty), long="x" * 10_000)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert printed.rstrip("\n").isprintable()
    assert len(printed) < 5_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "collected", "terminal", "lines"),
    [
        ("text", False, True, 1),
        ("text", False, False, 2),
        ("text", True, True, 2),
        ("json", False, True, 2),
        ("json", False, False, 2),
        ("json", True, False, 2),
    ],
)
def test_entries_of_the_journal_are_for_collection_and_not_for_the_user_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, form: LogFormat, collected: bool, terminal: bool, lines: int
) -> None:
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    configure_logs(form, collected=collected)
    structlog.get_logger().info("met", code=JOURNAL_LINE)
    structlog.get_logger().info("met", code="other")
    assert out.getvalue().count("\n") == lines


def test_within_airflow_too_and_for_loggers_that_were_there_before() -> None:
    """As Airflow sets logging up in the process of a task; the file of a DAG is read after that."""
    out = io.BytesIO()
    configure_logging(json_output=True, cache_logger_on_first_use=True, output=out)
    log = structlog.get_logger("sweep_tasks.test")
    log.warning("before", cell=Cell(b"plain", b"plain"))
    task_defaults(Settings(), timedelta(minutes=1))
    guard_logs()
    with bind_log_names(run="r", strategy="thorough", shard=3):
        log.warning("met", cell=Cell(ROW, COLUMN), values=[VALUE])
    _, line = (json.loads(each) for each in out.getvalue().splitlines())
    assert line["cell"] == ["<15 bytes>", "<18 bytes>"]
    assert (line["run"], line["strategy"], line["shard"]) == ("r", "thorough", 3)
    assert b"conspicuous" not in out.getvalue()


def test_a_line_is_one_json_document_with_the_context_of_the_task(
    capsys: pytest.CaptureFixture[str], memory: MemoryStore, clock: ManualClock
) -> None:
    """A sweep that logs something: a replica is missing."""
    configure_logs("json")
    world = World(FaultyStore(memory, before=miss_a_replica(False)), clock)
    for start in (10, 20):
        world.write(start, start + 1, [Cell(ROW, COLUMN)], table=THOROUGH_TABLE, delete=True)
    with bind_log_names(run="scheduled__now"):
        world.sweep(100, THOROUGH)
    printed = capsys.readouterr().err
    (line,) = [json.loads(each) for each in printed.splitlines()]
    assert (line["level"], line["table"], line["markers"]) == ("info", str(THOROUGH_TABLE), 1)
    assert (line["run"], line["strategy"], line["shard"]) == ("scheduled__now", "thorough", 0)
    assert line["timestamp"].endswith("Z")
    assert "conspicuous" not in printed


def reported(text: str) -> list[str]:
    """Every way in which the conspicuous bytes could have got out."""
    forms = [form for name in (ROW, COLUMN, VALUE) for form in (name.decode(), name.hex(), repr(name)[2:-1])]
    return [form for form in forms if form in text]


def test_no_command_of_an_operator_logs_rows_columns_or_values(sqlite_url: str) -> None:
    """Sweeps with everything that makes them log: parked, quarantined, blocked, aborted, protected; and what reads
    it afterwards. Only who names a cell is shown it."""
    table = TableRef.parse("app.items")
    with open_store(sqlite_url, Settings()) as store:
        store.create_table(table, TableMetadata(SweepStrategy.THOROUGH))
        with TransactionManager(store, queue=QueueWriter(store), renew_leases=False) as manager:
            for index in range(3):
                with manager.transaction() as tx:
                    tx.put(table, ROW, COLUMN, VALUE + b"%d" % index)
                if index == 1:
                    assert run("protect", "app.items", "--id", "backup", "--store", sqlite_url).code == 0
            with manager.transaction() as tx:
                tx.delete(table, ROW, COLUMN)
        garbled = write_bytes(999, Cell(ROW, COLUMN), False)
        place = Cell(shared_row(0, SweepStrategy.THOROUGH, 0), cells_column(1, 0))
        store.put(1, {QUEUE_CELLS: {place: garbled}})
    commands = [
        ["sweep", "--dry-run"], ["sweep"], ["sweep", "--json"], ["status"], ["status", "--json"], ["metrics"],
        ["queue", "quarantine", "list", "--json"], ["queue", "quarantine", "retry"], ["queue", "show"],
        ["explain", "app.items"], ["explain", "--strategy", "thorough", "--shard", "0", "--json"], ["protections"],
        ["explain", "app.items", "conspicuous-row", "other"], ["tables", "truncate", "app.items", "--yes"],
    ]  # fmt: skip
    for command in commands:
        for form in ("text", "json"):
            answer = run(*command, "--store", sqlite_url, SWEEPFLOW_LOG_FORMAT=form)
            assert reported(answer.out + answer.err) == [], command
