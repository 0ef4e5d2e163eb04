"""What Airflow's own way of sending figures is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from sweep_tasks.compaction.documents import RoundReport, TombstoneCounts
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.status import status
from sweep_tasks.errors import StoreBusy
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.orchestration.stats import send_compaction, send_operations, send_report, send_status, send_sweep
from sweep_tasks.protection.metrics import OPERATIONS, OUTCOMES, count_call
from sweep_tasks.protection.reconciliation import ReportDocument, ReportedProblem
from sweep_tasks.store.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.support.compaction import NEAR_FAILING
from tests.unit.sweep.world import World


class Figures:
    """A metrics backend of Airflow that keeps what it receives."""

    def __init__(self) -> None:
        self.counted: dict[str, int] = {}
        self.standing: dict[str, float] = {}

    def incr(self, stat: str, count: int = 1, **_: Any) -> None:
        self.counted[stat] = self.counted.get(stat, 0) + count

    def gauge(self, stat: str, value: float, **_: Any) -> None:
        self.standing[stat] = value


@pytest.fixture
def figures() -> Iterator[Figures]:
    created = Figures()
    stats.initialize(factory=lambda: created, export_legacy_names=False)  # type: ignore[arg-type, return-value]
    yield created
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


def test_operations_of_a_task_are_reported_including_zero_counts(figures: Figures) -> None:
    with count_call("move"):
        pass
    with send_operations():
        with count_call("release"):
            pass
        with pytest.raises(StoreBusy), count_call("release"):
            raise StoreBusy("store: busy")
    names = {f"sweepflow.protection.{operation}.{outcome}" for operation in OPERATIONS for outcome in OUTCOMES}
    assert set(figures.counted) == names
    assert {name: number for name, number in figures.counted.items() if number} == {
        "sweepflow.protection.release.ok": 1,
        "sweepflow.protection.release.failed": 1,
    }


def test_operations_are_reported_even_if_the_task_fails(figures: Figures) -> None:
    with pytest.raises(StoreBusy), send_operations(), count_call("reconcile"):
        raise StoreBusy("store: busy")
    assert figures.counted["sweepflow.protection.reconcile.failed"] == 1


def test_a_reconciliation_is_reported_as_metrics(figures: Figures) -> None:
    send_report(
        ReportDocument(
            as_of_ms=0, dry_run=False, recounted=False, records=3, spans=5, oldest_age_s=60, findings=[],
            problems=[ReportedProblem("one", "one")], outcomes={"released": 2, "gone": 0},
        )
    )  # fmt: skip
    assert figures.standing == {
        "sweepflow.protection.records": 3,
        "sweepflow.protection.spans": 5,
        "sweepflow.protection.oldest_age_s": 60,
        "sweepflow.protection.problems": 1,
    }
    assert figures.counted == {"sweepflow.protection.reconciled.released": 2, "sweepflow.protection.reconciled.gone": 0}


def test_a_compaction_round_is_reported_as_metrics_and_a_dry_run_dropped_nothing(figures: Figures) -> None:
    output = RoundReport(
        node="10.0.0.2", dropped=700, kept={"gc_grace": 20}, tombstones=TombstoneCounts(before=720, after=20),
        near_failing=(NEAR_FAILING,),
    )  # fmt: skip
    send_compaction(output)
    send_compaction(output.model_copy(update={"dry_run": True}))
    assert figures.counted == {"sweepflow.compaction.10_0_0_2.dropped": 700}
    assert figures.standing == {
        "sweepflow.compaction.10_0_0_2.tombstones": 20,
        "sweepflow.compaction.10_0_0_2.near_failing": 1,
        "sweepflow.compaction.10_0_0_2.kept.gc_grace": 20,
    }


def test_a_sweep_is_reported_as_metrics_and_a_dry_run_is_not(
    figures: Figures, memory: MemoryStore, clock: ManualClock
) -> None:
    world = World(memory, clock)
    for start in (10, 20):
        world.write(start, start + 1)
    summary = world.sweep(100)
    by = TaskAttempt("targeted_sweep", "r", "conservative.shard_0")
    send_sweep(replace(summary, dry_run=True), by)
    assert figures.counted == {}
    send_sweep(summary, by)
    assert figures.counted["sweepflow.sweep.entries.conservative.0"] == 2
    assert figures.counted["sweepflow.sweep.runs.conservative.0"] == 1
    assert figures.counted["sweepflow.sweep.quarantined.conservative.0"] == 0


def test_the_status_of_the_store_is_reported_as_the_page_shows_it(
    figures: Figures, memory: MemoryStore, clock: ManualClock
) -> None:
    world = World(memory, clock)
    ClockHistory(memory).record_now(TimestampService(memory), clock, 900)
    world.write(10, 11)
    clock.advance(5 * 3_600)
    send_status(status(memory, Settings(), clock))
    assert figures.standing == {
        "sweepflow.health": 2,
        "sweepflow.lag.seconds.conservative.0": 18_000,
        "sweepflow.lag.seconds.thorough.0": 18_000,
        "sweepflow.backlog.timestamps.conservative.0": 12,
        "sweepflow.backlog.timestamps.thorough.0": 12,
    }
