"""`sweepflow legacy-sweep`: a run with an id that can be watched, cancelled, interrupted and resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import Any

import pytest

from sweep_tasks.cli.legacy_sweep import CUT_SHORT, how_to_resume
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import AlreadyExists
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RunState, Undone
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.schema import LEGACY_SWEEPS
from sweep_tasks.transactions import TransactionManager
from tests.support.command import COMMAND, Answer, sweepflow

T = TableRef.parse("app.items")
ROWS = 60


@pytest.fixture
def table(sqlite: Store) -> Store:
    """Sixty cells with three versions each, and no queue entry for any."""
    sqlite.create_table(T, TableMetadata(SweepStrategy.THOROUGH))
    with TransactionManager(sqlite, enqueue=False) as manager:
        for value in (b"1", b"2", b"3"):
            with manager.transaction() as tx:
                tx.put_many(T, {Cell(b"%03d" % row, b"c"): value for row in range(ROWS)})
    return sqlite


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Settings:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setenv("SWEEPFLOW_LEGACY_RANGES", "6")
    return Settings()


def legacy_sweep(*arguments: str) -> tuple[int, dict[str, Any]]:
    ended = ask(*arguments, "--json")
    return ended.code, ended.document


def ask(*arguments: str) -> Answer:
    return sweepflow(
        "legacy-sweep", str(T), *arguments, SWEEPFLOW_STORE=os.environ["SWEEPFLOW_STORE"], SWEEPFLOW_LEGACY_RANGES="6"
    )


def test_a_dry_run_counts_and_changes_nothing(table: Store) -> None:
    code, counted = legacy_sweep("--dry-run")
    assert (code, counted["cells"], counted["deleted"]) == (0, ROWS, 2 * ROWS)
    assert len(table.timestamps(T, [Cell(b"000", b"c")])[Cell(b"000", b"c")]) == 3
    assert legacy_sweep("--status")[0] == 3, "there is no run"


def test_a_run_with_a_limit_is_resumed_by_the_same_command(table: Store) -> None:
    _, first = legacy_sweep("--max-cells", "10")
    assert (first["stopped"], first["begun"]) == ("cells", "start")
    assert legacy_sweep("--status")[1]["state"] == "paused"
    _, second = legacy_sweep()
    assert (second["run"], second["begun"], second["attempt"]) == (first["run"], "resume", 2)
    assert (second["cells"], second["deleted"]) == (ROWS, 2 * ROWS)
    assert second["this_time"]["cells"] == ROWS - first["cells"]
    assert legacy_sweep("--status")[1]["state"] == "finished"


def test_the_same_command_resumes_at_a_row_and_a_restarted_run_explains_how_to_resume(table: Store) -> None:
    part = ["--from-row", b"040".hex(), "--max-cells", "7"]
    seen = [legacy_sweep(*part)[1] for _ in range(3)]
    assert [each["begun"] for each in seen] == ["start", "resume", "resume"]
    assert [each["this_time"]["cells"] for each in seen] == [7, 7, 6]
    assert seen[-1]["stopped"] is None
    restarted = ask("--restart", "--max-cells", "7").out
    assert how_to_resume(restart=True) in restarted
    assert how_to_resume(restart=True) != how_to_resume(restart=False)


def test_a_cancelled_run_is_resumed_or_restarted(table: Store) -> None:
    _, first = legacy_sweep("--max-cells", "10")
    assert legacy_sweep("--cancel")[1]["state"] == "cancelled"
    _, restarted = legacy_sweep("--restart", "--yes")
    assert restarted["run"] != first["run"]
    assert restarted["cells"] == ROWS
    assert legacy_sweep("--cancel")[0] == 3, "a finished run can't be cancelled"


def test_progress_of_a_run_is_not_discarded_without_a_terminal(table: Store) -> None:
    _, first = legacy_sweep("--max-cells", "10")
    code, refused = legacy_sweep("--restart")
    assert (code, refused["error"], refused["field"]) == (2, "not_confirmed", "yes")
    assert legacy_sweep()[1]["run"] == first["run"]


def test_a_cancellation_is_confirmed_as_lasting(table: Store) -> None:
    legacy_sweep("--max-cells", "10")
    output = " ".join(ask("--cancel").out.split())
    assert f"legacy-sweep {T}" in output


def test_part_of_the_table_does_not_drop_what_a_run_of_all_of_it_has_done(table: Store) -> None:
    _, first = legacy_sweep("--max-cells", "25")
    for other in (["--from-row", b"050".hex()], ["--stop-at", "1"]):
        refused = ask(*other, "--json")
        assert (refused.code, refused.document["error"]) == (5, "exists")
        assert isinstance(refused.error, AlreadyExists)
        assert (refused.error.details["table"], refused.error.details["run"]) == (T, first["run"])
        assert (refused.error.details["done"], refused.error.details["ranges"]) == (first["ranges_done"], 6)
    assert legacy_sweep("--status")[1]["run"] == first["run"]
    assert legacy_sweep("--from-row", b"050".hex(), "--restart", "--yes")[1]["cells"] == 10


def test_dropping_a_table_removes_its_run(table: Store, sqlite_url: str) -> None:
    _, first = legacy_sweep("--max-cells", "10")
    assert sweepflow("tables", "drop", str(T), "--yes", "--store", sqlite_url).code == 0
    ranges = [cell for cell, _ in table.scan_registers(LEGACY_SWEEPS).items if cell.row.startswith(b"range:")]
    assert ranges == []
    assert sweepflow("tables", "create", str(T), "--strategy", "thorough", "--store", sqlite_url).code == 0
    assert legacy_sweep("--status")[0] == 3, "there is no run"
    _, restarted = legacy_sweep()
    assert (restarted["begun"], restarted["run"] == first["run"]) == ("start", False)


def test_a_store_with_few_clock_samples_reports_when_to_try_again(sqlite: Store) -> None:
    sqlite.create_table(T, TableMetadata(SweepStrategy.CONSERVATIVE))
    code, refused = legacy_sweep()
    assert (code, refused["error"], refused["reason"]) == (2, "not_yet", "too_recent")
    assert "3600 s" in refused["message"]
    assert legacy_sweep("--status")[0] == 3, "there is no run"


def test_the_remaining_work_is_reported(table: Store, sqlite_url: str) -> None:
    for strategy in ("conservative", "thorough"):
        assert sweepflow("tables", "set-strategy", str(T), strategy, "--yes", "--store", sqlite_url).code == 0
    output = " ".join(ask().out.split())
    assert Undone.QUEUE.sentence in output
    assert legacy_sweep()[1]["still_due"] == "queue"


def test_a_second_start_names_the_active_owner(table: Store, settings: Settings) -> None:
    LegacySweep(table, settings, SystemClock(), "ada at host-7").start(LegacyOrder(T))
    refused = ask("--json")
    assert (refused.code, refused.document["error"]) == (5, "exists")
    assert isinstance(refused.error, AlreadyExists)
    assert refused.error.details["owner"] == "ada at host-7"
    assert refused.error.details["owner"] in refused.document["message"]


def test_part_of_the_table_from_a_row_on(table: Store) -> None:
    _, done = legacy_sweep("--from-row", b"050".hex())
    assert done["cells"] == 10


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--from-row", "6"], "from_row"),
        (["--ranges", "99999"], "ranges"),
        (["--status", "--cancel"], "status"),
        (["--max-seconds", "inf"], "max_seconds"),
        (["--batch", "1000000"], "batch"),
    ],
)
def test_bad_input_is_refused_before_anything_is_done(table: Store, arguments: list[str], field: str) -> None:
    code, refused = legacy_sweep(*arguments)
    assert (code, refused["error"], refused["field"]) == (2, "bad_value", field)
    assert LegacySweep(table, Settings(), SystemClock()).progress(T) is None


def test_an_interrupted_run_is_paused_and_can_be_resumed(table: Store, settings: Settings, sqlite_url: str) -> None:
    slow = os.environ | {"SWEEPFLOW_LEGACY_VERSIONS_PER_S": "20", "SWEEPFLOW_LEGACY_BATCH_VERSIONS": "5"}
    sweep = LegacySweep(table, settings, SystemClock())
    with subprocess.Popen([COMMAND, "legacy-sweep", str(T)], env=slow, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not ((found := sweep.progress(T)) and found.counts.cells):
            assert process.poll() is None
            assert time.monotonic() < deadline, "it examines nothing"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert how_to_resume(restart=False) in " ".join(output.split())
    paused = sweep.progress(T)
    assert paused
    assert (paused.run.state, paused.run.why) == (RunState.PAUSED, "interrupted")
    _, rest = legacy_sweep()
    assert (rest["run"], rest["deleted"]) == (paused.run.id, 2 * ROWS)


def test_the_result_is_printed_as_a_sentence(table: Store) -> None:
    ended = ask("--max-cells", "10")
    assert ended.code == 0
    assert f"{CUT_SHORT['cells']}; {how_to_resume(restart=False)}" in ended.out
    done = legacy_sweep("--status")[1]
    figures = set(re.findall(r"\w+", ended.out))
    assert {done["run"], *(str(done[name]) for name in ("sweep_ts", "cells", "deleted", "versions"))} <= figures
