from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pendulum
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, AlreadySwept, BadValue, StoreMissing, SweepflowError, UnknownTable
from sweep_tasks.metrics.tally import OPERATIONS, Tally
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.orchestration.protecting import ProtectTimestamp, ReleaseTimestamp, protect_timestamp, record_id
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from tests.support.contexts import A_RUN

ORDERS = TableRef.parse("shop.orders")


class Running(NamedTuple):
    """The part of a task context that these tasks use."""

    run_id: str
    task_id: str
    dag_id: str = "backup"
    map_index: int = -1
    try_number: int = 1


@pytest.fixture
def catalog(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> ProtectionCatalog:
    sqlite.create_table(ORDERS, TableMetadata())
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    return ProtectionCatalog(sqlite)


def protect(run: str = "monday", tables: str | list[str] = "shop.*", map_index: int = -1, **given: Any) -> int:
    task = ProtectTimestamp(task_id="protect", tables=tables, **given)
    return task.execute({"ti": Running(run, "protect", map_index=map_index), "dag_run": A_RUN})  # type: ignore[typeddict-item]


def release(run: str = "monday") -> bool:
    task = ReleaseTimestamp(task_id="release", protected_by="protect")
    return task.execute({"ti": Running(run, "release"), "dag_run": A_RUN})  # type: ignore[typeddict-item]


def test_a_setup_protects_a_fresh_timestamp_for_its_run_and_the_teardown_releases_it(
    catalog: ProtectionCatalog, sqlite: Store
) -> None:
    ts = protect(meta={"ticket": "7"})
    assert ts == TimestampService(sqlite).greatest()
    (record,) = catalog.records()
    assert (record.id, record.ts, record.mode, record.state) == (
        "backup/monday/protect",
        ts,
        Mode.AT,
        State.ACCEPTED,
    )
    assert record.targets == (Target.parse("shop.*"),)
    assert (record.meta_type, record.meta) == (
        "airflow_run",
        {"dag_id": "backup", "run_id": "monday", "task_id": "protect", "ticket": "7"},
    )
    assert release()
    assert catalog.records() == []


def test_a_retried_setup_keeps_the_timestamp_of_its_run(catalog: ProtectionCatalog) -> None:
    first = protect()
    assert protect() == first
    assert protect("tuesday") > first
    assert protect(map_index=1) > first
    assert len(catalog.records()) == 3


def test_after_the_release_a_cleared_setup_protects_a_fresh_timestamp(catalog: ProtectionCatalog) -> None:
    first = protect()
    release()
    assert protect() > first


def test_releasing_nothing_is_no_error(catalog: ProtectionCatalog) -> None:
    assert release() is False


def test_a_timestamp_may_be_given_by_a_template(catalog: ProtectionCatalog) -> None:
    assert protect(timestamp="41", mode="after") == 41
    assert catalog.records()[0].mode is Mode.AFTER
    assert protect("tuesday", timestamp="None") != 41


def recorded(sqlite: Store) -> dict[str, float]:
    return next((series.sums for series in Tally(sqlite).read().series if series.job == OPERATIONS), {})


def test_what_the_tasks_do_is_added_up_in_the_store(catalog: ProtectionCatalog, sqlite: Store) -> None:
    protect()
    protect(map_index=1)
    release()
    assert recorded(sqlite) == {"protect.ok": 2, "release.ok": 1}
    with pytest.raises(AirflowFailException):
        too_old(sqlite, catalog)
    assert recorded(sqlite) == {"protect.ok": 2, "protect.refused": 1, "release.ok": 1}


def too_old(sqlite: Store, catalog: ProtectionCatalog) -> int:
    Thresholds(sqlite).raise_strategy(SweepStrategy.CONSERVATIVE, 90)
    return protect("tuesday", timestamp=50)


def other_tables(sqlite: Store, catalog: ProtectionCatalog) -> int:
    catalog.protect(Record("backup/monday/protect", 1, Mode.AT, (Target.parse("shop.*"),)))
    return protect(tables=["shop.orders"])


@pytest.mark.parametrize(
    ("attempt", "kind", "attributes", "shown"),
    [
        (too_old, AlreadySwept, {"ts": 50, "earliest": 90}, ["50", "90"]),
        (
            other_tables,
            AlreadyExists,
            {"record_id": "backup/monday/protect", "reason": "different"},
            ["backup/monday/protect"],
        ),
        (lambda *_: protect(tables="shop.none"), UnknownTable, {"table": TableRef.parse("shop.none")}, ["shop.none"]),
        (lambda *_: protect(tables=" , "), BadValue, {"field": "targets"}, []),
        (lambda *_: protect(timestamp="soon"), BadValue, {"field": "timestamp"}, ["soon"]),
    ],
)
def test_a_permanent_failure_is_one_sentence_and_not_retried(
    attempt: Callable[[Store, ProtectionCatalog], int],
    kind: type[SweepflowError],
    attributes: dict[str, Any],
    shown: list[str],
    sqlite: Store,
    catalog: ProtectionCatalog,
) -> None:
    with pytest.raises(AirflowFailException) as failed:
        attempt(sqlite, catalog)
    error = failed.value.__context__
    assert isinstance(error, kind)
    assert {name: getattr(error, name, error.details.get(name)) for name in attributes} == attributes
    assert str(failed.value) == str(error)
    assert all(value in str(error) for value in shown)


def test_a_store_that_is_not_there_is_an_error_of_both_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", "sqlite:////no/such/store.db")
    for task in (protect, release):
        with pytest.raises(AirflowException) as failed:
            task()
        error = failed.value.__context__
        assert isinstance(error, StoreMissing)
        assert error.where == "sqlite:////no/such/store.db"
        assert str(failed.value) == str(error)


def test_another_mode_is_refused_when_the_dag_is_read() -> None:
    with pytest.raises(BadValue) as refused:
        ProtectTimestamp(task_id="protect", tables="shop.*", mode="until")
    assert refused.value.field == "mode"
    assert "until" in str(refused.value)


def test_tasks_in_the_block_run_between_setup_and_teardown() -> None:
    with DAG("backup", schedule=None, start_date=pendulum.datetime(2026, 1, 1)) as dag:
        protection = protect_timestamp(["shop.*"])
        with protection as ts:
            first, last = EmptyOperator(task_id="first"), EmptyOperator(task_id="last")
            first >> last
        EmptyOperator(task_id="outside")
    setup, teardown = protection.setup, protection.teardown
    assert (setup.is_setup, teardown.is_teardown) == (True, True)
    assert [task for task, _ in ts.iter_references()] == [setup]
    assert setup.downstream_task_ids == {"first", teardown.task_id}
    assert teardown.upstream_task_ids == {"last", setup.task_id}
    assert teardown.protected_by == setup.task_id == "protect_timestamp"
    assert not dag.get_task("outside").upstream_task_ids


def test_long_names_are_shortened_and_stay_distinct() -> None:
    ids = {record_id({"dag_id": "d" * 250, "run_id": "r" * 200 + day, "task_id": "protect"}) for day in "12"}
    assert len(ids) == 2
    assert {len(each) for each in ids} == {200}
