"""Sweeping a store from one process: every strategy and shard that was asked for, each to its horizon."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy, checked_timestamp
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Activity
from sweep_tasks.sweep.deletions import Deletions
from sweep_tasks.sweep.engine import ShardSweep, SweepOptions
from sweep_tasks.sweep.horizon import Horizon, horizon_now
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import CommitTable


class Sweeper:
    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._progress = Progress(store)

    def sweep(
        self,
        strategies: Collection[SweepStrategy] = QUEUES,
        shards: Collection[int] | None = None,
        stop_at: int | None = None,
        options: SweepOptions | None = None,
    ) -> Iterator[Summary]:
        """One summary for each shard, as it ends. What was asked for is checked before anything is done."""
        if stop_at is not None:
            checked_timestamp(stop_at, "stop_at")
        wanted = range(self._progress.shards()) if shards is None else sorted(set(shards))
        self._progress.check(wanted)
        horizons = {
            strategy: horizon_now(strategy, self._store, self._settings, self._clock) for strategy in strategies
        }
        for strategy, found in horizons.items():
            if stop_at is not None and stop_at > found.sweep_ts:
                raise BadValue(
                    "stop_at",
                    f"{stop_at} is above {found.sweep_ts}, as far as a {strategy} sweep may go now; leave it out, or "
                    "give a lower one",
                    reason="too_high",
                )
        for strategy, found in horizons.items():
            target = found if stop_at is None else found._replace(sweep_ts=stop_at)
            for shard in wanted:
                sweep = ShardSweep(self._store, strategy, shard, target, self._clock, options)
                summary = sweep.run()
                if not summary.dry_run:
                    Activity(self._store).add(strategy, shard, sweep.written)
                yield summary


class Retried(NamedTuple):
    judged: int
    left: int
    all: bool = True
    """There was no more than was tried."""


def retry_quarantined(store: Store, settings: Settings, clock: Clock, most: int | None = None) -> Retried:
    """Judge anew what was set aside, all of it or the first so many; what still can't be read stays where it is."""
    Pauses(store).check()
    quarantine = Quarantine(store, TimestampService(store))
    standing = quarantine.all()
    entries = list(islice(standing, most))
    more = next(standing, None) is not None
    left = len(entries)
    for strategy, shard in sorted({(entry.strategy, entry.shard) for entry in entries}):
        ours = [entry for entry in entries if (entry.strategy, entry.shard) == (strategy, shard)]
        left -= _retry(store, settings, clock, ours, quarantine)
    return Retried(len(entries) - left, left, not more)


def _retry(store: Store, settings: Settings, clock: Clock, entries: list[Quarantined], quarantine: Quarantine) -> int:
    """Entries of one shard. They were below the published threshold when they were set aside, so it serves as the sweep
    timestamp now; their transactions were decided then."""
    strategy, shard = entries[0].strategy, entries[0].shard
    sweep_ts = Thresholds(store).of_strategy(strategy)
    summary = Summary(strategy, shard, sweep_ts)
    view = SweepView.published(store, Horizon(sweep_ts, clock.now_ms()), dry_run=False)
    raw = [RawEntry(entry.start, entry.place, entry.value) for entry in entries]
    outcomes = CommitTable(store).abort([entry.start for entry in entries if entry.start is not None])
    readable, unreadable = view.decoded(raw, outcomes, strategy, shard)
    parking = Parking(store, TimestampService(store), strategy, shard)
    counted = Counted()
    judge = Judge(store, strategy, view, parking, clock, settings.grace_s, summary, counted)
    judge.judge(readable, ProtectionCatalog(store).protections())
    Deletions(store).add(counted.deleted, clock.now_ms())
    still = {entry.cell for entry in unreadable}
    quarantine.remove([entry for entry in entries if entry.cell not in still])
    return len(readable)
