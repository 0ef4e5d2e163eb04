"""How far behind each shard is, by the clock, and which is further behind than its strategy's objective allows.

A sweeper that reports its own lag reports nothing while it does not run, which is when it matters. So lag is found
from the outside: the wall-clock map tells when the first timestamp that is not swept yet was handed out, and the
clock tells how long ago that was. It grows until somebody sweeps.

A shard that was never swept, or whose progress is older than the wall-clock map, is behind since the first moment on
that map: on a new store that is just now, so nobody is told before there is something to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sweep_tasks.config import Settings
from sweep_tasks.durations import words
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.puncher import Puncher


class SweptUpTo(NamedTuple):
    """`moment_ms` is the wall time everything up to which is swept; None if the record does not go back so far."""

    strategy: SweepStrategy
    shard: int
    progress: int
    moment_ms: int | None


class ShardLag(NamedTuple):
    strategy: SweepStrategy
    shard: int
    lag_s: int


def swept_up_to(store: Store) -> list[SweptUpTo]:
    """In a few reads, however many shards there are."""
    standing = Progress(store).all()
    moments = Puncher(store).moments_of({progress + 1 for progress in standing.values()})
    return [
        SweptUpTo(strategy, shard, progress, moments[progress + 1]) for (strategy, shard), progress in standing.items()
    ]


def lag_s(moment_ms: int, now_ms: int) -> int:
    """A shard swept beyond the moment asked about is not behind."""
    return max(0, now_ms - moment_ms) // 1000


def lags_at(now_ms: int, swept: Iterable[SweptUpTo], first_ms: int) -> list[ShardLag]:
    """`first_ms` stands in for a moment that is not known."""
    return [
        ShardLag(each.strategy, each.shard, lag_s(first_ms if each.moment_ms is None else each.moment_ms, now_ms))
        for each in swept
    ]


def objectives(settings: Settings) -> dict[SweepStrategy, int]:
    return {
        SweepStrategy.CONSERVATIVE: settings.lag_objective_conservative_s,
        SweepStrategy.THOROUGH: settings.lag_objective_thorough_s,
    }


def behind(lags: Iterable[ShardLag], allowed: Mapping[SweepStrategy, int]) -> list[ShardLag]:
    return [each for each in lags if each.lag_s > allowed[each.strategy]]


def sentences(late: Iterable[ShardLag], allowed: Mapping[SweepStrategy, int]) -> list[str]:
    """What is late, one for each strategy."""
    by_strategy: dict[SweepStrategy, list[ShardLag]] = {}
    for each in late:
        by_strategy.setdefault(each.strategy, []).append(each)
    return [
        f"{strategy} shard{'s' if len(shards) > 1 else ''} {', '.join(str(each.shard) for each in shards)} "
        f"{'are up to' if len(shards) > 1 else 'is'} {words(max(each.lag_s for each in shards))} behind, "
        f"allowed is {words(allowed[strategy])} (lag_objective_{strategy}_s)"
        for strategy, shards in sorted(by_strategy.items())
    ]
