"""A run of a DAG in the journal: for whom it acts, and one act for all its shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.journal.actors import MOST_CHARACTERS, NO_REASON, SCHEDULER
from sweep_tasks.journal.journal import Journal, JournalEntry
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.orchestration.form import ShardTask
from sweep_tasks.orchestration.prepare import PREPARE
from sweep_tasks.orchestration.recording import INCOMPLETE, actor_of, record_intent, record_outcome
from sweep_tasks.orchestration.scanning import MANUAL, Planned, ScanSlot, legacy_form
from sweep_tasks.orchestration.spark_job import SparkJobOperator
from sweep_tasks.orchestration.sweeping import SweepShardOperator
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, fail, on
from sweep_tasks.store.schema import JOURNAL_HEAD
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.catalog import Catalog

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
TASKS = [ShardTask(strategy, shard) for strategy in (CONSERVATIVE, THOROUGH) for shard in (0, 1)]
FORM = {"stop_at": None, "max_entries": 0, "max_seconds": 0, "dry_run": False}
SUMMARIES = [Summary(task.strategy, task.shard, 7, entries=10, quarantined=1) for task in TASKS]


class Task:
    """A task instance, as far as it hands on values."""

    dag_id, run_id = "targeted_sweep", "monday"

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[PREPARE, key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.values.get((task_ids, key))


def context(user: str | None = None, note: str | None = None) -> Any:
    run = SimpleNamespace(triggering_user_name=user, note=note)
    return {"dag_run": run, "params": FORM, "ti": Task()}


@pytest.fixture
def url(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    Progress(sqlite).raise_shards(2)
    return sqlite_url


def entries(store: Store) -> list[JournalEntry]:
    found = [Journal(store).entry(number) for number in range(1, Journal(store).verify().entries + 1)]
    return [each for each in found if each]


@pytest.mark.parametrize(
    ("user", "note", "expected"),
    [
        ("ada", "it  is late\n", ("ada", "it is late")),
        (None, None, (SCHEDULER, NO_REASON)),
        ("ada", "  ", ("ada", NO_REASON)),
        ("a\x1b[2Jda", "x" * 1_000, ("a\\x1b[2Jda", None)),
    ],
)
def test_a_run_acts_for_the_user_who_triggered_it_or_for_the_scheduler(
    user: str | None, note: str | None, expected: tuple[str, str | None]
) -> None:
    name, reason = actor_of(context(user, note))
    assert name == expected[0]
    assert expected[1] is None or " ".join(reason.split()) == expected[1]
    assert len(reason) <= MOST_CHARACTERS


def test_all_shards_of_a_run_are_one_act_with_its_outcome(sqlite: Store, url: str) -> None:
    run = context("ada", "it is late")
    record_intent(sqlite, Settings(store=url), run, TASKS, 10**15)
    record_outcome(run, PREPARE, SUMMARIES)
    intent, outcome = entries(sqlite)
    assert (intent.by, intent.what, intent.about, intent.reason) == (
        "ada", "sweep", "conservative, thorough", "it is late"
    )  # fmt: skip
    assert intent.details.items() >= {"run": "monday", "dag": "targeted_sweep", "shards": [0, 1]}.items()
    assert intent.details["retentions_s"] == {"conservative": 3_600, "thorough": 0}
    assert intent.details["horizons"].keys() == {"conservative", "thorough"}
    assert (outcome.by, outcome.intent, outcome.outcome) == ("ada", intent.number, "done")
    assert outcome.details == {
        "swept_to": {"conservative": 7, "thorough": 7}, "shards": 4, "entries": 40, "range_deletes": 0, "sentinels": 0,
        "aborted_deletes": 0, "quarantined": 4,
    }  # fmt: skip


def test_an_outcome_is_recorded_once_however_often_its_task_is_retried(sqlite: Store, url: str) -> None:
    run = context("ada")
    record_intent(sqlite, Settings(store=url), run, TASKS, 10**15)
    for summaries in (SUMMARIES, SUMMARIES[:3]):
        record_outcome(run, PREPARE, summaries)
    assert [each.outcome for each in entries(sqlite)] == ["asked", "done"]


def test_settings_are_recorded_before_they_store_a_clock_sample(sqlite: Store, url: str) -> None:
    away = FaultyStore(sqlite, before=on("compare_and_set", 1, fail, JOURNAL_HEAD))
    with pytest.raises(StoreUnavailable):
        record_intent(away, Settings(store=url, clock_step_max_s=0), context(), TASKS, 10**15)
    assert ClockHistory(sqlite).last() is None


@pytest.mark.parametrize("kind", ["sweep", "scan"])
def test_the_orders_of_jobs_name_the_actor_and_the_note_of_the_run(
    sqlite: Store, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    submitted: list[Any] = []

    class Submitted(Exception):
        """The job is not started here."""

    def submit(self: Any, settings: Settings, job: Any, run: Any) -> Any:
        submitted.append(job)
        raise Submitted

    monkeypatch.setattr(SparkJobOperator, "submit_order", submit)
    monkeypatch.setenv("SWEEPFLOW_TASK_FOLDER", str(tmp_path / "tasks"))
    run = context("ada", "it is late")
    run["ti"].task_id, run["ti"].try_number = "task", 1
    run |= {"dag": SimpleNamespace(dag_id="a dag"), "run_id": "monday"}
    run["params"] = {name: field.value for name, field in legacy_form().items()}
    Catalog(sqlite).create(TableRef.parse("app.t"), TableMetadata())
    shard, slot = SweepShardOperator(task_id="task", strategy=THOROUGH, shard=0), ScanSlot(slot=0)
    start: dict[str, Callable[[], object]] = {
        "sweep": lambda: shard._sweep_with_spark(Settings(store=url), SweepOrder(THOROUGH, 0), Horizon(1, 1), run),
        "scan": lambda: slot._scan(Planned("app.t", MANUAL, 9), run),
    }
    with pytest.raises(Submitted):
        start[kind]()
    assert [(job.actor, job.reason) for job in submitted] == [("ada", "it is late")]


def test_a_run_some_of_whose_shards_did_not_end_is_recorded_as_incomplete(sqlite: Store, url: str) -> None:
    run = context()
    record_intent(sqlite, Settings(store=url), run, TASKS, 10**15)
    record_outcome(run, PREPARE, SUMMARIES[:3])
    assert entries(sqlite)[-1].outcome == f"failed: {INCOMPLETE}"


def test_settings_that_were_lowered_are_recorded_for_the_same_actor(sqlite: Store, url: str) -> None:
    record_intent(sqlite, Settings(store=url, retention_s=60), context("ada"), TASKS, 10**15)
    assert [(each.by, each.what) for each in entries(sqlite)] == [("ada", "settings")] * 2 + [("ada", "sweep")]


def test_a_run_whose_intent_can_not_be_recorded_does_not_start(sqlite: Store, url: str) -> None:
    away = FaultyStore(sqlite, before=on("compare_and_set", 1, fail, JOURNAL_HEAD))
    run = context()
    with pytest.raises(StoreUnavailable):
        record_intent(away, Settings(store=url), run, TASKS, 10**15)
    assert run["ti"].values == {}


def test_a_run_without_an_intent_has_no_outcome(sqlite: Store, url: str) -> None:
    record_outcome(context(), PREPARE, SUMMARIES)
    assert entries(sqlite) == []
