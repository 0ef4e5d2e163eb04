"""The documents of a round on one node: measurement, plan, result and report.

Each step of a round is a task of its own, possibly on another machine. What it hands to the next step, what an Airflow
task keeps as its XCom and what `--json` prints is one of these models. They are serialised by `document()` and parsed
by `model_validate()`, nowhere else. Inside a step, `planning.CompactionPlan` and `execution.Result` are plain
dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, field_serializer, model_serializer

from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.sstables.statistics import Reads


class Document(BaseModel, defer_build=True):
    """A frozen model with a JSON form. Unknown fields are ignored, since another version may have written them."""

    model_config = ConfigDict(frozen=True)
    omitted_if_none: ClassVar[frozenset[str]] = frozenset()
    """Fields that the JSON form has only where they are known."""

    @model_serializer(mode="wrap")
    def _without_unknown(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialise(self)
        return {name: value for name, value in fields.items() if value is not None or name not in self.omitted_if_none}

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


# --- measure --------------------------------------------------------------------------------------------------------


class TableFigures(Document):
    """The files of one table on the node."""

    files: int = 0
    bytes: int = 0
    droppable: int = 0
    waiting: int = 0
    """Tombstones that gc_grace still holds."""
    droppable_from_s: int | None = None
    """When gc_grace will have passed for all of them."""
    gc_grace_s: int


class DeadRun(Document):
    """Dead cells in a row in one partition, added up over the files of its table."""

    table: str
    token: int
    longest_run: int
    held: int
    """How many of them gc_grace still holds. Only these count against the server's threshold."""
    files: int = 1
    file: str
    """The file with the longest part of the run."""
    reads: Reads
    fails_at: int
    """The number of held cells at which the server gives up a read; 0 if it never does."""
    near_failing: bool


class LeftOut(Document):
    """A file that was not measured."""

    kind: str
    """`gone` or `unreadable`."""
    file: str | None
    reason: str | None


class Measurement(Document):
    """The tombstones in the files of one node."""

    node: str
    at_s: int
    files: int = 0
    bytes: int = 0
    droppable: int = 0
    waiting: int = 0
    droppable_from_s: int | None = None
    gone: tuple[str, ...] = ()
    """Why files were left out, as sentences: Cassandra replaced them meanwhile."""
    unreadable: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """The same files with codes instead of sentences."""
    statistics: str | None = None
    """The file with a line for each measured file; none where sweeps did the counting."""
    tables: Mapping[str, TableFigures] = {}
    longest_runs: tuple[DeadRun, ...] = ()
    near_failing: int = 0


# --- plan -----------------------------------------------------------------------------------------------------------


class FileVerdict(Document):
    """Whether one file deserves a compaction, as `compaction plan --stats` prints it."""

    omitted_if_none = frozenset({"longest_run", "reads", "overlap"})

    file: str
    ratio: float
    eligible: bool
    reason: CandidateReason
    rank: int | None
    longest_run: int | None = None
    reads: Reads | None = None
    overlap: float | None = None


class NodeFileVerdict(FileVerdict):
    """The same in the plan of a node, with the table of the file."""

    table: str | None


class ServerState(Document):
    """The work of the server itself when the plan was made."""

    pending: int
    running: int
    repairing: bool

    @property
    def blocker(self) -> Blocker | None:
        """What kept the plan from being carried out at once; it may be over by now."""
        if self.pending + self.running > 0:
            return Blocker.SERVER_BUSY
        return Blocker.REPAIR if self.repairing else None


class PlannedCompaction(Document):
    candidate: str
    table: str
    reason: CandidateReason
    rank: int
    files: tuple[str, ...]
    bytes: int
    tombstones: int
    points: int
    flush: bool
    """The table has cells in memory, which are flushed to a file first."""


class BlockedCompaction(Document):
    """A candidate that is not compacted in this round."""

    candidate: str
    table: str
    reason: CandidateReason
    blocker: Blocker
    until_s: int | None
    sentence: str
    files: tuple[str, ...]
    command: str | None
    """What an operator may run about it."""
    tombstones: int
    waiting: int


class TombstoneRange(Document):
    """A range of the ring in which sweeps have left tombstones."""

    table: str
    first_token: int
    last_token: int
    tombstones: int
    droppable: int
    command: str
    """The nodetool command that compacts this range."""


class SweptTable(Document):
    """The tombstones that sweeps have left in a table, as `compaction ranges --json` prints them."""

    table: str
    since: str
    """The date from which they are counted."""
    ranges: int
    versions: int
    sentinels: int
    gc_grace_s: int
    dense: tuple[TombstoneRange, ...]

    @field_serializer("dense")
    def _without_table(self, dense: tuple[TombstoneRange, ...]) -> list[dict[str, Any]]:
        return [each.model_dump(mode="json", exclude={"table"}) for each in dense]


class RoundPlan(Document):
    omitted_if_none = frozenset({"ranges"})

    node: str
    at_s: int
    budget_bytes: int
    statistics: str | None = None
    files: tuple[NodeFileVerdict, ...] = ()
    server: ServerState
    compactions: tuple[PlannedCompaction, ...] = ()
    blocked: tuple[BlockedCompaction, ...] = ()
    ranges: tuple[TombstoneRange, ...] | None = None
    """Only of a node whose files can't be read."""


# --- compact --------------------------------------------------------------------------------------------------------


class CompactionOutcome(StrEnum):
    """The outcome of one compaction."""

    DONE = "done"
    FRUITLESS = "fruitless"
    GONE = "gone"
    DECLINED = "declined"
    UNKNOWN = "unknown"
    """Compacted, but its output can't be distinguished from other files, or was compacted again at once."""
    FAILED = "failed"
    PLANNED = "planned"


class CompactionResult(Document):
    """One compaction; a figure that is None is not known."""

    candidate: str
    table: str
    reason: CandidateReason
    files: tuple[str, ...]
    outcome: CompactionOutcome
    problem: str | None = None
    bytes_expected: int
    bytes_read: int = 0
    bytes_written: int | None = 0
    tombstones_expected: int
    tombstones_before: int | None = 0
    tombstones_after: int | None = 0
    dropped: int | None = 0
    kept: Mapping[str, int] = {}
    """Tombstones still there, by what keeps them."""
    points_expected: int
    points_before: int | None = 0
    points_after: int | None = 0
    made: tuple[str, ...] = ()
    """The files that it wrote."""


class RoundResult(Document):
    node: str
    at_s: int
    dry_run: bool = False
    flushed: tuple[str, ...] = ()
    stopped: Blocker | None = None
    compactions: tuple[CompactionResult, ...] = ()
    blocked: tuple[BlockedCompaction, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0


# --- report ---------------------------------------------------------------------------------------------------------


class ExpectedFigures(Document):
    dropped: int = 0
    bytes: int = 0
    points: int = 0


class TombstoneCounts(Document):
    before: int = 0
    after: int = 0


class RoundReport(Document):
    node: str
    dry_run: bool = False
    stopped: Blocker | None = None
    dropped: int = 0
    not_known: int = 0
    """Compactions of which it is not known how much they dropped."""
    kept: Mapping[str, int] = {}
    droppable_from_s: int | None = None
    points_no_longer_read: int = 0
    bytes_rewritten: int = 0
    expected: ExpectedFigures = ExpectedFigures()
    tombstones: TombstoneCounts = TombstoneCounts()
    outcomes: Mapping[CompactionOutcome, int] = {}
    failed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    ranges: tuple[TombstoneRange, ...] = ()
    near_failing: tuple[DeadRun, ...] = ()
    sentences: tuple[str, ...] = ()
    sentence_codes: tuple[str, ...] = ()


class Round(Document):
    """A whole round, as `compaction run --json` prints it for each node."""

    node: str
    plan: RoundPlan
    done: RoundResult
    report: RoundReport


class NodeError(Document):
    """A node on which a command failed."""

    node: str
    error: str
    message: str
