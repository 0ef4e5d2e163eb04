"""What the next sweep would go by: how far it may go and because of whom, what blocks a queue, who protects what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.observation.obstacles import Circumstances, Limit, Queue, Reason
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import CommitTable

Limits = dict[SweepStrategy, tuple[Limit, ...]]


def look_around(
    store: Store, settings: Settings, clock: Clock, view: SweepView, progress: Mapping[Queue, int], *, bounded: bool
) -> Circumstances:
    """Of these queues. Not bounded: sweeps go as far as they are told, and have gone as far as they published."""
    limits = _limits(store, settings, clock) if bounded else {}
    thresholds = Thresholds(store)
    goes_to = {strategy: thresholds.of_strategy(strategy) for strategy in QUEUES}
    if bounded:
        end = TimestampService(store).greatest() + 1
        goes_to = {strategy: min([end, *(limit.ts for limit in limits[strategy])]) for strategy in QUEUES}
    return Circumstances(
        now_ms=clock.now_ms(),
        tables=view.tables,
        protections=ProtectionCatalog(store).protections(),
        limits=limits,
        blocking=_blocking(store, progress, goes_to),
        all_paused=Pauses(store).standing().everything is not None,
        old_enough_ms=_old_enough(store, settings),
    )


def without_times(around: Circumstances) -> Circumstances:
    """For very many entries: until when each waits takes a look at the wall-clock map, and is not asked."""
    return replace(around, old_enough_ms=lambda table, ts: None)


def _limits(store: Store, settings: Settings, clock: Clock) -> Limits:
    open_ones = tuple(
        Limit(lease.ts, Reason.OPEN_TRANSACTION, f"{lease.owner} since {lease.ts}")
        for lease in Leases(store, settings.lease_ttl_s).open()[:1]
    )
    kept = open_ones
    if settings.retention_s:  # a sweep takes a look at the clock first: without a retention nothing is too young for it
        old_enough = Puncher(store).timestamp_at(clock.now_ms() - settings.retention_s * 1000) or 0
        kept = (*open_ones, Limit(old_enough, Reason.RETENTION))
    return {SweepStrategy.CONSERVATIVE: kept, SweepStrategy.THOROUGH: open_ones}


def _blocking(store: Store, progress: Mapping[Queue, int], goes_to: Mapping[SweepStrategy, int]) -> dict[Queue, int]:
    """A sweep that meets a start which committed too late leaves the progress right below it."""
    commits = CommitTable(store).outcomes({reached + 1 for reached in progress.values()})
    return {
        queue: reached + 1
        for queue, reached in progress.items()
        if commits.get(reached + 1, -1) >= goes_to[queue[0]] > reached + 1
    }


def _old_enough(store: Store, settings: Settings) -> Callable[[TableRef | None, int], int | None]:
    puncher = Puncher(store)
    retentions = {table: found.retention_s for table, found in store.tables().items()}

    def when(table: TableRef | None, ts: int) -> int | None:
        passed = puncher.passed_at(ts)
        kept_s = settings.retention_s if table is None else retentions.get(table)
        return None if passed is None or kept_s is None else passed + kept_s * 1000

    return when
