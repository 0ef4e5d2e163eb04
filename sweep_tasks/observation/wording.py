"""Reasons as sentences for people: names, times, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep_tasks.clock import from_ms
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.protection.reconcile import age_s
from sweep_tasks.protection.records import Record
from sweep_tasks.protection.report import age

_SAYS = {
    Reason.NEWEST: "live: what readers of today see",
    Reason.OPEN_TRANSACTION: "needed by the open transaction of {by}",
    Reason.RETENTION: "within the retention{of}{until}",
    Reason.PROTECTED: "protected by the record {by}{owner}",
    Reason.QUEUED: "queued{where}: nothing holds it, the next sweep takes it",
    Reason.PARKED_REPLICAS: "waiting for replicas: not every copy has confirmed that it is gone there",
    Reason.PARKED_GRACE: "aborted, and watched for a slow writer{until}: then it is deleted once more",
    Reason.BLOCKED: "behind the transaction started at {by}, which committed after the sweep timestamp",
    Reason.NO_QUEUE_ENTRY: "no entry of the queue leads to it: its table is never swept, it was written before there "
    "was a queue, or it came too late; only a scan of the table removes it",
    Reason.WAITING_GC_GRACE: "swept; Cassandra keeps the tombstone{until}",
    Reason.OVERLAPPING_SSTABLE: "swept; held by the overlapping SSTable {by}",
    Reason.PAUSED: "{by} is paused: it waits until somebody resumes it",
    Reason.QUARANTINED: "its entry could not be judged and is set aside ({by}): 'sweepflow queue quarantine retry'",
}
_SENTINEL = "a sentinel: it tells readers of the past that something is gone"


def says(why: Mapping[str, Any], records: Mapping[str, Record], now_ms: int) -> str:
    """`why` has at least a reason and by whom; a version's document, or one line of what blocks."""
    reason, by, until = Reason(why["reason"]), why["by"], why.get("until")
    if reason is Reason.NEWEST and why.get("kind") == "sentinel":
        return _SENTINEL
    record = records.get(str(by))
    return _SAYS[reason].format(
        by=by,
        of=f" of {by}" if by else "",
        until=f" until {from_ms(until).to_datetime_string()} UTC" if until else "",
        owner=f" of owner type {record.meta_type}, {age(age_s(record, now_ms))}" if record else "",
        where=f" in {why['where']}" if why.get("where") else "",
    )
