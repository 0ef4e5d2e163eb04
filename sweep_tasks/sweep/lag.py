"""How far behind each shard is, by the clock.

A sweeper that reports its own lag reports nothing while it does not run, which is when it matters. So lag is found
from the outside: the wall-clock map tells when the first timestamp that is not swept yet was handed out, and the
clock tells how long ago that was. It grows until somebody sweeps.
"""

from __future__ import annotations

from typing import NamedTuple

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


def swept_up_to(store: Store) -> list[SweptUpTo]:
    puncher = Puncher(store)
    standing = Progress(store).all()
    moments = {progress: puncher.moment_of(progress + 1) for progress in set(standing.values())}
    return [SweptUpTo(strategy, shard, progress, moments[progress]) for (strategy, shard), progress in standing.items()]


def lag_s(moment_ms: int, now_ms: int) -> int:
    """A shard swept beyond the moment asked about is not behind."""
    return max(0, now_ms - moment_ms) // 1000
