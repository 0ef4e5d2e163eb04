"""The answers of `explain`: typed models, their JSON documents, and the reasons as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.diagnosis.documents import as_document
from sweep_tasks.diagnosis.obstacles import Obstacle, Queue, Reason, WaitingEntry
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store
from sweep_tasks.tables.pauses import Pause, Pauses
from sweep_tasks.texts import duration


class ReasonContext(NamedTuple):
    """The details that the sentence of a reason names: records, pauses and times."""

    now_ms: int
    records: Mapping[str, Record] = {}
    pauses: Mapping[str, Pause] = {}
    moment_of: Callable[[int], int | None] = lambda ts: None
    """Returns the earliest wall time at which a timestamp may have been handed out."""

    @classmethod
    def read(cls, store: Store, clock: Clock) -> ReasonContext:
        records = {record.id: record for record in ProtectionCatalog(store).records()}
        return cls(clock.now_ms(), records, dict(Pauses(store).current().listed()), ClockHistory(store).moment_of)


class QueuePlace(NamedTuple):
    """The entry that removes a version, and its position in the queue."""

    strategy: SweepStrategy
    shard: int
    start: int
    position: int | None
    goes_at: int | None
    """See `WaitingEntry.removed_at`."""


class ExplainedVersion(NamedTuple):
    ts: int
    kind: str
    """value, delete or sentinel."""
    commit: int | None
    state: str
    """live, garbage, unfinished or aborted."""
    why: Obstacle
    remover: WaitingEntry | None = None
    """The entry that removes the version when nothing prevents it."""

    @property
    def place(self) -> QueuePlace | None:
        if self.remover is None:
            return None
        return QueuePlace(*self.remover.queue, self.remover.entry.start, self.remover.position, self.remover.removed_at)

    def sentence(self, context: ReasonContext) -> str:
        if self.why.reason is Reason.NEWEST and self.kind == "sentinel":
            return "a sentinel: readers of old snapshots learn from it that versions were removed"
        return describe(self.why, context, self.place)

    def document(self, context: ReasonContext | None) -> dict[str, Any]:
        return {
            "ts": self.ts,
            "kind": self.kind,
            "commit": self.commit,
            "state": self.state,
            "reason": self.why.reason.value,
            "until": self.why.until_ms,
            "by": self.why.by,
            "where": as_document(self.place) if self.place else None,
            **({"says": self.sentence(context)} if context else {}),
        }


class QueuedExplanation(NamedTuple):
    """An entry in the queue."""

    strategy: SweepStrategy
    shard: int
    start: int
    commit: int | None
    delete: bool
    position: int | None


class ParkedExplanation(NamedTuple):
    """A parked entry, and what it waits for."""

    strategy: SweepStrategy
    shard: int
    start: int
    commit: int | None
    delete: bool
    reason: Reason
    until: int | None
    by: str | int | None


@dataclass(frozen=True, slots=True)
class CellExplanation:
    """Every version of a cell with its reason, and the entries of the cell that are not processed yet."""

    versions: list[ExplainedVersion]
    queue: list[QueuedExplanation]
    parked: list[ParkedExplanation]

    def document(self, context: ReasonContext | None = None) -> dict[str, Any]:
        """Return the JSON document; with a sentence for each version if `context` is given."""
        return {
            "versions": [each.document(context) for each in self.versions],
            "queue": [as_document(each) for each in self.queue],
            "parked": [as_document(each) for each in self.parked],
        }


class ReasonCount(NamedTuple):
    """A reason, and how many entries and versions of a table or shard wait for it."""

    why: Obstacle
    entries: int
    versions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExplanation:
    """What a table or a shard waits for, the most frequent reason first."""

    table: TableRef | None = None
    never_swept: bool = False
    """The table has the strategy nothing."""
    queue: Queue | None = None
    entries: int
    versions: int
    at_least: bool
    unreadable: int
    """Quarantined entries that can't be read: they may belong to any table."""
    blocks: list[ReasonCount]

    def document(self, context: ReasonContext | None = None) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self.table is not None:
            about = {"table": str(self.table), "never_swept": self.never_swept}
        elif self.queue is not None:
            about = {"strategy": self.queue[0].value, "shard": self.queue[1]}
        counts = {name: getattr(self, name) for name in ("entries", "versions", "at_least", "unreadable")}
        return {**about, **counts, "blocks": [_block_document(each, context) for each in self.blocks]}


def _block_document(block: ReasonCount, context: ReasonContext | None) -> dict[str, Any]:
    why, entries, versions = block
    document = {"reason": why.reason.value, "by": why.by, "entries": entries, "versions": versions}
    return document | ({"says": describe(why, context)} if context else {})


# --- sentences --------------------------------------------------------------------------------------------------------

_SENTENCES = {
    Reason.NEWEST: "live: the current value",
    Reason.OPEN_TRANSACTION: "needed by the open transaction of {by}{open}",
    Reason.RETENTION: "within the retention{of}{until}",
    Reason.PROTECTED: "protected by the record {by}{owner}",
    Reason.QUEUED: "queued{where}: {removal}",
    Reason.PARKED_REPLICAS: "waiting for replicas: not every replica has confirmed the delete",
    Reason.PARKED_GRACE: "aborted; its entry is parked until the grace period ends{until}, in case its writer is slow",
    Reason.BLOCKED: "behind the transaction started at {by}, which committed after the sweep timestamp",
    Reason.NO_QUEUE_ENTRY: "no queue entry removes it: its table is never swept, it was written before there was a "
    "queue, or it was written too late; only a scan of the table removes it",
    Reason.WAITING_GC_GRACE: "swept; its tombstone waits for gc_grace{until}",
    Reason.OVERLAPPING_SSTABLE: "swept; held by the overlapping SSTable {by}, which is not compacted together with "
    "its tombstone yet",
    Reason.PAUSED: "{by} is paused{pause}: it waits until it is resumed",
    Reason.QUARANTINED: "its entry could not be read and is quarantined ({by}): 'sweepflow queue quarantine retry'",
}


def describe(why: Obstacle, context: ReasonContext, place: QueuePlace | None = None) -> str:
    """Return a reason as a sentence, with names and times."""
    return _SENTENCES[why.reason].format(
        by=why.by,
        of=f" of {why.by}" if why.by else "",
        until=f" until {_moment(why.until_ms)}" if why.until_ms else "",
        owner=_owner(context.records.get(str(why.by)), context.now_ms),
        open=_open_since(why.lease_ts, context),
        pause=_pause(context.pauses.get(str(why.by))),
        where=_where(place) if place else "",
        removal=_removal(place),
    )


def _where(place: QueuePlace) -> str:
    if place.goes_at is not None:
        position = "below the progress"
    else:
        position = "far back in the queue" if place.position is None else f"position {place.position:,} in the queue"
    return f" in {place.strategy} shard {place.shard}, {position}"


def _removal(place: QueuePlace | None) -> str:
    if place is None or place.goes_at is None:
        return "nothing holds it, the next sweep removes it"
    return f"it was written late, and is removed when the sweep leaves its partition, at timestamp {place.goes_at}"


def _owner(record: Record | None, now_ms: int) -> str:
    if record is None:
        return ""
    details = ", ".join(f"{key} {value}" for key, value in record.meta.items())
    since = "of unknown age"
    if record.created_ms:
        since = f"since {_moment(record.created_ms)} ({duration(max(0, now_ms - record.created_ms) // 1000)})"
    return f" of owner type {record.meta_type}{f' ({details})' if details else ''}, {since}"


def _open_since(lease_ts: int | None, context: ReasonContext) -> str:
    """Return how long a transaction is open. A lease is a timestamp, so this is the earliest time it may have begun."""
    since_ms = None if lease_ts is None else context.moment_of(lease_ts)
    if since_ms is None:
        return ""
    return f", open since {_moment(since_ms)} ({duration(max(0, context.now_ms - since_ms) // 1000)})"


def _pause(pause: Pause | None) -> str:
    return f" by {pause.by} since {_moment(pause.since_ms)} ({pause.reason})" if pause else ""


def _moment(wall_ms: int) -> str:
    return f"{from_ms(wall_ms).to_datetime_string()} UTC"
