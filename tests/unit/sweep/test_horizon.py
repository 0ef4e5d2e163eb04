"""The horizon of a sweep."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.sweep.horizon import horizon
from sweep_tasks.sweep.run import Sweeper
from tests.support.clock import ManualClock

CONSERVATIVE, THOROUGH, _ = SweepStrategy
HOUR_MS = 3_600_000


def found(store: Store, strategy: SweepStrategy, wall_ms: int, retention_s: int = 3_600) -> int:
    answer = horizon(strategy, wall_ms, retention_s, TimestampService(store), Leases(store, 60), ClockHistory(store))
    assert answer.wall_ms == wall_ms
    return answer.sweep_ts


@pytest.fixture
def sampled(store: Store) -> Store:
    """A timestamp for each hour: 100 at one, 200 at two, 300 at three."""
    for hour in (1, 2, 3):
        ClockHistory(store).record(ClockSample(hour * HOUR_MS, hour * 100))
    TimestampService(store).move_past(310)
    return store


def test_the_horizon_of_a_conservative_sweep_is_one_retention_ago(sampled: Store) -> None:
    assert found(sampled, CONSERVATIVE, 3 * HOUR_MS) == 200
    assert found(sampled, CONSERVATIVE, 3 * HOUR_MS + 1) == 200
    assert found(sampled, CONSERVATIVE, 4 * HOUR_MS) == 300
    assert found(sampled, CONSERVATIVE, 3 * HOUR_MS, retention_s=0) == 300
    assert found(sampled, CONSERVATIVE, 3 * HOUR_MS, retention_s=7_200) == 100


def test_a_thorough_sweep_knows_no_retention(sampled: Store) -> None:
    assert found(sampled, THOROUGH, 3 * HOUR_MS) == 300
    assert found(sampled, THOROUGH, 3 * HOUR_MS - 1) == 200


def test_an_interval_in_the_past_is_swept_to_its_own_end(sampled: Store) -> None:
    assert found(sampled, CONSERVATIVE, 2 * HOUR_MS) == 100
    assert found(sampled, THOROUGH, 2 * HOUR_MS) == 200


def test_an_open_transaction_bounds_both(sampled: Store) -> None:
    Leases(sampled, 60).take(150, "one")
    assert found(sampled, CONSERVATIVE, 3 * HOUR_MS) == 150
    assert found(sampled, THOROUGH, 3 * HOUR_MS) == 150
    assert found(sampled, CONSERVATIVE, 2 * HOUR_MS) == 100


def test_nothing_is_swept_that_was_never_handed_out(store: Store) -> None:
    ClockHistory(store).record(ClockSample(HOUR_MS, 500))
    assert found(store, THOROUGH, HOUR_MS) == 1, "the fresh timestamp taken for it"


def test_before_the_first_clock_sample_nothing_may_be_swept(sampled: Store) -> None:
    assert found(sampled, CONSERVATIVE, HOUR_MS) == 0
    assert found(sampled, THOROUGH, HOUR_MS - 1) == 0


def test_the_fresh_timestamp_is_taken_before_leases_are_read(sampled: Store) -> None:
    calls: list[str] = []
    watched = FaultyStore(sampled, before=lambda call: calls.append(call.name))
    found(watched, THOROUGH, 3 * HOUR_MS)
    assert calls[:2] == ["update", "read_rows"]


class TestTheWholeStore:
    def test_every_strategy_and_shard_is_swept_to_its_horizon(self, store: Store) -> None:
        clock = ManualClock(10 * HOUR_MS)
        for minute, ts in ((9 * 60, 100), (10 * 60 - 1, 400)):
            ClockHistory(store).record(ClockSample(minute * 60_000, ts))
        TimestampService(store).move_past(500)
        Progress(store).raise_shards(2)
        summaries = list(Sweeper(store, Settings(), clock).sweep())
        assert [(each.strategy, each.shard) for each in summaries] == [
            (CONSERVATIVE, 0), (CONSERVATIVE, 1), (THOROUGH, 0), (THOROUGH, 1),
        ]  # fmt: skip
        assert {each.sweep_ts for each in summaries[:2]} == {100}
        assert summaries[2].sweep_ts > 500, "it recorded a clock sample by itself, so now is known"
        assert Progress(store).all()[CONSERVATIVE, 1] == 99
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 100

    def test_a_given_timestamp_only_lowers_it(self, store: Store) -> None:
        clock = ManualClock(10 * HOUR_MS)
        for minute, ts in ((9 * 60, 100), (10 * 60 - 1, 400)):
            ClockHistory(store).record(ClockSample(minute * 60_000, ts))
        TimestampService(store).move_past(500)
        sweeper = Sweeper(store, Settings(), clock)
        (summary,) = sweeper.sweep([CONSERVATIVE], stop_at=50)
        assert (summary.sweep_ts, summary.progress) == (50, 49)
        with pytest.raises(BadValue) as refused:
            next(sweeper.sweep([CONSERVATIVE, THOROUGH], stop_at=101))
        assert (refused.value.field, refused.value.reason) == ("stop_at", "too_high")
        assert all(given in str(refused.value) for given in ("101", "100", CONSERVATIVE.value))
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 50, "nothing was started"
        assert Thresholds(store).of_strategy(THOROUGH) == 0

    @pytest.mark.parametrize("shards", [[2], [-1], [0, 7]])
    def test_a_shard_that_does_not_exist_is_refused_before_anything_is_done(
        self, store: Store, shards: list[int]
    ) -> None:
        Progress(store).raise_shards(2)
        with pytest.raises(BadValue) as refused:
            next(Sweeper(store, Settings(), ManualClock(HOUR_MS)).sweep(shards=shards))
        assert (refused.value.field, refused.value.reason) == ("shard", "unknown")
        assert Progress(store).all()[CONSERVATIVE, 0] == -1
