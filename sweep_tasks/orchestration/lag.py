"""Fail loudly when a shard is further behind than its strategy's objective allows.

A run for a past interval is held to what it could have reached, the end of that interval, and not to the present.
"""

from __future__ import annotations

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import LagObjectiveMissed
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.lag import ShardLag, behind, lags_at, objectives, sentences, swept_up_to
from sweep_tasks.timestamps.puncher import Puncher


def check_lag(store: Store, settings: Settings, clock: Clock, until_ms: int | None = None) -> list[ShardLag]:
    """The lag of every shard at `until_ms`, the end of the run's interval (now, if that is earlier or none is given);
    raises `LagObjectiveMissed` if any is too far behind."""
    now_ms = clock.now_ms() if until_ms is None else min(clock.now_ms(), until_ms)
    first = Puncher(store).first()
    lags = lags_at(now_ms, swept_up_to(store), first.wall_ms if first else now_ms)
    allowed = objectives(settings)
    late = behind(lags, allowed)
    if late:
        raise LagObjectiveMissed(
            f"lag: {'; '.join(sentences(late, allowed))}; 'sweepflow status' shows what holds the sweep up: mend that "
            "and sweep again, or raise sweep_tasks_at_once or the objective",
            late,
        )
    return lags
