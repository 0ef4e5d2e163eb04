"""What the job makes of its arguments where there is nothing to scan: no Spark is started here."""

from __future__ import annotations

import json

import pytest

from spark_jobs.legacy_sweep import main
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Runs
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.observation.tally import Tally
from sweep_tasks.store import Store
from sweep_tasks.store.system import LEGACY_SWEEPS

TABLE = TableRef.parse("app.items")


@pytest.fixture
def legacy(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> LegacySweep:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    sqlite.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    return LegacySweep(sqlite, Settings(), SystemClock(), "somebody")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--table", "items"], EXIT_BAD_INPUT, "error: table: 'items' is not a table name"),
        (["--table", "app.none"], EXIT_NOT_FOUND, "error: table: app.none does not exist"),
        (["--table", "app.items", "--from-row", "xyz"], EXIT_BAD_INPUT, "error: from_row: is not a row in hex"),
        (["--table", "app.items", "--batch", "-1"], EXIT_BAD_INPUT, "error: batch: -1 is negative"),
        (["--table", "app.items", "--resume"], EXIT_NOT_FOUND, "error: run: app.items has none to go on with"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_changes_nothing(
    legacy: LegacySweep,
    sqlite: Store,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    assert main(arguments) == code
    assert capsys.readouterr().err.startswith(sentence)
    assert sqlite.scan_registers(LEGACY_SWEEPS).items == []


def test_a_table_that_somebody_sweeps_is_left_to_them(legacy: LegacySweep, capsys: pytest.CaptureFixture[str]) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    assert main(["--table", "app.items"]) == EXIT_CONFLICT
    assert f"run {run.id} of somebody" in capsys.readouterr().err


def test_a_run_whose_ranges_are_done_is_finished_without_spark(
    legacy: LegacySweep, sqlite: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    for number in range(len(run.stretches)):
        Runs(sqlite).advance(run, number, RangeState(), RangeState(done=True, attempt=1))
    assert main(["--table", "app.items", "--resume", "--owner", "another"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["engine"], summary["attempt"], summary["ranges_done"]) == ("idle", 2, len(run.stretches))
    standing = legacy.standing(TABLE)
    assert standing
    assert (standing.run.state, standing.run.owner) == ("finished", "another")
    entered = Tally(sqlite).read()
    assert [series.job for series in entered.series] == ["legacy"], "counted like any other, whoever submitted it"


def test_what_nobody_is_at_work_on_any_more_is_gone_on_with_by_the_same_command(
    legacy: LegacySweep, sqlite: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    for number in range(len(run.stretches)):
        Runs(sqlite).advance(run, number, RangeState(), RangeState(done=True, attempt=1))
    legacy.cancel(TABLE)
    assert main(["--table", "app.items"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == run.id
