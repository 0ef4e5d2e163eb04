"""Fail loudly when a shard is further behind than its strategy's objective allows.

One that was never swept, or whose progress is older than the wall-clock map, is behind since the first moment on
that map: on a new store that is just now, so nobody is told before there is something to tell. A run for a past
interval is held to what it could have reached, the end of that interval, and not to the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pendulum

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import LagObjectiveMissed
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.lag import SweptUpTo, lag_s, swept_up_to
from sweep_tasks.timestamps.puncher import Puncher


class ShardLag(NamedTuple):
    strategy: SweepStrategy
    shard: int
    lag_s: int


def check_lag(store: Store, settings: Settings, clock: Clock, until_ms: int | None = None) -> list[ShardLag]:
    """The lag of every shard at `until_ms`, the end of the run's interval (now, if that is earlier or none is given);
    raises `LagObjectiveMissed` if any is too far behind."""
    now_ms = clock.now_ms() if until_ms is None else min(clock.now_ms(), until_ms)
    first = Puncher(store).first()
    lags = lags_at(now_ms, swept_up_to(store), first.wall_ms if first else now_ms)
    allowed = objectives(settings)
    late = behind(lags, allowed)
    if late:
        raise LagObjectiveMissed(_sentence(late, allowed))
    return lags


def objectives(settings: Settings) -> dict[SweepStrategy, int]:
    return {
        SweepStrategy.CONSERVATIVE: settings.lag_objective_conservative_s,
        SweepStrategy.THOROUGH: settings.lag_objective_thorough_s,
    }


def lags_at(now_ms: int, swept: Iterable[SweptUpTo], first_ms: int) -> list[ShardLag]:
    """`first_ms` stands in for a moment that is not known."""
    return [
        ShardLag(each.strategy, each.shard, lag_s(first_ms if each.moment_ms is None else each.moment_ms, now_ms))
        for each in swept
    ]


def behind(lags: Iterable[ShardLag], allowed: Mapping[SweepStrategy, int]) -> list[ShardLag]:
    return [each for each in lags if each.lag_s > allowed[each.strategy]]


def _sentence(late: list[ShardLag], allowed: Mapping[SweepStrategy, int]) -> str:
    parts = []
    for strategy in sorted({each.strategy for each in late}):
        shards = [each for each in late if each.strategy is strategy]
        numbers = ", ".join(str(each.shard) for each in shards)
        longest = max(each.lag_s for each in shards)
        parts.append(
            f"{strategy} shard{'s' if len(shards) > 1 else ''} {numbers} "
            f"{'are up to' if len(shards) > 1 else 'is'} {_words(longest)} behind, "
            f"allowed is {_words(allowed[strategy])} (lag_objective_{strategy}_s)"
        )
    return (
        f"lag: {'; '.join(parts)}; 'sweepflow status' shows what holds the sweep up: mend that and sweep again, "
        "or raise sweep_tasks_at_once or the objective"
    )


def _words(seconds: int) -> str:
    return pendulum.duration(seconds=seconds).in_words() or "nothing"
