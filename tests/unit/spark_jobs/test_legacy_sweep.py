"""What the job makes of its arguments where there is nothing to scan: no Spark is started here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.legacy_sweep import main
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_NOT_FOUND,
    AlreadyExists,
    BadValue,
    NotFound,
    SweepflowError,
    UnknownTable,
)
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Runs
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.metrics.tally import Tally
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.schema import LEGACY_SWEEPS
from tests.unit.spark_jobs.failing import failure_of

TABLE = TableRef.parse("app.items")


def arguments(**given: Any) -> list[str]:
    return ["--order", json.dumps({"table": "app.items"} | given)]


@pytest.fixture
def legacy(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> LegacySweep:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    sqlite.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    return LegacySweep(sqlite, Settings(), SystemClock(), "alice")


@pytest.mark.parametrize(
    ("given", "kind", "exit_code", "field", "reason"),
    [
        ({"table": "items"}, BadValue, EXIT_BAD_INPUT, "table", "malformed"),
        ({"table": "app.none"}, UnknownTable, EXIT_NOT_FOUND, None, None),
        ({"from_row": "xyz"}, BadValue, EXIT_BAD_INPUT, "from_row", None),
        ({"batch": -1}, BadValue, EXIT_BAD_INPUT, "batch", None),
        ({"start": "resume"}, NotFound, EXIT_NOT_FOUND, "run", None),
        ({"start": "somehow"}, BadValue, EXIT_BAD_INPUT, "start", None),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_changes_nothing(
    legacy: LegacySweep,
    sqlite: Store,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any],
    kind: type[SweepflowError],
    exit_code: int,
    field: str | None,
    reason: str | None,
) -> None:
    error = failure_of(main, arguments(**given))
    assert (type(error), error.exit_code, error.field, error.reason) == (kind, exit_code, field, reason)
    assert capsys.readouterr().err == f"error: {error}\n"
    assert sqlite.scan_registers(LEGACY_SWEEPS).items == []


def test_a_table_with_an_active_run_is_refused(legacy: LegacySweep, capsys: pytest.CaptureFixture[str]) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    error = failure_of(main, arguments())
    assert isinstance(error, AlreadyExists)
    assert (error.exit_code, error.details["run"], error.details["owner"]) == (EXIT_CONFLICT, run.id, "alice")
    assert run.id in capsys.readouterr().err


def test_a_run_whose_ranges_are_done_is_finished_without_spark(
    legacy: LegacySweep, sqlite: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    for number in range(len(run.scan_ranges)):
        Runs(sqlite).advance(run, number, RangeState(), RangeState(done=True, attempt=1))
    assert main(arguments(start="resume", owner="another")) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["engine"], summary["attempt"], summary["ranges_done"]) == ("idle", 2, len(run.scan_ranges))
    existing = legacy.progress(TABLE)
    assert existing
    assert (existing.run.state, existing.run.owner) == ("finished", "another")
    recorded = Tally(sqlite).read()
    assert [series.job for series in recorded.series] == ["legacy"], "counted like any other, whatever submitted it"


def test_an_abandoned_run_is_resumed_by_the_same_command(
    legacy: LegacySweep, sqlite: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = legacy.start(LegacyOrder(TABLE))
    for number in range(len(run.scan_ranges)):
        Runs(sqlite).advance(run, number, RangeState(), RangeState(done=True, attempt=1))
    legacy.cancel(TABLE)
    assert main(arguments()) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == run.id
