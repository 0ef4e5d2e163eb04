"""Decides why a version is not removed yet: the reasons of `explain`, and what limits the next sweep.

A version is removed when a queue entry that hides it is processed. The sweep's own rules decide what an entry removes;
this module asks them what a sweep would do with an entry now, and what would stop it. The answer depends on the
version: a protection holds versions older than itself, and does not affect later ones. So an entry is always judged
together with a stored version. Explaining a cell and explaining a table use the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protection, Protections
from sweep_tasks.queue.parking import Hold, HoldReason
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import old_enough
from sweep_tasks.sweep.rules import Entry, TableView, is_truncated, removable, too_young, truncated
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

Queue = tuple[SweepStrategy, int]


class Reason(StrEnum):
    NEWEST = "newest"
    OPEN_TRANSACTION = "open_transaction"
    RETENTION = "retention"
    PROTECTED = "protected"
    QUEUED = "queued"
    PARKED_REPLICAS = "parked_replicas"
    PARKED_GRACE = "parked_grace"
    BLOCKED = "blocked"
    NO_QUEUE_ENTRY = "no_queue_entry"
    WAITING_GC_GRACE = "waiting_gc_grace"
    OVERLAPPING_SSTABLE = "overlapping_sstable"
    QUARANTINED = "quarantined"
    PAUSED = "paused"


class Obstacle(NamedTuple):
    """What prevents the removal of a version."""

    reason: Reason
    by: str | int | None = None
    """What causes it: a record, a table with its own retention, the owner of a transaction, the start timestamp of a
    blocking transaction, a file."""
    until_ms: int | None = None
    """When it ends, if it ends at a known time."""
    lease_ts: int | None = None
    """The lease of an open transaction."""


QUEUED = Obstacle(Reason.QUEUED)
_END_BY_TIME = frozenset({Reason.RETENTION, Reason.PARKED_GRACE})


class Limit(NamedTuple):
    """The next sweep stops below `ts`, and why."""

    ts: int
    reason: Reason
    by: str | None = None


class WaitingEntry(NamedTuple):
    """An entry that is not processed yet: it is in the queue, parked or quarantined."""

    entry: Entry
    """An entry of an unfinished transaction counts as aborted, because a sweep would abort it."""
    queue: Queue
    hold: Hold | None = None
    """Why it is parked."""
    quarantined: str | None = None
    """Why it is quarantined."""
    position: int | None = None
    """Its position in the queue, from 1; None if it is further back than was read."""
    removed_at: int | None = None
    """The sweep timestamp at which it is processed, if it was written below the progress and is aborted: the end of its
    partition."""


@dataclass(frozen=True, slots=True)
class SweepConditions:
    """What limits the next sweep: its sweep timestamp, and what it may remove below that."""

    now_ms: int
    tables: Mapping[TableRef, TableView]
    protections: Protections
    limits: Mapping[SweepStrategy, tuple[Limit, ...]] = field(default_factory=dict)
    """What limits the next sweep of a strategy."""
    blocking: Mapping[Queue, int] = field(default_factory=dict)
    """The start timestamp at which a queue is blocked, because that transaction committed too late for the sweep."""
    all_paused: bool = False
    old_enough_ms: Callable[[TableRef | None, int], int | None] = lambda table, ts: None
    """Returns when a timestamp is old enough for the retention of a table, or of the strategy without a table."""

    def without_times(self) -> SweepConditions:
        """Return the conditions for judging many entries: the time at which retention ends, which takes a read of the
        clock samples, is left out."""
        return replace(self, old_enough_ms=lambda table, ts: None)


def effective(strategy: SweepStrategy, waiting: Collection[WaitingEntry]) -> list[WaitingEntry]:
    """Return the entries that remove anything. In a table with the strategy nothing these are only aborted writes that
    are parked to wait for a slow writer."""
    if strategy is not SweepStrategy.NOTHING:
        return list(waiting)
    return [each for each in waiting if each.hold is not None and each.hold.why is HoldReason.GRACE]


def reason_for(
    ts: int, waiting: Collection[WaitingEntry], conditions: SweepConditions, *, when: bool = True
) -> tuple[Obstacle, WaitingEntry] | None:
    """Return why a version still exists, and the entry that will remove it; None if no entry does.

    Of several entries, the one with the fewest obstacles that do not end by themselves decides; among equals, the one
    that is free first. A delete that removes itself comes last, because it needs every replica. Without `when`, times
    are computed only where the choice depends on them, and the time of the obstacle is not valid.
    """
    untimed = conditions.without_times()
    ways = [(obstacles(each, ts, untimed), each) for each in waiting if removes(each, ts, conditions)]
    if not ways:
        return None
    least = min(_lasting(*way) for way in ways)
    left = [way for way in ways if _lasting(*way) == least]
    if when or len({main_obstacle(way) for way, _ in left}) > 1:
        timed = [(obstacles(each, ts, conditions), each) for _, each in left]
        left = [min(timed, key=lambda each: (_free_ms(each[0]), len(each[0]), each[1].entry.start == ts))]
    way, remover = left[0]
    return main_obstacle(way), remover


def _lasting(way: Sequence[Obstacle], waiting: WaitingEntry) -> int:
    """Count the obstacles that do not end by themselves. An entry written late also waits for its partition."""
    return sum(each.reason not in _END_BY_TIME for each in way) + (waiting.removed_at is not None)


def _free_ms(way: Sequence[Obstacle]) -> float:
    """Return when the obstacles that end by themselves have ended; an unknown time counts as the latest."""
    ending = [each.until_ms for each in way if each.reason in _END_BY_TIME]
    return max((math.inf if until is None else until for until in ending), default=0)


def removes(waiting: WaitingEntry, ts: int, conditions: SweepConditions) -> bool:
    """Return whether the entry removes this version of its cell when nothing prevents it."""
    entry = waiting.entry
    if entry.commit == ABORTED:
        return ts == entry.start
    return _within(ts, _removed(waiting, None, conditions))


def _removed(waiting: WaitingEntry, held_by: Protection | None, conditions: SweepConditions) -> VersionRange | None:
    """Return the versions that the entry removes under a record. An entry from before a truncation removes everything
    from before it, and no record holds that. One that waits for replicas is retried as it was judged first."""
    entry, view = waiting.entry, conditions.tables.get(waiting.entry.table)
    is_retried = waiting.hold is not None and waiting.hold.why is HoldReason.REPLICAS
    if view is not None and is_truncated(entry.start, view) and not is_retried:
        return truncated(entry.cell, view).range
    return removable(entry, held_by, waiting.queue[0])


def obstacles(waiting: WaitingEntry, ts: int | None, conditions: SweepConditions) -> list[Obstacle]:
    """Return what prevents the entry from removing this version, in the order in which a sweep meets it.

    The list is empty if the next sweep removes the version. `ts` is None for an entry that has no version to remove: no
    record holds any, but the entry may still be parked under one.
    """
    paused = _pause_obstacles(waiting, conditions)
    if waiting.quarantined is not None:
        quarantined = Obstacle(Reason.QUARANTINED, waiting.quarantined)
        return [quarantined, *paused, *_rule_obstacles(waiting, ts, conditions)]
    if waiting.hold is not None:
        return [*paused, *_hold_obstacles(waiting, waiting.hold, ts, conditions)]
    return [*paused, *_queue_obstacles(waiting, conditions), *_rule_obstacles(waiting, ts, conditions)]


def main_obstacle(way: Sequence[Obstacle]) -> Obstacle:
    """Return the obstacle to report: a protection before anything else, otherwise the first."""
    if not way:
        return QUEUED
    return next((each for each in way if each.reason is Reason.PROTECTED), way[0])


def first_obstacle(waiting: WaitingEntry, stored: Sequence[int], conditions: SweepConditions) -> Obstacle:
    """Return what prevents an entry from removing everything that it hides, down to the oldest version that it removes.

    `stored` are the versions of its cell, newest first.
    """
    oldest = next((ts for ts in reversed(stored) if removes(waiting, ts, conditions)), None)
    return main_obstacle(obstacles(waiting, oldest, conditions))


def _pause_obstacles(waiting: WaitingEntry, conditions: SweepConditions) -> list[Obstacle]:
    if conditions.all_paused:
        return [Obstacle(Reason.PAUSED, "everything")]
    view = conditions.tables.get(waiting.entry.table)
    return [Obstacle(Reason.PAUSED, str(waiting.entry.table))] if view is not None and view.paused else []


def _queue_obstacles(waiting: WaitingEntry, conditions: SweepConditions) -> list[Obstacle]:
    entry = waiting.entry
    found = _limit_obstacles(max(entry.start, entry.commit), waiting.queue[0], conditions)
    blocking = conditions.blocking.get(waiting.queue)
    if blocking is not None and blocking <= entry.start and not found:
        found = [Obstacle(Reason.BLOCKED, blocking)]
    return found


def _limit_obstacles(ts: int, strategy: SweepStrategy, conditions: SweepConditions) -> list[Obstacle]:
    """Return the limits that keep the next sweep below this timestamp, the nearest first."""
    found = []
    for limit in sorted(conditions.limits.get(strategy, ()), key=lambda each: each.ts):
        if ts >= limit.ts:
            until = conditions.old_enough_ms(None, ts) if limit.reason is Reason.RETENTION else None
            lease_ts = limit.ts if limit.reason is Reason.OPEN_TRANSACTION else None
            found.append(Obstacle(limit.reason, limit.by, until, lease_ts))
    return found


def _rule_obstacles(waiting: WaitingEntry, ts: int | None, conditions: SweepConditions) -> list[Obstacle]:
    """Return what the rules of the sweep say about the entry: too young for its table, or held by a record."""
    entry = waiting.entry
    if entry.commit == ABORTED:
        return []
    view = conditions.tables.get(entry.table)
    found = []
    if view is not None and too_young(entry, view):
        until_ms = conditions.old_enough_ms(entry.table, entry.commit)
        found.append(Obstacle(Reason.RETENTION, str(entry.table), until_ms))
    return [*found, *_record_obstacles(waiting, ts, conditions)]


def _record_obstacles(
    waiting: WaitingEntry, ts: int | None, conditions: SweepConditions, but: str = ""
) -> list[Obstacle]:
    """Return the records that must be released, one after the other, before the entry removes this version.

    `but` leaves out the record that the entry is parked under.
    """
    entry = waiting.entry
    found: list[Obstacle] = []
    if ts is None:
        return found
    seen = {but}
    for held_by in conditions.protections.holding_in_order(entry.table, entry.cell.row, entry.commit):
        if held_by.record in seen:
            continue
        if _within(ts, _removed(waiting, held_by, conditions)):
            break
        seen.add(held_by.record)
        found.append(Obstacle(Reason.PROTECTED, held_by.record))
    return found


def _hold_obstacles(waiting: WaitingEntry, hold: Hold, ts: int | None, conditions: SweepConditions) -> list[Obstacle]:
    """Return what keeps an entry parked. When its hold ends, it is processed up to the limits of the next sweep."""
    entry = waiting.entry
    if hold.why is HoldReason.GRACE:
        over = hold.until_ms <= conditions.now_ms
        return [] if over else [Obstacle(Reason.PARKED_GRACE, None, hold.until_ms)]
    limits = _limit_obstacles(entry.commit, waiting.queue[0], conditions)
    if hold.why is HoldReason.REPLICAS:
        return [*limits, Obstacle(Reason.PARKED_REPLICAS), *_rule_obstacles(waiting, ts, conditions)]
    if hold.why is HoldReason.PROTECTED and entry.commit >= conditions.protections.frees_below(
        hold.record, hold.record_ts
    ):
        others = _record_obstacles(waiting, ts, conditions, but=hold.record)
        return [Obstacle(Reason.PROTECTED, hold.record), *limits, *others]
    return [*limits, *_rule_obstacles(waiting, ts, conditions)]


def _within(ts: int, versions: VersionRange | None) -> bool:
    return versions is not None and versions.first <= ts < versions.end


# --- reading the conditions of the next sweep -------------------------------------------------------------------------

SweepLimits = dict[SweepStrategy, tuple[Limit, ...]]


def read_conditions(
    store: Store, settings: Settings, clock: Clock, view: SweepView, progress: Mapping[Queue, int], *, bounded: bool
) -> SweepConditions:
    """Read what limits the next sweep of these queues.

    `bounded` is False for scenarios: their sweep timestamps are given, so the published thresholds are the limit.
    """
    limits = _limits(store, settings, clock) if bounded else {}
    thresholds = Thresholds(store)
    sweep_ts = {strategy: thresholds.of_strategy(strategy) for strategy in QUEUES}
    if bounded:
        end = TimestampService(store).greatest() + 1
        sweep_ts = {strategy: min([end, *(limit.ts for limit in limits[strategy])]) for strategy in QUEUES}
    return SweepConditions(
        now_ms=clock.now_ms(),
        tables=view.tables,
        protections=ProtectionCatalog(store).protections(),
        limits=limits,
        blocking=_blocking(store, progress, sweep_ts),
        all_paused=Pauses(store).current().everything is not None,
        old_enough_ms=_old_enough(store, settings),
    )


def _limits(store: Store, settings: Settings, clock: Clock) -> SweepLimits:
    open_transactions = tuple(
        Limit(lease.ts, Reason.OPEN_TRANSACTION, f"{lease.owner} since {lease.ts}")
        for lease in Leases(store, settings.lease_ttl_s).open()[:1]
    )
    conservative = open_transactions
    if settings.retention_s:  # a sweep records a clock sample first: without a retention nothing is too young for it
        clock_history = ClockHistory(store)
        now_ms = clock_history.believed_ms(clock, settings.clock_step_max_s)
        limit = old_enough(SweepStrategy.CONSERVATIVE, now_ms, settings.retention_s, clock_history)
        conservative = (*open_transactions, Limit(limit, Reason.RETENTION))
    return {SweepStrategy.CONSERVATIVE: conservative, SweepStrategy.THOROUGH: open_transactions}


def _blocking(store: Store, progress: Mapping[Queue, int], sweep_ts: Mapping[SweepStrategy, int]) -> dict[Queue, int]:
    """Return the start timestamp that blocks each queue: a sweep stops right below a transaction that committed at or
    above the sweep timestamp."""
    commits = CommitTable(store).outcomes({reached + 1 for reached in progress.values()})
    return {
        queue: reached + 1
        for queue, reached in progress.items()
        if commits.get(reached + 1, -1) >= sweep_ts[queue[0]] > reached + 1
    }


def _old_enough(store: Store, settings: Settings) -> Callable[[TableRef | None, int], int | None]:
    clock_history = ClockHistory(store)
    retentions = {table: found.retention_s for table, found in store.tables().items()}

    @cache
    def when(table: TableRef | None, ts: int) -> int | None:
        passed = clock_history.passed_at(ts)
        kept_s = settings.retention_s if table is None else retentions.get(table)
        return None if passed is None or kept_s is None else passed + kept_s * 1000

    return when
