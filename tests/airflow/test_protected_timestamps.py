"""Protections are released when the runs that took them end; those without an owner are reported to an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sweep_tasks.journal.journal import Journal
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import PROTECTED_TIMESTAMPS
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.owners import AIRFLOW_RUN, MANUAL
from sweep_tasks.protection.reconciliation import ReportDocument, readable
from sweep_tasks.protection.records import Mode, Record, Target
from tests.airflow.logs import events, with_code
from tests.airflow.queued import TABLES, QueuedStore
from tests.airflow.webhook import Webhook

pytestmark = pytest.mark.timeout(900)

EARLY, LATE = "early__2026-11-16T10:00:00+00:00", "late__2026-11-16T10:10:00+00:00"


@pytest.fixture
def catalog(airflow: LocalAirflow, queued: QueuedStore) -> Iterator[ProtectionCatalog]:
    airflow.unpause(PROTECTED_TIMESTAMPS)
    yield ProtectionCatalog(queued.store)
    airflow.unpause(PROTECTED_TIMESTAMPS, paused=True)


def owned(record_id: str, meta_type: str = AIRFLOW_RUN, **meta: str) -> Record:
    targets = (Target(TABLES[SweepStrategy.CONSERVATIVE]),)
    return Record(record_id, 50, Mode.AT, targets, meta_type=meta_type, meta=meta)


def owned_by_run(record_id: str, run_id: str) -> Record:
    return owned(record_id, dag_id=PROTECTED_TIMESTAMPS, run_id=run_id)


def run(airflow: LocalAirflow, run_id: str, expected: str, **form: Any) -> dict[str, str]:
    """Returns of every record what became of it."""
    airflow.trigger(PROTECTED_TIMESTAMPS, form, run_id=run_id)
    ended = airflow.wait_for_run(PROTECTED_TIMESTAMPS, run_id)
    assert ended == expected, airflow.describe_run(PROTECTED_TIMESTAMPS, run_id)
    return {each["id"]: each["outcome"] for each in report_of(airflow, run_id)["findings"]}


def report_of(airflow: LocalAirflow, run_id: str) -> dict[str, Any]:
    report: dict[str, Any] = airflow.xcom(PROTECTED_TIMESTAMPS, run_id, "reconcile")
    return report


def test_records_of_a_finished_run_are_released_and_orphaned_records_are_alerted_once(
    airflow: LocalAirflow, catalog: ProtectionCatalog, queued: QueuedStore, webhook: Webhook
) -> None:
    """Both runs own a record themselves: while a run asks about its own, it is not over."""
    for record in (owned_by_run("first", EARLY), owned("manual", MANUAL)):
        assert catalog.protect(record).accepted
    assert run(airflow, EARLY, "success") == {"first": "kept", "manual": "kept"}
    assert webhook.about(EARLY) == []

    for record in (owned_by_run("second", LATE), owned_by_run("lost", "deleted"), owned("odd", "sheep")):
        assert catalog.protect(record).accepted
    assert run(airflow, LATE, "failed") == {
        "first": "released", "manual": "kept", "second": "kept", "lost": "gone", "odd": "unknown",
    }  # fmt: skip
    assert {record.id for record in catalog.records()} == {"manual", "second", "lost", "odd"}
    released = [note for note in Journal(queued.store).last() if note.what == "release"]
    assert [(note.by, note.about, note.outcome) for note in released] == [("admin", "first", "done")]
    assert airflow.task_states(PROTECTED_TIMESTAMPS, LATE) == {"reconcile": "success", "check": "failed"}
    assert airflow.task_instances(PROTECTED_TIMESTAMPS, LATE)["check"]["try_number"] == 1
    problems = messages_for_operators(airflow)
    airflow.wait(
        "the alert", lambda: webhook.about(LATE), explain=lambda: airflow.describe_run(PROTECTED_TIMESTAMPS, LATE)
    )
    [alert] = webhook.about(LATE)
    assert alert["failed_tasks"] == ["check"]
    assert set(problems) == {"record lost gone", "record odd unknown"}
    assert all(sentence in alert["happened"] for sentence in problems.values())
    assert all(name in alert["happened"] for name in ("lost", AIRFLOW_RUN, "sheep"))

    assert run(airflow, "again", "failed", dry_run=True)["second"] == "released"
    assert "second" in {record.id for record in catalog.records()}
    assert len(with_code(airflow, PROTECTED_TIMESTAMPS, "again", "check", "dry_run")) == 1
    assert run(airflow, "in-earnest", "failed")["second"] == "released"
    assert len(with_code(airflow, PROTECTED_TIMESTAMPS, "in-earnest", "check", "already_sent")) == 1
    assert webhook.about("again") == webhook.about("in-earnest") == []


def messages_for_operators(airflow: LocalAirflow) -> dict[str, str]:
    """The report is in the log of the one task and its problems in that of the other. Returns the problems."""
    report = report_of(airflow, LATE)
    counts = {outcome: number for outcome, number in report["outcomes"].items() if number}
    assert (report["records"], report["spans"]) == (4, 4)
    assert counts == {"released": 1, "kept": 2, "gone": 1, "unknown": 1}
    assert set(readable(ReportDocument.model_validate(report))) <= events(
        airflow, PROTECTED_TIMESTAMPS, LATE, "reconcile"
    )
    problems = {each["about"]: each["sentence"] for each in report["problems"]}
    assert set(problems.values()) <= events(airflow, PROTECTED_TIMESTAMPS, LATE, "check")
    assert "release lost" in problems["record lost gone"], "the command to run is not named"
    return problems
