"""What the job makes of its arguments, on shards that have nothing to do: no Spark is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.targeted_sweep import main
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_UNAVAILABLE, BadValue, StoreMissing
from sweep_tasks.journal.journal import Act, Journal, JournalEntry
from sweep_tasks.journal.safeguards import record_lowered
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from tests.support.lines import words_in
from tests.unit.spark_jobs.failing import failure_of

THOROUGH = SweepStrategy.THOROUGH
ORDER: dict[str, Any] = {"strategy": "thorough", "shard": 0}
HOUR_MS = 3_600_000


@pytest.fixture
def history(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of the settings: at hour n of 1970 the timestamp was 1000 n. No clock of today is too far from that."""
    for hour in range(6):
        ClockHistory(sqlite).record(ClockSample(hour * HOUR_MS, 1_000 * hour))
    TimestampService(sqlite).move_past(5_000)
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setenv("SWEEPFLOW_CLOCK_STEP_MAX_S", "0")
    return sqlite


def arguments(*others: str, **given: Any) -> list[str]:
    return ["--order", json.dumps(ORDER | given), *others]


def swept(capsys: pytest.CaptureFixture[str], *others: str, **given: Any) -> dict[str, Any]:
    code = main(arguments(*others, **given))
    output = capsys.readouterr()
    assert code == 0, output.err
    document: dict[str, Any] = json.loads(output.out.splitlines()[-1])
    return document


def test_a_run_with_nothing_to_do_prints_a_summary(history: Store, capsys: pytest.CaptureFixture[str]) -> None:
    summary = swept(capsys, stop_at=4_000)
    assert summary["engine"] == "idle"
    assert (summary["strategy"], summary["shard"], summary["sweep_ts"]) == ("thorough", 0, 4_000)
    assert (summary["progress_before"], summary["progress"], summary["stopped"]) == (-1, 3_999, None)
    assert Progress(history).of(THOROUGH, 0) == 3_999


def test_the_summary_file_has_the_printed_text_and_no_draft_remains(
    history: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "summaries"
    folder.mkdir()
    (folder / "summary.json").write_text("that of an earlier run")
    summary = swept(capsys, "--summary", str(folder / "summary.json"))
    assert [json.loads(file.read_text()) for file in folder.iterdir()] == [summary]


@pytest.mark.parametrize("until", ["1970-01-01T03:00:00+00:00", "1970-01-01T05:00:00+02:00", "1970-01-01T03:00:00Z"])
def test_a_run_sweeps_up_to_the_end_of_its_interval(
    until: str, history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(capsys, until=until)["sweep_ts"] == 3_000


def test_a_given_timestamp_lowers_the_sweep_timestamp_and_never_raises_it(
    history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    until = "1970-01-01T03:00:00Z"
    assert swept(capsys, until=until, stop_at=2_000)["sweep_ts"] == 2_000
    assert swept(capsys, until=until, stop_at=4_000)["sweep_ts"] == 3_000


def test_a_store_argument_overrides_the_setting(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", "sqlite:////no/such/store.db")
    assert failure_of(main, arguments()).exit_code == EXIT_UNAVAILABLE
    assert main(arguments("--store", sqlite_url)) == 0


def test_a_dry_run_reports_and_changes_nothing(history: Store, capsys: pytest.CaptureFixture[str]) -> None:
    summary = swept(capsys, dry_run=True, stop_at=4_000)
    assert summary["dry_run"]
    assert Progress(history).of(THOROUGH, 0) == -1
    assert Thresholds(history).of_strategy(THOROUGH) == 0


def test_a_dry_run_accepts_a_shard_that_does_not_exist_yet(history: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert swept(capsys, shard=1, dry_run=True)["shard"] == 1


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ({"shard": 1}, "shard", "unknown"),
        ({"shard": 256}, "shard", "out_of_range"),
        ({"shard": -1}, "shard", "out_of_range"),
        ({"shard": "first"}, "shard", None),
        ({"until": "soon"}, "until", None),
        ({"until": "PT1H"}, "until", None),
        ({"stop_at": -5}, "stop_at", "out_of_range"),
        ({"max_entries": -1}, "max_entries", None),
        ({"max_seconds": -0.5}, "max_seconds", None),
        ({"strategy": "nothing"}, "strategy", None),
        ({"attempt": ["a_dag", "monday", "a.task", "first", -1]}, "attempt", None),
        ({"max_entires": 5}, "max_entires", None),
    ],
)
def test_an_invalid_order_is_refused_in_one_sentence_and_changes_nothing(
    given: dict[str, Any], field: str, reason: str | None, history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(arguments(**given), field, reason, history, capsys)


@pytest.mark.parametrize(
    ("others", "field", "reason"),
    [
        (["--order", "/no/such/order.json"], "order", "unreadable"),
        (["--order", "{"], "order", None),
        (["--store", "postgres://somewhere"], "store", "unknown"),
        (["--summary", "/no/such/folder/summary.json"], "summary", None),
        (["--summary", "/"], "summary", None),
    ],
)
def test_an_invalid_argument_is_refused_in_one_sentence_and_changes_nothing(
    others: list[str], field: str, reason: str | None, history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(arguments(*others), field, reason, history, capsys)


def check_refused(
    given: list[str], field: str, reason: str | None, history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ClockHistory(history).last()
    error = failure_of(main, given)
    assert (type(error), error.exit_code, error.field, error.reason) == (BadValue, EXIT_BAD_INPUT, field, reason)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"error: {error}\n"
    assert output.err.count("\n") == 1
    assert ClockHistory(history).last() == before
    assert Progress(history).of(THOROUGH, 0) == -1


def test_a_missing_store_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/typing-error.db"
    error = failure_of(main, arguments("--store", url))
    assert (type(error), error.exit_code) == (StoreMissing, EXIT_UNAVAILABLE)
    assert capsys.readouterr().err == f"error: {error}\n"
    assert url in str(error)
    assert not (tmp_path / "typing-error.db").exists()


def test_a_strategy_that_is_never_swept_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure_of(main, arguments(strategy="nothing")).exit_code == EXIT_BAD_INPUT
    assert {"conservative", "thorough"} <= set(words_in(capsys.readouterr().err))


def test_an_order_may_be_in_a_file(history: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(ORDER | {"stop_at": 3_000}))
    assert swept(capsys, "--order", str(file))["sweep_ts"] == 3_000


def test_a_job_that_was_given_a_horizon_does_not_measure_it_again(
    history: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Thresholds(history).raise_strategy(THOROUGH, 2_500)
    assert swept(capsys, measured=[2_500, 9_000_000, False])["sweep_ts"] == 2_500


class TestTheJournal:
    """A shard that is part of a run has no entry of its own, as long as the entry of the run says what it does."""

    @pytest.fixture(autouse=True)
    def as_before(self, history: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """The settings are those that data was last removed with."""
        monkeypatch.setenv("SWEEPFLOW_CLOCK_STEP_MAX_S", "900")
        monkeypatch.setenv("SWEEPFLOW_SQLITE_DURABILITY", "full")
        record_lowered(history, load_settings(), SystemClock())

    def intent(self, store: Store, what: str = "sweep", **details: Any) -> JournalEntry:
        recorded = {"horizons": {"conservative": 9}, "retentions_s": {"conservative": 3_600}, "shards": [0, 1]}
        return Journal(store).begin("ada", what, "conservative", "it is late", **recorded | details)

    def sweep(self, capsys: pytest.CaptureFixture[str], entry: int | None, **given: Any) -> None:
        given = {"strategy": "conservative", "actor": "ada", "reason": "it is late"} | given
        swept(capsys, journal_entry=entry, **given)

    def since(self, store: Store, number: int = 0) -> list[tuple[str, str, str, str]]:
        """The entries after a number."""
        found = [Journal(store).entry(each) for each in range(number + 1, Journal(store).verify().entries + 1)]
        return [(each.by, each.what, each.reason, each.outcome) for each in found if each]

    def own(self, store: Store, number: int) -> bool:
        """Return whether the last sweep recorded an entry of its own, and an outcome."""
        found = self.since(store, number)
        assert found in ([], [("ada", "sweep", "it is late", outcome) for outcome in ("asked", "done")])
        return bool(found)

    def test_has_no_second_entry_of_a_shard_that_its_run_has_recorded(
        self, history: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        number = self.intent(history).number
        self.sweep(capsys, number)
        assert not self.own(history, number)

    def test_has_an_entry_of_a_shard_that_is_no_part_of_a_run(
        self, history: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.sweep(capsys, None)
        assert self.own(history, 0)

    @pytest.mark.parametrize(
        "details",
        [
            {"retentions_s": {"conservative": 3_601}},
            {"retentions_s": {"thorough": 0}},
            {"retentions_s": {}},
            {"retentions_s": [3_600]},
            {"shards": [1]},
            {"shards": None},
            {"horizons": {"every": 9}},
            {"what": "dry run"},
        ],
        ids=str,
    )
    def test_has_an_entry_of_a_shard_whose_run_recorded_something_else(
        self, history: Store, capsys: pytest.CaptureFixture[str], details: dict[str, Any]
    ) -> None:
        number = self.intent(history, **details).number
        self.sweep(capsys, number)
        assert self.own(history, number)

    def test_has_an_entry_of_a_shard_whose_run_is_over(
        self, history: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        entry = self.intent(history)
        Journal(history).end(entry, Act())
        self.sweep(capsys, entry.number)
        assert self.own(history, entry.number + 1)
        self.sweep(capsys, entry.number + 1)
        assert self.own(history, entry.number + 3), "an outcome is no intent"

    def test_has_an_entry_of_a_shard_whose_run_is_not_recorded_any_more(
        self, history: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.sweep(capsys, 7)
        assert self.own(history, 0)

    @pytest.mark.parametrize("recorded", [True, False])
    def test_has_settings_that_are_less_safe_on_this_machine_alone(
        self, history: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, recorded: bool
    ) -> None:
        monkeypatch.setenv("SWEEPFLOW_RETENTION_S", "60")
        number = self.intent(history).number if recorded else 0
        self.sweep(capsys, number or None, dry_run=True)
        assert self.since(history, number) == []
        self.sweep(capsys, number or None)
        assert [(by, what) for by, what, _, outcome in self.since(history, number) if outcome == "asked"] == [
            ("ada", "settings"), ("ada", "sweep"),
        ]  # fmt: skip
