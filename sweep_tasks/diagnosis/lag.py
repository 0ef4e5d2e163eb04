"""Computes the lag of each shard by the clock, and its backlog in timestamps and entries.

A sweeper that reports its own lag reports nothing while it does not run, which is when lag matters most. So lag is
computed from outside: the clock samples of the store give the wall time of the first timestamp that is not swept yet,
and lag is the time that has passed since. It grows until a sweep runs.

A shard that was never swept, or whose progress is older than the first clock sample, is behind since that first
sample. On a new store that is now, so there is no alert before there is anything to sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from pydantic import BaseModel

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.metrics.tally import SWEEP, Recorded, Sums
from sweep_tasks.model import MAX_TS, SweepStrategy
from sweep_tasks.queue.encoding import read_timestamps_row
from sweep_tasks.queue.progress import NEVER_SWEPT, QUEUES, Progress
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.schema import QUEUE_TIMESTAMPS
from sweep_tasks.texts import duration


class SweptUpTo(NamedTuple):
    """The progress of a shard, as a timestamp and as a wall time."""

    strategy: SweepStrategy
    shard: int
    progress: int
    moment_ms: int | None
    """Everything up to this wall time is swept; None if it is before the first clock sample."""


class ShardLag(NamedTuple):
    strategy: SweepStrategy
    shard: int
    lag_s: int


def swept_up_to(store: Store) -> list[SweptUpTo]:
    """Read the progress of each shard, in a fixed number of calls."""
    existing = Progress(store).all()
    moments = ClockHistory(store).moments_of({progress + 1 for progress in existing.values()})
    return [
        SweptUpTo(strategy, shard, progress, moments[progress + 1]) for (strategy, shard), progress in existing.items()
    ]


def lag_s(moment_ms: int, now_ms: int) -> int:
    """Return the lag in seconds; 0 for a shard that is swept beyond `now_ms`."""
    return max(0, now_ms - moment_ms) // 1000


def lags_at(now_ms: int, swept: Iterable[SweptUpTo], first_ms: int) -> list[ShardLag]:
    """Return the lag of each shard at `now_ms`. `first_ms` replaces a wall time that is not known."""
    return [
        ShardLag(each.strategy, each.shard, lag_s(first_ms if each.moment_ms is None else each.moment_ms, now_ms))
        for each in swept
    ]


def lags(store: Store, clock: Clock, until_ms: int | None = None) -> list[ShardLag]:
    """Return the lag of every shard at `until_ms`, the end of a run's interval, but not later than now."""
    now_ms = clock.now_ms() if until_ms is None else min(clock.now_ms(), until_ms)
    first = ClockHistory(store).first()
    return lags_at(now_ms, swept_up_to(store), first.wall_ms if first else now_ms)


# --- objectives -------------------------------------------------------------------------------------------------------


def objectives(settings: Settings) -> dict[SweepStrategy, int]:
    """Return the greatest lag that is allowed, in seconds, by strategy."""
    return {
        SweepStrategy.CONSERVATIVE: settings.lag_objective_conservative_s,
        SweepStrategy.THOROUGH: settings.lag_objective_thorough_s,
    }


def behind(lags: Iterable[ShardLag], allowed: Mapping[SweepStrategy, int]) -> list[ShardLag]:
    """Return the shards whose lag is greater than their objective."""
    return [each for each in lags if each.lag_s > allowed[each.strategy]]


def by_strategy(lags: Iterable[ShardLag]) -> dict[SweepStrategy, list[ShardLag]]:
    found: dict[SweepStrategy, list[ShardLag]] = {}
    for each in lags:
        found.setdefault(each.strategy, []).append(each)
    return dict(sorted(found.items()))


def late_sentence(strategy: SweepStrategy, late: list[ShardLag], allowed: Mapping[SweepStrategy, int]) -> str:
    """Describe the shards of one strategy that are behind."""
    shards = ", ".join(str(each.shard) for each in late)
    return (
        f"{strategy} shard{'s' if len(late) > 1 else ''} {shards} {'are up to' if len(late) > 1 else 'is'} "
        f"{duration(max(each.lag_s for each in late))} behind, allowed is {duration(allowed[strategy])} "
        f"(lag_objective_{strategy}_s)"
    )


def sentences(late: Iterable[ShardLag], allowed: Mapping[SweepStrategy, int]) -> list[str]:
    """Describe the shards that are behind, one sentence for each strategy."""
    return [late_sentence(strategy, these, allowed) for strategy, these in by_strategy(late).items()]


def check_lag(store: Store, settings: Settings, clock: Clock, until_ms: int | None = None) -> list[ShardLag]:
    """Return the lag of every shard. Raise an error with the code `behind` if a shard is behind its objective.

    A run for a past interval is compared with the end of that interval, which is what it could have reached.
    """
    found = lags(store, clock, until_ms)
    allowed = objectives(settings)
    late = behind(found, allowed)
    if late:
        raise SweepflowError(
            f"lag: {'; '.join(sentences(late, allowed))}; 'sweepflow status' shows the cause: fix it and sweep again, "
            "or raise sweep_tasks_at_once or the objective",
            code="behind",
            late=tuple(late),
        )
    return found


# --- backlog ----------------------------------------------------------------------------------------------------------
# Timestamps are exact, entries are an estimate: counting a queue of millions would take too long. Past sweeps give the
# average number of entries per timestamp, and the backlog is assumed to have the same. The entries of a queue that was
# never swept are counted, up to a limit, when a run ends.

_MARKS = 1_000


def queue_name(strategy: str, shard: int) -> str:
    """Return the name of a queue in stored samples and in JSON, where a key can't be a pair."""
    return f"{strategy}/{shard}"


def strategy_in(queue: str) -> str:
    """Return the strategy in the name of a queue."""
    return queue.partition("/")[0]


class BacklogCounts(BaseModel, frozen=True, defer_build=True):
    """Entries that are not swept yet, by queue (see `queue_name`)."""

    by_shard: dict[str, int] = {}
    at_least: bool = False
    """A limit was reached while counting."""


def estimated_entries(timestamps: int, sums: Mapping[str, float] | None) -> int | None:
    """Estimate how many entries belong to a number of timestamps; None before the first sweep."""
    passed = sums.get("timestamps", 0) if sums else 0
    return round(sums.get("entries", 0) * timestamps / passed) if sums and passed else None


def swept_sums(recorded: Recorded) -> dict[tuple[str, str], Sums]:
    """Return what sweeps have done in total, by strategy and shard."""
    return {
        (series.labels["strategy"], series.labels["shard"]): series.sums
        for series in recorded.series
        if series.job == SWEEP
    }


def count_backlog(store: Store, recorded: Recorded, most: int) -> BacklogCounts:
    """Estimate the backlog of each queue. Of a queue that was never swept, count up to `most` entries."""
    sums = swept_sums(recorded)
    end = TimestampService(store).greatest() + 1
    entries: dict[str, int] = {}
    at_least = False
    for (strategy, shard), progress in Progress(store).all().items():
        timestamps = max(0, end - 1 - progress)
        number = estimated_entries(timestamps, sums.get((strategy.value, str(shard))))
        if number is None:
            batches = QueueReader(store, strategy, shard).batches(progress, end, most)
            number = _length(islice((entry for batch in batches for entry in batch.entries), most))
            at_least = at_least or number == most
        entries[queue_name(strategy, shard)] = number
    return BacklogCounts(by_shard=entries, at_least=at_least)


def has_unswept_queue(store: Store, swept: Iterable[SweptUpTo]) -> bool:
    """Return whether a queue that was never swept has entries. Reads the first partition marks only."""
    never = {(each.strategy, each.shard) for each in swept if each.progress == NEVER_SWEPT}
    marks = every(lambda after: store.scan(QUEUE_TIMESTAMPS, MAX_TS, limit=_MARKS, after=after))
    marked = (queue for cell, _ in marks if (queue := _queue_of(cell.row)))
    return any(queue in never for queue in islice(marked, _MARKS))


def _queue_of(row: bytes) -> tuple[SweepStrategy, int] | None:
    """Return the queue that a row belongs to; None for a row that is not valid."""
    try:
        shard, _, strategy = read_timestamps_row(row)
    except BadValue:
        return None
    return (strategy, shard) if strategy in QUEUES else None


def _length(found: Iterable[object]) -> int:
    return sum(1 for _ in found)
