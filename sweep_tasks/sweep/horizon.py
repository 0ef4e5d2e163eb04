"""Computes the horizon of a sweep: the greatest sweep timestamp that it may use.

A conservative sweep may sweep what had started one retention before the end of the run's interval, but never above the
immutable timestamp. A thorough sweep has no retention: its horizon is the immutable timestamp, bounded by the end of
the interval.

The current time is this host's clock, unless that is too far above the store's last clock sample; then it is the
sample. A host whose clock is ahead would otherwise treat a write of a moment ago as an hour old.
"""

from __future__ import annotations

from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, at_most_default
from sweep_tasks.coordination.leases import Leases, immutable_timestamp
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store


class Horizon(NamedTuple):
    """Everything that started below `sweep_ts` may be judged. Retentions count back from `wall_ms`."""

    sweep_ts: int
    wall_ms: int
    sampled: bool = False
    """The time was read from a clock and checked against clock samples. It is valid only while those samples are."""


def horizon(
    strategy: SweepStrategy,
    wall_ms: int,
    retention_s: int,
    timestamps: TimestampService,
    leases: Leases,
    clock_history: ClockHistory,
    sampled: bool = False,
) -> Horizon:
    """Return the horizon at `wall_ms`: the checked current time, or the end of the run's interval if earlier."""
    immutable = immutable_timestamp(timestamps, leases)
    return Horizon(min(immutable, old_enough(strategy, wall_ms, retention_s, clock_history, sampled)), wall_ms, sampled)


def old_enough(
    strategy: SweepStrategy, wall_ms: int, retention_s: int, clock_history: ClockHistory, sampled: bool = False
) -> int:
    """Return the greatest timestamp that is old enough for the strategy's retention."""
    return _timestamp_before(
        wall_ms, retention_s if strategy is SweepStrategy.CONSERVATIVE else 0, clock_history, sampled
    )


def in_table(swept: Horizon, retention_s: int | None, clock_history: ClockHistory) -> int:
    """Return the sweep timestamp of a table with a retention of its own."""
    if retention_s is None:
        return swept.sweep_ts
    return min(swept.sweep_ts, _timestamp_before(swept.wall_ms, retention_s, clock_history, swept.sampled))


def _timestamp_before(wall_ms: int, seconds: int, clock_history: ClockHistory, sampled: bool) -> int:
    back_ms = seconds * 1000
    return (
        clock_history.timestamp_before(wall_ms, back_ms) if sampled else clock_history.timestamp_at(wall_ms - back_ms)
    ) or 0


def now_here(sweep_ts: int, store: Store, settings: Settings, clock: Clock) -> Horizon:
    """Return a horizon with a known sweep timestamp and the current time as a sweep on this host would use it."""
    return Horizon(sweep_ts, ClockHistory(store).believed_ms(clock, settings.clock_step_max_s))


def horizon_now(
    strategy: SweepStrategy,
    store: Store,
    settings: Settings,
    clock: Clock,
    until_ms: int | None = None,
    *,
    dry_run: bool = False,
) -> Horizon:
    """Return the horizon of a sweep now, or at `until_ms` if that is earlier. Takes a clock sample first: without
    samples, a store that no other process uses would never be swept.

    A sample lasts, and later sweeps rely on it. So a dry run stores none that the default limit of a step would refuse,
    whatever this process has set.
    """
    timestamps, clock_history = TimestampService(store), ClockHistory(store)
    step_max_s = settings.clock_step_max_s
    clock_history.record_now(timestamps, clock, at_most_default(step_max_s) if dry_run else step_max_s)
    now = clock_history.believed_ms(clock, settings.clock_step_max_s)
    wall_ms = now if until_ms is None else min(now, until_ms)
    leases = Leases(store, settings.lease_ttl_s)
    return horizon(strategy, wall_ms, settings.retention_s, timestamps, leases, clock_history, sampled=True)
