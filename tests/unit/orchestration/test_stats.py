"""What Airflow's own way of sending figures is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats

from sweep_tasks.errors import StoreBusy
from sweep_tasks.orchestration.stats import operations_told, tell_report
from sweep_tasks.protection.metrics import OPERATIONS, OUTCOMES, counted


class Figures:
    """A backend of Airflow's, which keeps what it is told."""

    def __init__(self) -> None:
        self.counted: dict[str, int] = {}
        self.standing: dict[str, float] = {}

    def incr(self, stat: str, count: int = 1, **_: Any) -> None:
        self.counted[stat] = self.counted.get(stat, 0) + count

    def gauge(self, stat: str, value: float, **_: Any) -> None:
        self.standing[stat] = value


@pytest.fixture
def figures() -> Iterator[Figures]:
    made = Figures()
    stats.initialize(factory=lambda: made, export_legacy_names=False)  # type: ignore[arg-type, return-value]
    yield made
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def test_operations_of_a_task_are_told_with_those_that_did_not_happen(figures: Figures) -> None:
    with counted("move"):
        pass
    with operations_told():
        with counted("release"):
            pass
        with pytest.raises(StoreBusy), counted("release"):
            raise StoreBusy("store: busy")
    names = {f"sweepflow.protection.{operation}.{outcome}" for operation in OPERATIONS for outcome in OUTCOMES}
    assert set(figures.counted) == names
    assert {name: number for name, number in figures.counted.items() if number} == {
        "sweepflow.protection.release.ok": 1,
        "sweepflow.protection.release.failed": 1,
    }


def test_operations_are_told_even_if_the_task_fails(figures: Figures) -> None:
    with pytest.raises(StoreBusy), operations_told(), counted("reconcile"):
        raise StoreBusy("store: busy")
    assert figures.counted["sweepflow.protection.reconcile.failed"] == 1


def test_a_report_is_told_in_figures(figures: Figures) -> None:
    tell_report(
        {"records": 3, "spans": 5, "oldest_age_s": 60, "problems": [{}], "outcomes": {"released": 2, "gone": 0}}
    )
    assert figures.standing == {
        "sweepflow.protection.records": 3,
        "sweepflow.protection.spans": 5,
        "sweepflow.protection.oldest_age_s": 60,
        "sweepflow.protection.problems": 1,
    }
    assert figures.counted == {"sweepflow.protection.reconciled.released": 2, "sweepflow.protection.reconciled.gone": 0}
