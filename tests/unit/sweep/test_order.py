"""What one run is ordered to sweep, and its horizon."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store import Store
from sweep_tasks.sweep.order import Budget, SweepOrder
from tests.support.clock import ManualClock

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
HOUR_MS = 3_600_000


@pytest.fixture
def history(store: Store, clock: ManualClock) -> Store:
    """A clock sample each hour for five hours: at hour n the timestamp was 1000 n. It is a moment after hour 5 now."""
    for hour in range(6):
        ClockHistory(store).record(ClockSample(hour * HOUR_MS, 1_000 * hour))
    TimestampService(store).move_past(5_000)
    clock.advance((5 * HOUR_MS + 1 - clock.now_ms()) / 1_000)
    return store


def reach(store: Store, clock: ManualClock, strategy: SweepStrategy, **given: Any) -> int:
    return SweepOrder(strategy, 0, **given).horizon(store, Settings(), clock).sweep_ts


def test_a_conservative_sweep_of_a_past_interval_stops_a_retention_before_its_end(
    history: Store, clock: ManualClock
) -> None:
    assert reach(history, clock, CONSERVATIVE, until_ms=3 * HOUR_MS) == 2_000


def test_a_thorough_sweep_of_a_past_interval_stops_at_its_end(history: Store, clock: ManualClock) -> None:
    assert reach(history, clock, THOROUGH, until_ms=3 * HOUR_MS) == 3_000


def test_an_interval_that_ends_in_the_future_ends_now(history: Store, clock: ManualClock) -> None:
    assert reach(history, clock, CONSERVATIVE, until_ms=90 * HOUR_MS) == 4_000
    assert 5_000 < reach(history, clock, THOROUGH, until_ms=90 * HOUR_MS) < 5_010


def test_a_given_timestamp_lowers_the_horizon(history: Store, clock: ManualClock) -> None:
    assert reach(history, clock, THOROUGH, until_ms=3 * HOUR_MS, stop_at=2_500) == 2_500


def test_a_given_timestamp_can_not_raise_it(history: Store, clock: ManualClock) -> None:
    assert reach(history, clock, THOROUGH, until_ms=3 * HOUR_MS, stop_at=4_500) == 3_000


def test_an_open_transaction_holds_it_back_whatever_the_interval(history: Store, clock: ManualClock) -> None:
    lease = Leases(history, 30).take(2_200, "another")
    assert reach(history, clock, THOROUGH, until_ms=3 * HOUR_MS) == 2_200
    Leases(history, 30).release([lease])
    assert reach(history, clock, THOROUGH, until_ms=3 * HOUR_MS) == 3_000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"strategy": NOTHING}, "strategy"),
        ({"shard": -1}, "shard"),
        ({"shard": 256}, "shard"),
        ({"stop_at": -5}, "stop_at"),
        ({"max_entries": -1}, "max_entries"),
        ({"max_seconds": -0.5}, "max_seconds"),
    ],
)
def test_an_invalid_order_is_refused_by_the_name_of_its_field(given: dict[str, Any], field: str) -> None:
    order: dict[str, Any] = {"strategy": CONSERVATIVE, "shard": 0}
    with pytest.raises(BadValue) as refused:
        SweepOrder(**(order | given))
    assert refused.value.field == field


def test_an_order_carries_its_budget_and_the_settings_cap() -> None:
    options = SweepOrder(THOROUGH, 3, max_entries=7, max_seconds=2.5, dry_run=True).options(
        Settings(max_tombstones_per_partition=11, grace_s=5, parked_per_run=9)
    )
    assert options.budget == Budget(7, 2.5, 11, 9)
    assert (options.grace_s, options.dry_run) == (5, True)
