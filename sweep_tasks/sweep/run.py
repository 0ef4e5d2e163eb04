"""Sweeping a store from one process: every requested strategy and shard, each up to its horizon."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.journal import QUARANTINED_ENTRIES, Act, Detail, Journal, JournalEntry
from sweep_tasks.journal.safeguards import record_lowered
from sweep_tasks.model import SweepStrategy, checked_timestamp
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.parking import Parking, Quarantine, Quarantined
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, horizon_now, now_here
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.order import SweepOptions, SweepOrder
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import IDLE, Summary, SweepCounts
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.activity import Activity
from sweep_tasks.tables.deletions import Deletions
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.outcomes import CommitTable

# ---------------------------------------------------------------------------------------------------------------------
# A targeted sweep in the journal: one entry before it, one after it, whatever the number of shards.
#
# The intent has the horizon and the retention of each strategy. A table may have a longer retention than its strategy,
# never a shorter one, and a change of it is an entry of its own. The outcome has the sums over the shards, and the
# sweep timestamp that each strategy reached: a shard that starts later may go a little further than the intent says,
# since the immutable timestamp rises.
#
# Settings that are less safe than before are recorded before the horizon is computed, because that stores a clock
# sample, which depends on them and outlasts the sweep.
# ---------------------------------------------------------------------------------------------------------------------

SWEEP = "sweep"
_COUNTS = ("entries", "range_deletes", "sentinels", "aborted_deletes", "quarantined")


@contextmanager
def record_sweep(
    store: Store,
    settings: Settings,
    clock: Clock,
    horizons: Mapping[SweepStrategy, Horizon],
    shards: Collection[int],
) -> Iterator[Act]:
    """Record a sweep of this process, whose settings were recorded before. If the intent can't be recorded, nothing is
    swept."""
    intent = SweepIntent.of(settings, horizons, shards)
    with Journal(store, clock).record(SWEEP, about(horizons), **intent.details()) as act:
        yield act


def about(strategies: Collection[SweepStrategy]) -> str:
    return ", ".join(sorted(strategies))


@model(frozen=True, config=ConfigDict(defer_build=True))
class SweepIntent:
    """What a run is going to sweep, as its entry in the journal says it."""

    horizons: dict[SweepStrategy, int]
    """The sweep timestamp of each strategy."""
    retentions_s: dict[SweepStrategy, int]
    shards: tuple[int, ...]

    @classmethod
    def of(cls, settings: Settings, horizons: Mapping[SweepStrategy, Horizon], shards: Collection[int]) -> SweepIntent:
        return cls(
            {strategy: found.sweep_ts for strategy, found in horizons.items()},
            {strategy: retention_s(settings, strategy) for strategy in horizons},
            tuple(sorted(shards)),
        )

    def details(self) -> dict[str, Detail]:
        """Return the details of the entry. `parse` is the inverse."""
        return {
            "horizons": {strategy.value: ts for strategy, ts in self.horizons.items()},
            "retentions_s": {strategy.value: seconds for strategy, seconds in self.retentions_s.items()},
            "shards": self.shards,
        }

    @classmethod
    def parse(cls, entry: JournalEntry) -> SweepIntent | None:
        """Return None if the entry is not the intent of a sweep. An order may name any entry, and anyone who can write
        to the store can put anything into one."""
        if entry.what != SWEEP or entry.intent is not None:
            return None
        try:
            return TypeAdapter(cls).validate_python(entry.details)
        except ValidationError:
            return None

    def covers(self, settings: Settings, strategy: SweepStrategy, shard: int) -> bool:
        """Return whether this says what a process with these settings would do to a shard: a process reads its own
        settings, and may have other ones than the process that recorded the intent."""
        recorded = self.retentions_s.get(strategy)
        return shard in self.shards and recorded is not None and recorded <= retention_s(settings, strategy)


def retention_s(settings: Settings, strategy: SweepStrategy | None) -> int:
    return settings.retention_s if strategy is SweepStrategy.CONSERVATIVE else 0


def outcome(summaries: Collection[Summary]) -> dict[str, Detail]:
    """Return the details of the outcome: the sum over the shards. A shard without a summary did not finish."""
    swept_to: dict[str, int] = {}
    for each in summaries:
        swept_to[each.strategy.value] = max(each.sweep_ts, swept_to.get(each.strategy.value, 0))
    done: dict[str, Detail] = {"swept_to": swept_to, "shards": len(summaries)}
    return done | {name: sum(getattr(each, name) for each in summaries) for name in _COUNTS}


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
        """Sweep the shards and yield a summary of each as it ends. The arguments are checked before anything is
        swept."""
        if stop_at is not None:
            checked_timestamp(stop_at, "stop_at")
        wanted = range(self._progress.shards()) if shards is None else sorted(set(shards))
        self._progress.check(wanted)
        dry_run = options is not None and options.dry_run
        if not dry_run:
            record_lowered(self._store, self._settings, self._clock)
        horizons = {
            strategy: horizon_now(strategy, self._store, self._settings, self._clock, dry_run=dry_run)
            for strategy in strategies
        }
        for strategy, found in horizons.items():
            if stop_at is not None and stop_at > found.sweep_ts:
                raise BadValue(
                    "stop_at",
                    f"{stop_at} is above {found.sweep_ts}, the greatest timestamp of a {strategy} sweep now; "
                    "leave it out, or give a lower one",
                    reason="too_high",
                )
        targets = {
            strategy: found if stop_at is None else found._replace(sweep_ts=stop_at)
            for strategy, found in horizons.items()
        }
        if dry_run:
            yield from self._sweep(targets, wanted, options)
            return
        with record_sweep(self._store, self._settings, self._clock, targets, wanted) as act:
            done: list[Summary] = []
            try:
                for summary in self._sweep(targets, wanted, options):
                    done.append(summary)
                    yield summary
            finally:
                act.add(**outcome(done))

    def _sweep(
        self, targets: Mapping[SweepStrategy, Horizon], shards: Collection[int], options: SweepOptions | None
    ) -> Iterator[Summary]:
        for strategy, target in targets.items():
            for shard in shards:
                sweep = ShardSweep(self._store, strategy, shard, target, self._clock, options)
                summary = sweep.run()
                if not summary.dry_run:
                    Activity(self._store).add(strategy, shard, sweep.written)
                yield summary


def sweep_idle(
    store: Store, settings: Settings, clock: Clock, order: SweepOrder, horizon: Horizon | None = None
) -> Summary | None:
    """Sweep a shard that has nothing to do, as most shards of most hours: a few reads, and the progress advances.
    Return None if there is work for an engine."""
    horizon = horizon or order.horizon(store, settings, clock)
    sweep = ShardSweep(store, order.strategy, order.shard, horizon, clock, order.options(settings))
    summary = sweep.run_if_idle()
    if summary is not None:
        summary.engine = IDLE
    return summary


class Retried(NamedTuple):
    judged: int
    left: int
    all: bool = True
    """No more entries are quarantined than were retried."""


def retry_quarantined(store: Store, settings: Settings, clock: Clock, most: int | None = None) -> Retried:
    """Judge quarantined entries again: all of them, or the first `most`. Entries that still can't be read stay."""
    record_lowered(store, settings, clock)
    with Journal(store, clock).record("retry", QUARANTINED_ENTRIES) as act:
        retried = _retry_all(store, settings, clock, most)
        act.add(judged=retried.judged, left=retried.left)
        return retried


def _retry_all(store: Store, settings: Settings, clock: Clock, most: int | None) -> Retried:
    Pauses(store).check()
    quarantine = Quarantine(store, TimestampService(store))
    existing = quarantine.all()
    entries = list(islice(existing, most))
    more = next(existing, None) is not None
    left = len(entries)
    for strategy, shard in sorted({(entry.strategy, entry.shard) for entry in entries}):
        ours = [entry for entry in entries if (entry.strategy, entry.shard) == (strategy, shard)]
        left -= _retry(store, settings, clock, ours, quarantine)
    return Retried(len(entries) - left, left, not more)


def _retry(store: Store, settings: Settings, clock: Clock, entries: list[Quarantined], quarantine: Quarantine) -> int:
    """Judge entries of one shard. They were below the published threshold when they were quarantined, so the threshold
    is the sweep timestamp now; their transactions were decided then."""
    strategy, shard = entries[0].strategy, entries[0].shard
    sweep_ts = Thresholds(store).of_strategy(strategy)
    summary = Summary(strategy, shard, sweep_ts)
    horizon = now_here(sweep_ts, store, settings, clock)._replace(sampled=True)
    view = SweepView.publish(store, horizon, dry_run=False)
    raw = [RawEntry(entry.start, entry.place, entry.value) for entry in entries]
    outcomes = CommitTable(store).abort([entry.start for entry in entries if entry.start is not None])
    readable, unreadable = view.decoded(raw, outcomes, strategy, shard)
    parking = Parking(store, TimestampService(store), strategy, shard)
    counted = SweepCounts()
    judge = Judge(store, strategy, view, parking, clock, settings.grace_s, summary, counted)
    judge.judge(readable, ProtectionCatalog(store).protections())
    Deletions(store).add(counted.deleted, clock.now_ms())
    still = {entry.cell for entry in unreadable}
    quarantine.remove([entry for entry in entries if entry.cell not in still])
    return len(readable)
