from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sweep_tasks.alerts.message import failure
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.errors import NeedsAttention, StoreBusy, StoreMissing, TransactionAborted
from sweep_tasks.metrics.tally import OPERATIONS, Tally
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration import reconciling
from sweep_tasks.orchestration.reconciling import CheckProtections, ReconcileProtections, check_clocks, reconcile
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.metrics import count_call
from sweep_tasks.protection.owners import EXPIRY
from sweep_tasks.protection.reconciliation import ReportDocument
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.support.contexts import A_RUN
from tests.support.errors import having
from tests.support.lines import values_in

TABLE = TableRef.parse("app.items")
SETTINGS = Settings()
NOTHING = ReportDocument(
    as_of_ms=0, dry_run=False, records=0, spans=0, recounted=False, oldest_age_s=0, outcomes={}, findings=[],
    problems=[],
)  # fmt: skip


def held(name: str, ts: int = 50, **given: Any) -> Record:
    return Record(name, ts, Mode.AT, (Target(TABLE),), **given)


@pytest.fixture
def catalog(store: Store, table: TableRef, clock: ManualClock) -> ProtectionCatalog:
    assert table == TABLE
    return ProtectionCatalog(store, SETTINGS, clock)


def outcomes(report: ReportDocument) -> dict[str, str]:
    return {each.id: each.outcome.value for each in report.findings}


def test_an_expired_record_is_released_from_every_kind_of_store(
    store: Store, catalog: ProtectionCatalog, clock: ManualClock
) -> None:
    catalog.protect(held("short", meta_type=EXPIRY, expires_ms=clock.now_ms() + 1_000))
    catalog.protect(held("long", meta_type=EXPIRY, expires_ms=clock.now_ms() + 9_000))
    clock.advance(2)
    assert outcomes(reconcile(store, SETTINGS, clock)) == {"short": "released", "long": "kept"}
    assert [record.id for record in catalog.records()] == ["long"]


def test_a_record_of_a_dead_transaction_is_dropped_and_one_of_a_live_transaction_waits_for_its_end(
    store: Store, catalog: ProtectionCatalog, clock: ManualClock
) -> None:
    manager = TransactionManager(store, SETTINGS, clock=clock, renew_leases=False)
    dead = manager.transaction()
    dead.protect(TABLE, id="of the dead")
    clock.advance(SETTINGS.lease_ttl_s)
    alive = manager.transaction()
    alive.protect(TABLE, id="of the living")
    assert outcomes(reconcile(store, SETTINGS, clock)) == {"of the dead": "dropped", "of the living": "pending"}
    with pytest.raises(TransactionAborted, check=having(reason="lease_lost")):
        dead.commit()
    alive.commit()
    assert outcomes(reconcile(store, SETTINGS, clock)) == {"of the living": "kept"}


def test_where_nothing_is_protected_there_is_nothing_to_report(store: Store, clock: ManualClock) -> None:
    document = reconcile(store, SETTINGS, clock)
    assert (document.records, document.findings, document.problems) == (0, [], [])


class NamedDag(NamedTuple):
    dag_id: str


class Instance:
    """The part of a task instance that the check uses."""

    def __init__(self, problems: list[dict[str, str]], clocks: list[dict[str, Any]] | None = None) -> None:
        self._problems = problems
        self._clocks = clocks or []

    def xcom_pull(self, task_ids: str) -> dict[str, Any]:
        assert task_ids == "reconcile"
        return NOTHING.model_dump(mode="json") | {"problems": self._problems, "clocks": self._clocks}


def check(problems: list[dict[str, str]], clocks: list[dict[str, Any]] | None = None) -> None:
    CheckProtections(task_id="check").execute(cast(Any, {"ti": Instance(problems, clocks)}))


def test_without_a_problem_the_check_is_green() -> None:
    check([])


def test_the_check_fails_with_a_sentence_for_each_problem_and_names_what_they_are_about() -> None:
    found = [{"about": f"record {name} gone", "sentence": f"sentence {name}"} for name in "ab"]
    with pytest.raises(NeedsAttention, check=having(reason="protections")) as error:
        check(found)
    assert str(error.value) == "sentence a | sentence b"
    assert error.value.about == ("record a gone", "record b gone")


def test_a_clock_that_is_wrong_fails_the_check_and_is_named_in_the_alert(store: Store, clock: ManualClock) -> None:
    assert check_clocks(store, SETTINGS, clock) == []
    ahead = ManualClock(clock.now_ms() + 86_400_000, "ahead")
    (found,) = check_clocks(store, SETTINGS, ahead)
    assert (found.code, found.host, found.by_ms) == ("clock_ahead", "ahead", 86_400_000)
    with pytest.raises(NeedsAttention, check=having(code="clock")) as error:
        check([], [found.model_dump()])
    assert (error.value.code, error.value.about) == ("clock", ("clock_ahead ahead",))
    reported = failure({"dag": NamedDag("protected_timestamps"), "run_id": "r", "exception": error.value})
    assert (reported.error, found.sentence in reported.text) == ("clock", True)
    with pytest.raises(NeedsAttention, check=having(reason="protections")) as both:
        check([{"about": "record a gone", "sentence": "sentence a"}], [found.model_dump()])
    assert both.value.about == ("record a gone", "clock_ahead ahead")


def test_a_store_that_is_seldom_used_gets_a_clock_sample_from_each_run(store: Store, clock: ManualClock) -> None:
    check_clocks(store, SETTINGS, clock, dry_run=True)
    assert ClockHistory(store).last() is None
    for _ in range(2):
        check_clocks(store, SETTINGS, clock)
        last = ClockHistory(store).last()
        assert last
        assert last.wall_ms == clock.now_ms()
        clock.advance(600)


def test_a_long_list_of_problems_is_shortened_in_the_error() -> None:
    with pytest.raises(NeedsAttention, check=having(reason="protections")) as error:
        check([{"about": f"record {number} gone", "sentence": f"sentence {number}"} for number in range(12)])
    assert len(error.value.about) == 12
    *shown, more = str(error.value).split(" | ")
    assert shown == [f"sentence {number}" for number in range(10)]
    assert values_in(more) == ["2"]


def test_a_missing_store_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", "sqlite:////nowhere/at/all.db")
    with pytest.raises(AirflowFailException) as failed:
        ReconcileProtections(task_id="reconcile").execute(cast(Any, {"params": {"dry_run": False}}))
    assert isinstance(failed.value.__context__, StoreMissing)
    assert str(failed.value) == str(failed.value.__context__)


class Running(NamedTuple):
    """The part of a task context under which its figures are recorded."""

    dag_id: str = "protected_timestamps"
    run_id: str = "monday"
    task_id: str = "reconcile"
    try_number: int = 1


def test_what_was_done_is_added_up_also_if_the_reconciliation_fails(
    sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        with count_call("ask_owner"):
            raise StoreBusy("store: busy")

    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setattr(reconciling, "reconcile", failing)
    with pytest.raises(AirflowException) as failed:
        ReconcileProtections(task_id="reconcile").execute(
            cast(Any, {"ti": Running(), "dag_run": A_RUN, "params": {"dry_run": False}})
        )
    assert str(failed.value) == "store: busy"
    (series,) = Tally(sqlite).read().series
    assert (series.job, series.sums) == (OPERATIONS, {"ask_owner.failed": 1})
