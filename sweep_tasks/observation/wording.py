"""Reasons as sentences for people: names, times, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.durations import words
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.pauses import Pause, Pauses
from sweep_tasks.timestamps.puncher import Puncher

_SAYS = {
    Reason.NEWEST: "live: what readers of today see",
    Reason.OPEN_TRANSACTION: "needed by the open transaction of {by}{open}",
    Reason.RETENTION: "within the retention{of}{until}",
    Reason.PROTECTED: "protected by the record {by}{owner}",
    Reason.QUEUED: "queued{where}: {goes}",
    Reason.PARKED_REPLICAS: "waiting for replicas: not every copy has confirmed that it is gone there",
    Reason.PARKED_GRACE: "aborted, and watched for a slow writer{until}: then it is deleted once more",
    Reason.BLOCKED: "behind the transaction started at {by}, which committed after the sweep timestamp",
    Reason.NO_QUEUE_ENTRY: "no entry of the queue leads to it: its table is never swept, it was written before there "
    "was a queue, or it came too late; only a scan of the table removes it",
    Reason.WAITING_GC_GRACE: "swept; its tombstone waits for gc_grace{until}",
    Reason.OVERLAPPING_SSTABLE: "swept; held by the overlapping SSTable {by}, which was not compacted together with "
    "its tombstone yet",
    Reason.PAUSED: "{by} is paused{pause}: it waits until somebody resumes it",
    Reason.QUARANTINED: "its entry could not be judged and is set aside ({by}): 'sweepflow queue quarantine retry'",
}
_SENTINEL = "a sentinel: it tells readers of the past that something is gone"


class Known(NamedTuple):
    """Who and when, for the names that a reason gives."""

    now_ms: int
    records: Mapping[str, Record] = {}
    pauses: Mapping[str, Pause] = {}
    moment_of: Callable[[int], int | None] = lambda ts: None
    """When a timestamp was handed out, at the earliest."""

    @classmethod
    def of(cls, store: Store, clock: Clock) -> Known:
        records = {record.id: record for record in ProtectionCatalog(store).records()}
        return cls(clock.now_ms(), records, dict(Pauses(store).standing().listed()), Puncher(store).moment_of)


def says(why: Mapping[str, Any], known: Known) -> str:
    """`why` has at least a reason and by whom; a version's document, or one line of what blocks."""
    reason, by, until = Reason(why["reason"]), why["by"], why.get("until")
    if reason is Reason.NEWEST and why.get("kind") == "sentinel":
        return _SENTINEL
    return _SAYS[reason].format(
        by=by,
        of=f" of {by}" if by else "",
        until=f" until {_moment(until)}" if until else "",
        owner=_owner(known.records.get(str(by)), known.now_ms),
        open=_open(str(by), known),
        pause=_pause(known.pauses.get(str(by))),
        where=_where(why.get("where")),
        goes=_goes(why.get("where")),
    )


def _where(place: Mapping[str, Any] | None) -> str:
    if place is None:
        return ""
    line = "deep in the queue" if place["position"] is None else f"number {place['position']:,} in line"
    line = "behind the sweep" if place["goes_at"] is not None else line
    return f" in {place['strategy']} shard {place['shard']}, {line}"


def _goes(place: Mapping[str, Any] | None) -> str:
    if place is None or place["goes_at"] is None:
        return "nothing holds it, the next sweep takes it"
    return f"it came late, and goes when the sweep leaves its partition, at timestamp {place['goes_at']}"


def _owner(record: Record | None, now_ms: int) -> str:
    """By type and details, and since when."""
    if record is None:
        return ""
    details = ", ".join(f"{key} {value}" for key, value in record.meta.items())
    since = "of unknown age"
    if record.created_ms:
        since = f"since {_moment(record.created_ms)} ({words(max(0, now_ms - record.created_ms) // 1000)})"
    return f" of owner type {record.meta_type}{f' ({details})' if details else ''}, {since}"


def _open(by: str, known: Known) -> str:
    """The lease is a timestamp: by the clock, that is at the earliest when it was handed out."""
    _, _, lease = by.rpartition(" since ")
    since_ms = known.moment_of(int(lease)) if lease.isdigit() else None
    if since_ms is None:
        return ""
    return f", open since {_moment(since_ms)} ({words(max(0, known.now_ms - since_ms) // 1000)})"


def _pause(pause: Pause | None) -> str:
    return f" by {pause.by} since {_moment(pause.since_ms)} ({pause.reason})" if pause else ""


def _moment(wall_ms: int) -> str:
    return f"{from_ms(wall_ms).to_datetime_string()} UTC"
