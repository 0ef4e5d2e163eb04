"""What keeps an entry from acting. Pure: an entry and its circumstances in, the obstacles in its way out.

A version goes when an entry of the queue acts that hides it. What acts is decided by the sweep's own rules; here it is
asked of them what a sweep would do with an entry now, and where it would stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.model import SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import Hold, Why
from sweep_tasks.sweep.rules import Entry, TableView, doomed, holding, too_young
from sweep_tasks.transactions.commits import ABORTED

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
    """`by` names what is in the way: a record, a table with a retention of its own, the owner of a transaction, the
    start of one that blocks; `until_ms` is when it is over, where a clock tells that."""

    reason: Reason
    by: str | int | None = None
    until_ms: int | None = None


QUEUED = Obstacle(Reason.QUEUED)


class Limit(NamedTuple):
    """A sweep does not go to `ts` now, and why."""

    ts: int
    reason: Reason
    by: str | None = None


class Waiting(NamedTuple):
    """An entry that has yet to act, and where it is: in the queue, parked under a hold, or set aside for a reason."""

    entry: Entry
    """That of a transaction which has not ended counts as aborted: a sweep would roll it back."""
    queue: Queue
    hold: Hold | None = None
    aside: str | None = None
    position: int | None = None
    """In the queue: how many entries a sweep comes to before it, and this one; None if it lies deeper than was read."""
    goes_at: int | None = None
    """It came late, below the progress, and was aborted by then: it goes when a sweep gets to this timestamp, where its
    partition ends."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    now_ms: int
    tables: Mapping[TableRef, TableView]
    protections: Protections
    limits: Mapping[SweepStrategy, tuple[Limit, ...]] = field(default_factory=dict)
    """What bounds the next sweep of a strategy."""
    blocking: Mapping[Queue, int] = field(default_factory=dict)
    """The start at which a queue stands still because it committed too late for the sweep."""
    all_paused: bool = False
    old_enough_ms: Callable[[TableRef | None, int], int | None] = lambda table, ts: None
    """When a timestamp is as old as the table's own retention asks for, or the strategy's without a table."""


def removes(waiting: Waiting, ts: int) -> bool:
    """Whether the entry would remove this version of its cell, if nothing were in its way."""
    entry = waiting.entry
    if entry.commit == ABORTED:
        return ts == entry.start
    return _within(ts, doomed(entry, None, waiting.queue[0]))


def obstacles(waiting: Waiting, ts: int, around: Circumstances) -> list[Obstacle]:
    """In the order in which they are met by the entry on its way to removing this version; none if the next sweep
    does."""
    paused = _of_pause(waiting, around)
    if waiting.aside is not None:
        return [Obstacle(Reason.QUARANTINED, waiting.aside), *paused, *_of_judging(waiting, ts, around)]
    if waiting.hold is not None:
        return [*paused, *_of_hold(waiting, waiting.hold, ts, around)]
    return [*paused, *_of_queue(waiting, around), *_of_judging(waiting, ts, around)]


def _of_pause(waiting: Waiting, around: Circumstances) -> list[Obstacle]:
    if around.all_paused:
        return [Obstacle(Reason.PAUSED, "everything")]
    view = around.tables.get(waiting.entry.table)
    return [Obstacle(Reason.PAUSED, str(waiting.entry.table))] if view is not None and view.paused else []


def named(way: Sequence[Obstacle]) -> Obstacle:
    """The one to tell of: a record before whatever passes by itself, else the first that is met."""
    if not way:
        return QUEUED
    return next((each for each in way if each.reason is Reason.PROTECTED), way[0])


def first_obstacle(waiting: Waiting, around: Circumstances) -> Obstacle:
    """What keeps an entry from doing all that it may do."""
    return named(obstacles(waiting, waiting.entry.start if waiting.entry.commit == ABORTED else 0, around))


def _of_queue(waiting: Waiting, around: Circumstances) -> list[Obstacle]:
    entry = waiting.entry
    found = _beyond(max(entry.start, entry.commit), waiting.queue[0], around)
    blocking = around.blocking.get(waiting.queue)
    if blocking is not None and blocking <= entry.start and not found:
        found = [Obstacle(Reason.BLOCKED, blocking)]
    return found


def _beyond(ts: int, strategy: SweepStrategy, around: Circumstances) -> list[Obstacle]:
    """The limits that keep a sweep from this timestamp, the nearest first."""
    found = []
    for limit in sorted(around.limits.get(strategy, ()), key=lambda each: each.ts):
        if ts >= limit.ts:
            until = around.old_enough_ms(None, ts) if limit.reason is Reason.RETENTION else None
            found.append(Obstacle(limit.reason, limit.by, until))
    return found


def _of_judging(waiting: Waiting, ts: int, around: Circumstances) -> list[Obstacle]:
    """What the rules say of the entry itself: too young for its table, or held by a record."""
    entry = waiting.entry
    if entry.commit == ABORTED:
        return []
    view = around.tables.get(entry.table)
    found = []
    if view is not None and too_young(entry, view):
        found.append(_young(entry, around))
    return [*found, *_of_records(waiting, ts, around.protections)]


def _of_records(waiting: Waiting, ts: int, protections: Protections, but: str = "") -> list[Obstacle]:
    """The records that would have to go, one after the other, before the entry removes this version; leaving out the
    one that it is parked under."""
    entry = waiting.entry
    found: list[Obstacle] = []
    left = [each for each in protections.covering(entry.table, entry.cell.row) if each.record != but]
    while True:
        held_by = holding(left, entry.commit)
        if held_by is None or _within(ts, doomed(entry, held_by, waiting.queue[0])):
            return found
        found.append(Obstacle(Reason.PROTECTED, held_by.record))
        left = [each for each in left if each.record != held_by.record]


def _young(entry: Entry, around: Circumstances) -> Obstacle:
    return Obstacle(Reason.RETENTION, str(entry.table), around.old_enough_ms(entry.table, entry.commit))


def _of_hold(waiting: Waiting, hold: Hold, ts: int, around: Circumstances) -> list[Obstacle]:
    """A parked entry is taken up when its hold lets it go, and no further than the next sweep goes."""
    entry = waiting.entry
    if hold.why is Why.GRACE:
        over = hold.until_ms <= around.now_ms
        return [] if over else [Obstacle(Reason.PARKED_GRACE, None, hold.until_ms)]
    beyond = _beyond(entry.commit, waiting.queue[0], around)
    if hold.why is Why.REPLICAS:
        return [*beyond, Obstacle(Reason.PARKED_REPLICAS), *_of_judging(waiting, ts, around)]
    if hold.why is Why.PROTECTED and entry.commit >= around.protections.frees_below(hold.record, hold.record_ts):
        others = _of_records(waiting, ts, around.protections, but=hold.record)
        return [Obstacle(Reason.PROTECTED, hold.record), *beyond, *others]
    return [*beyond, *_of_judging(waiting, ts, around)]


def _within(ts: int, versions: VersionRange | None) -> bool:
    return versions is not None and versions.first <= ts < versions.end
