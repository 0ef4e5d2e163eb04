"""The order of a task as the job applies it: the attempt that it counts under, the horizon that it sweeps to."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_jobs.orders import SUBMITTED, ScanJob, SweepJob
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.actors import MOST_CHARACTERS
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.store import Store
from sweep_tasks.sweep.horizon import Horizon, in_table
from tests.support.clock import ManualClock

Job = Callable[[TaskAttempt | None], SweepJob | ScanJob]

JOBS: dict[str, Job] = {
    "targeted sweep": lambda attempt: SweepJob(SweepStrategy.THOROUGH, 0, attempt=attempt),
    "legacy sweep": lambda attempt: ScanJob(TableRef("shop", "items"), attempt=attempt),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    "by", [TaskAttempt("a_dag", "manual__2026", "a.task"), TaskAttempt("a_dag", "monday", "a.task", 3, 12)]
)
def test_every_job_counts_under_the_attempt_that_it_was_given(job: str, by: TaskAttempt) -> None:
    order = JOBS[job](by)
    parsed = type(order).parse(order.document())
    assert parsed == order
    assert parsed.counted_under == by


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_was_given_none_is_a_run_of_its_own(job: str) -> None:
    first, second = JOBS[job](None).counted_under, JOBS[job](None).counted_under
    assert first.dag == second.dag == SUBMITTED
    assert first.run != second.run


@pytest.mark.parametrize("job", JOBS)
def test_the_note_of_a_run_reaches_the_journal_of_its_job(job: str) -> None:
    order = JOBS[job](None)
    document = json.loads(order.document()) | {"actor": "ada", "reason": "it  is late"}
    parsed = type(order).parse(json.dumps(document))
    assert (parsed.actor, parsed.reason, order.reason) == ("ada", "it is late", "")
    for wrong in ("x" * (MOST_CHARACTERS + 1), "a\x1b[2J"):
        with pytest.raises(BadValue) as refused:
            type(order).parse(json.dumps(document | {"reason": wrong}))
        assert refused.value.field == "reason"


@pytest.mark.parametrize("numbers", ['"first", -1', '1, "none"'])
def test_an_argument_that_is_not_a_number_is_refused(numbers: str) -> None:
    with pytest.raises(BadValue) as refused:
        SweepJob.parse(f'{{"strategy": "thorough", "shard": 0, "attempt": ["a_dag", "monday", "a.task", {numbers}]}}')
    assert refused.value.field == "attempt"


class TestAMeasuredHorizon:
    """A document may contain any timestamp; it can only lower the sweep timestamp."""

    SETTINGS = Settings(retention_s=0)

    @pytest.fixture(autouse=True)
    def published(self, store: Store, clock: ManualClock) -> None:
        """Publish timestamp 100 at the last sample; 200 were handed out since."""
        timestamps = TimestampService(store)
        timestamps.move_past(100)
        ClockHistory(store).record_now(timestamps, clock, 0)
        Thresholds(store).raise_strategy(SweepStrategy.THOROUGH, 100)
        timestamps.move_past(200)

    def order(self, measured: Horizon, stop_at: int | None = None) -> SweepJob:
        return SweepJob.parse(SweepJob(SweepStrategy.THOROUGH, 0, stop_at=stop_at, measured=measured).document())

    def test_that_is_published_is_not_computed_again(self, store: Store, clock: ManualClock) -> None:
        before = TimestampService(store).greatest()
        found = self.order(Horizon(100, clock.now_ms())).horizon(store, self.SETTINGS, clock)
        assert found.sweep_ts == 100
        assert TimestampService(store).greatest() == before

    def test_above_what_is_published_is_computed_instead(self, store: Store, clock: ManualClock) -> None:
        clock.advance(60)
        measured = Horizon(10_000, clock.now_ms())
        found = self.order(measured).horizon(store, self.SETTINGS, clock)
        assert found.sweep_ts <= TimestampService(store).greatest() < measured.sweep_ts

    def test_a_given_timestamp_lowers_a_measured_horizon(self, store: Store, clock: ManualClock) -> None:
        order = self.order(Horizon(100, clock.now_ms()), stop_at=50)
        assert order.horizon(store, self.SETTINGS, clock).sweep_ts == 50

    def test_of_another_moment_cuts_no_retention_of_a_table_short(self, store: Store, clock: ManualClock) -> None:
        hour_s = 3_600
        found = self.order(Horizon(100, clock.now_ms() + 10 * hour_s * 1000)).horizon(store, self.SETTINGS, clock)
        assert in_table(found, hour_s, ClockHistory(store)) == 0
