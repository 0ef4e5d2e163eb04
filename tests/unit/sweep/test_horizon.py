"""How far a sweep may go."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.sweep.horizon import horizon
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from tests.support.clock import ManualClock

CONSERVATIVE, THOROUGH, _ = SweepStrategy
HOUR_MS = 3_600_000


def found(store: Store, strategy: SweepStrategy, wall_ms: int, retention_s: int = 3_600) -> int:
    answer = horizon(strategy, wall_ms, retention_s, TimestampService(store), Leases(store, 60), Puncher(store))
    assert answer.wall_ms == wall_ms
    return answer.sweep_ts


@pytest.fixture
def punched(store: Store) -> Store:
    """A timestamp for each hour: 100 at one, 200 at two, 300 at three."""
    for hour in (1, 2, 3):
        Puncher(store).record(Punch(hour * HOUR_MS, hour * 100))
    TimestampService(store).move_past(310)
    return store


def test_a_conservative_sweep_goes_to_one_retention_ago(punched: Store) -> None:
    assert found(punched, CONSERVATIVE, 3 * HOUR_MS) == 200
    assert found(punched, CONSERVATIVE, 3 * HOUR_MS + 1) == 200
    assert found(punched, CONSERVATIVE, 4 * HOUR_MS) == 300
    assert found(punched, CONSERVATIVE, 3 * HOUR_MS, retention_s=0) == 300
    assert found(punched, CONSERVATIVE, 3 * HOUR_MS, retention_s=7_200) == 100


def test_a_thorough_sweep_knows_no_retention(punched: Store) -> None:
    assert found(punched, THOROUGH, 3 * HOUR_MS) == 300
    assert found(punched, THOROUGH, 3 * HOUR_MS - 1) == 200


def test_an_interval_in_the_past_is_swept_to_its_own_end(punched: Store) -> None:
    assert found(punched, CONSERVATIVE, 2 * HOUR_MS) == 100
    assert found(punched, THOROUGH, 2 * HOUR_MS) == 200


def test_an_open_transaction_bounds_both(punched: Store) -> None:
    Leases(punched, 60).take(150, "one")
    assert found(punched, CONSERVATIVE, 3 * HOUR_MS) == 150
    assert found(punched, THOROUGH, 3 * HOUR_MS) == 150
    assert found(punched, CONSERVATIVE, 2 * HOUR_MS) == 100


def test_nothing_is_swept_that_was_never_handed_out(store: Store) -> None:
    Puncher(store).record(Punch(HOUR_MS, 500))
    assert found(store, THOROUGH, HOUR_MS) == 1, "the fresh timestamp taken for it"


def test_before_the_first_punch_nothing_may_be_swept(punched: Store) -> None:
    assert found(punched, CONSERVATIVE, HOUR_MS) == 0
    assert found(punched, THOROUGH, HOUR_MS - 1) == 0


def test_the_fresh_timestamp_is_taken_before_leases_are_read(punched: Store) -> None:
    calls: list[str] = []
    watched = FaultyStore(punched, before=lambda call: calls.append(call.name))
    found(watched, THOROUGH, 3 * HOUR_MS)
    assert calls[:2] == ["update", "read_rows"]


class TestTheWholeStore:
    def test_every_strategy_and_shard_goes_to_its_horizon(self, store: Store) -> None:
        clock = ManualClock(10 * HOUR_MS)
        Puncher(store).record(Punch(9 * HOUR_MS, 100))
        TimestampService(store).move_past(500)
        Progress(store).raise_shards(2)
        summaries = list(Sweeper(store, Settings(), clock).sweep())
        assert [(each.strategy, each.shard) for each in summaries] == [
            (CONSERVATIVE, 0), (CONSERVATIVE, 1), (THOROUGH, 0), (THOROUGH, 1),
        ]  # fmt: skip
        assert {each.sweep_ts for each in summaries[:2]} == {100}
        assert summaries[2].sweep_ts > 500, "it punched by itself, so now is known"
        assert Progress(store).all()[CONSERVATIVE, 1] == 99
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 100

    def test_a_timestamp_given_by_hand_only_lowers_it(self, store: Store) -> None:
        clock = ManualClock(10 * HOUR_MS)
        Puncher(store).record(Punch(9 * HOUR_MS, 100))
        TimestampService(store).move_past(500)
        sweeper = Sweeper(store, Settings(), clock)
        (summary,) = sweeper.sweep([CONSERVATIVE], stop_at=50)
        assert (summary.sweep_ts, summary.progress) == (50, 49)
        with pytest.raises(BadValue) as refused:
            next(sweeper.sweep([CONSERVATIVE, THOROUGH], stop_at=101))
        assert (refused.value.field, refused.value.reason) == ("stop_at", "too_high")
        assert all(given in str(refused.value) for given in ("101", "100", CONSERVATIVE.value))
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 50, "nothing was begun"
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
