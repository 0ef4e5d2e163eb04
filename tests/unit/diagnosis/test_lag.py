"""Lag grows by the clock whether or not sweeps run, and a shard that is behind fails a task."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.lag import ShardLag, SweptUpTo, behind, check_lag, lag_s, lags_at, objectives, sentences
from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.texts import duration
from tests.support.clock import ManualClock
from tests.support.errors import having

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
HOUR_S = 3_600
HOUR = HOUR_S * 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100 * HOUR)


@pytest.fixture
def settings() -> Settings:
    return load_settings(lag_objective_conservative_s=4 * HOUR_S, lag_objective_thorough_s=3 * HOUR_S)


def hourly_samples(store: Store, first_hour: int, last_hour: int) -> None:
    """At hour h the timestamp was ten times h."""
    for hour in range(first_hour, last_hour + 1):
        ClockHistory(store).record(ClockSample(hour * HOUR, hour * 10))


def swept_to_hour(store: Store, hour: int, strategies: tuple[SweepStrategy, ...] = (CONSERVATIVE, THOROUGH)) -> None:
    for strategy in strategies:
        for shard in range(Progress(store).shards()):
            Progress(store).advance(strategy, shard, hour * 10 - 1)


class TestRule:
    def test_lag_is_what_lies_between_the_moment_and_now(self) -> None:
        assert lag_s(1_000, 61_999) == 60
        assert lag_s(61_000, 1_000) == 0

    def test_an_unknown_moment_counts_from_the_first(self) -> None:
        swept = [SweptUpTo(CONSERVATIVE, 0, 10, 50_000), SweptUpTo(THOROUGH, 1, -1, None)]
        assert lags_at(100_000, swept, first_ms=20_000) == [
            ShardLag(CONSERVATIVE, 0, 50), ShardLag(THOROUGH, 1, 80),
        ]  # fmt: skip

    def test_what_is_just_allowed_is_not_behind(self) -> None:
        lags = [ShardLag(CONSERVATIVE, 0, 60), ShardLag(CONSERVATIVE, 1, 61), ShardLag(THOROUGH, 0, 61)]
        assert behind(lags, {CONSERVATIVE: 60, THOROUGH: 100}) == [ShardLag(CONSERVATIVE, 1, 61)]


class TestCheck:
    def test_shards_within_their_objective_are_reported(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 98)
        assert check_lag(store, settings, clock) == [
            ShardLag(CONSERVATIVE, 0, 2 * HOUR_S), ShardLag(THOROUGH, 0, 2 * HOUR_S),
        ]  # fmt: skip

    def test_lag_grows_while_nothing_runs(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 98)
        check_lag(store, settings, clock)
        clock.advance(HOUR_S + 1)
        with pytest.raises(SweepflowError, check=having(code="behind")) as missed:
            check_lag(store, settings, clock)
        assert missed.value.details["late"] == (ShardLag(THOROUGH, 0, 3 * HOUR_S + 1),)

    def test_the_error_names_strategies_shards_lag_objective_and_the_way_out(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 80, 100)
        Progress(store).raise_shards(3)
        swept_to_hour(store, 99)
        with pytest.raises(SweepflowError, check=having(code="behind")) as missed:
            check_lag(store, settings, self.later(clock, 5))
        late = [ShardLag(strategy, shard, 6 * HOUR_S) for strategy in (CONSERVATIVE, THOROUGH) for shard in range(3)]
        assert missed.value.details["late"] == tuple(late)
        listed = sentences(late, objectives(settings))
        for strategy, allowed_s, sentence in zip(
            (CONSERVATIVE, THOROUGH), (4 * HOUR_S, 3 * HOUR_S), listed, strict=True
        ):
            assert sentence in str(missed.value)
            shown = (strategy, "0, 1, 2", duration(6 * HOUR_S), duration(allowed_s), f"lag_objective_{strategy}_s")
            assert all(each in sentence for each in shown)
        assert all(name in str(missed.value) for name in ("sweepflow status", "sweep_tasks_at_once"))

    def test_a_new_store_is_not_behind(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        assert [each.lag_s for each in check_lag(store, settings, clock)] == [0, 0]
        ClockHistory(store).record(ClockSample(clock.now_ms(), 1))
        assert [each.lag_s for each in check_lag(store, settings, clock)] == [0, 0]

    def test_a_shard_never_swept_is_behind_since_the_first_clock_sample(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 97, 100)
        assert [each.lag_s for each in check_lag(store, settings, clock)] == [3 * HOUR_S] * 2
        with pytest.raises(SweepflowError, check=having(code="behind")) as missed:
            check_lag(store, settings, self.later(clock, 0.5))
        assert missed.value.details["late"] == (ShardLag(THOROUGH, 0, 3 * HOUR_S + HOUR_S // 2),)

    def test_progress_older_than_the_record_is_behind_since_its_beginning(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 98, 100)
        swept_to_hour(store, 3)
        assert [each.lag_s for each in check_lag(store, settings, clock)] == [2 * HOUR_S] * 2

    def test_a_past_interval_is_measured_at_its_own_end(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 1, 100)
        swept_to_hour(store, 49)
        assert {each.lag_s for each in check_lag(store, settings, clock, until_ms=50 * HOUR)} == {HOUR_S}
        assert {each.lag_s for each in check_lag(store, settings, clock, until_ms=10 * HOUR)} == {0}
        with pytest.raises(SweepflowError, check=having(code="behind")):
            check_lag(store, settings, clock, until_ms=54 * HOUR)

    def test_an_interval_that_has_not_ended_is_measured_now(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 98)
        assert {each.lag_s for each in check_lag(store, settings, clock, until_ms=200 * HOUR)} == {2 * HOUR_S}

    def test_a_sweep_takes_it_back_to_its_retention(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        hourly_samples(store, 80, 100)
        TimestampService(store).move_past(1_000)
        list(Sweeper(store, settings, clock).sweep())
        lags = {each.strategy: each.lag_s for each in check_lag(store, settings, clock)}
        assert lags == {CONSERVATIVE: settings.retention_s, THOROUGH: 0}

    @staticmethod
    def later(clock: ManualClock, hours: float) -> ManualClock:
        clock.advance(hours * HOUR_S)
        return clock
