"""The outcomes of operations. Each one is printed as a JSON line whose keys are the names of its fields."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Ok:
    """The outcome of an operation that has nothing else to report."""

    ok: bool = True


@dataclass(frozen=True, slots=True)
class ShardCount:
    """The number of shards."""

    shards: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome of finishing a transaction."""

    committed: bool


@dataclass(frozen=True, slots=True)
class ReadValue:
    """The value that is visible, in hexadecimal, and its start timestamp; nothing if there is none."""

    value: str | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """The time of the scenario's clock."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class AcceptedRecord:
    """A protection record was accepted or moved."""

    accepted: bool = True


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A protection record was refused, with the earliest timestamp that can be protected."""

    earliest: int | None
    accepted: bool = False
    reason: str = "already_swept"


@dataclass(frozen=True, slots=True)
class SweepTotals:
    """The progress of each shard that was swept, and counts over all of them."""

    progress: dict[str, int]
    range_deletes: int
    sentinels: int
    entries: int
    aborted_deletes: int
    parked: int
    unparked: int
    blocked: int


@dataclass(frozen=True, slots=True)
class ScanTotals:
    """Cells that a legacy sweep examined, and versions that it deleted."""

    cells: int
    deleted: int


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """Row, column, timestamp and kind of each stored version."""

    versions: list[list[str | int]]


@dataclass(frozen=True, slots=True)
class CommitTimestamps:
    """Commit timestamps by start, -1 for aborted transactions."""

    commits: dict[str, int]


@dataclass(frozen=True, slots=True)
class ThresholdOutcome:
    """The threshold of a table for readers."""

    threshold: int


@dataclass(frozen=True, slots=True)
class QueueRows:
    """What is left in the queue: shared rows, marks, dedicated rows, parked and quarantined entries."""

    cells: int
    timestamps: int
    dedicated: int
    parked: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class FailedOperation:
    """An operation that failed and changed nothing."""

    error: str
    message: str
    line: int


JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""
Outcome: TypeAlias = (
    Ok
    | ShardCount
    | Finished
    | ReadValue
    | CurrentTime
    | AcceptedRecord
    | RefusedRecord
    | SweepTotals
    | ScanTotals
    | StoredVersions
    | CommitTimestamps
    | ThresholdOutcome
    | QueueRows
    | FailedOperation
    | JsonObject
)
"""The outcome of `explain` is already a document."""


def document(outcome: Outcome) -> JsonObject:
    """Return an outcome as it is printed."""
    return outcome if isinstance(outcome, dict) else asdict(outcome)
