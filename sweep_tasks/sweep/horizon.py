"""How far may we sweep?

For a conservative sweep: to what had been started one retention before the end of the run's interval, and no further
than the immutable timestamp. For a thorough sweep: the immutable timestamp alone, bounded by the interval's end.
"""

from __future__ import annotations

from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.immutable import immutable_timestamp
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService


class Horizon(NamedTuple):
    """Everything that started below `sweep_ts` may be judged; `wall_ms` is the moment retentions count back from."""

    sweep_ts: int
    wall_ms: int


def horizon(
    strategy: SweepStrategy,
    wall_ms: int,
    retention_s: int,
    timestamps: TimestampService,
    leases: Leases,
    puncher: Puncher,
) -> Horizon:
    """`wall_ms` is now, or the end of the run's interval if that is earlier."""
    immutable = immutable_timestamp(timestamps, leases)
    return Horizon(min(immutable, old_enough(strategy, wall_ms, retention_s, puncher)), wall_ms)


def old_enough(strategy: SweepStrategy, wall_ms: int, retention_s: int, puncher: Puncher) -> int:
    """What had been started by then, as far as the strategy lets its tables be swept."""
    back_ms = retention_s * 1000 if strategy is SweepStrategy.CONSERVATIVE else 0
    return puncher.timestamp_at(wall_ms - back_ms) or 0


def in_table(swept: Horizon, retention_s: int | None, puncher: Puncher) -> int:
    """How far a sweep goes in a table that keeps for so long by itself."""
    if retention_s is None:
        return swept.sweep_ts
    return min(swept.sweep_ts, puncher.timestamp_at(swept.wall_ms - retention_s * 1000) or 0)


def horizon_now(
    strategy: SweepStrategy, store: Store, settings: Settings, clock: Clock, until_ms: int | None = None
) -> Horizon:
    """As far as a sweep may go at this moment, or might have gone at `until_ms` if that is earlier. Punches first: a
    store where nobody else does would never be swept."""
    timestamps, puncher = TimestampService(store), Puncher(store)
    puncher.punch(timestamps, clock)
    now = clock.now_ms()
    wall_ms = now if until_ms is None else min(now, until_ms)
    return horizon(strategy, wall_ms, settings.retention_s, timestamps, Leases(store, settings.lease_ttl_s), puncher)
