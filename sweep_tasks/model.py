"""The small frozen values everything else speaks in.

A table holds cells, a cell is a row and a column, and each cell has versions by start timestamp. The reprs show
lengths, not bytes: values of this kind reach log lines and exceptions, and the bytes in them belong to the user.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.errors import BadValue

SENTINEL_TS = -1
"""Garbage deletion sentinels live below every start timestamp."""

MAX_TS = 2**63 - 1
MAX_NAME_BYTES = 1500
"""Of a row or a column: what AtlasDB allows, and what keeps a queue row below Cassandra's limits."""

DELETE_MARKER = b""

LEAST_TOKEN, GREATEST_TOKEN = -(2**63), 2**63 - 1
"""Of the ring that Cassandra's default partitioner hashes rows to."""


class SweepStrategy(StrEnum):
    CONSERVATIVE = "conservative"
    THOROUGH = "thorough"
    NOTHING = "nothing"


class ScanReason(StrEnum):
    """What a change of strategy leaves in a table that no queue entry leads to."""

    UNQUEUED = "unqueued"
    """Versions that were written while the table was swept by nothing, or that nobody swept meanwhile."""
    MARKERS = "markers"
    """Sentinels and delete markers that a conservative table keeps, and a thorough one does not."""


class ScanDue(NamedTuple):
    """A scan of the whole table that a change of strategy has left to be done."""

    why: ScanReason
    since: int | None = None
    """A timestamp handed out after the change was on record. Whoever wrote by the old strategy started below it, so a
    scan that goes up to it finds everything; None until it is known."""


class ConflictHandling(StrEnum):
    FIRST_COMMITTER_WINS = "first-committer-wins"
    NONE = "none"


class Layout(StrEnum):
    """How a table is kept.

    Cells are versioned and written at store timestamps. Registers have one value, change by compare-and-set and may
    expire. A store such as Cassandra writes the two at different clocks, so no table is ever both.
    """

    CELLS = "cells"
    REGISTERS = "registers"


class Cell(NamedTuple):
    row: bytes
    column: bytes

    def __repr__(self) -> str:
        return f"Cell(<{len(self.row)} bytes>, <{len(self.column)} bytes>)"


class Version(NamedTuple):
    ts: int
    value: bytes

    @property
    def is_delete(self) -> bool:
        return self.value == DELETE_MARKER

    def __repr__(self) -> str:
        return f"Version({self.ts}, <{len(self.value)} bytes>)"


class VersionRange(NamedTuple):
    """Versions of a cell from `first` up to, but not including, `end`."""

    cell: Cell
    first: int
    end: int


class StoredVersion(NamedTuple):
    """One version as a scan without values sees it."""

    cell: Cell
    ts: int
    empty: bool


@dataclass(frozen=True, slots=True)
class Span:
    """Byte strings from `start` up to, but not including, `end`; an empty end is open."""

    start: bytes = b""
    end: bytes = b""

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def __repr__(self) -> str:
        return f"Span(<{len(self.start)} bytes>, <{len(self.end)} bytes>)"

    @classmethod
    def only(cls, key: bytes) -> Span:
        return cls(key, key + b"\0")

    @property
    def is_one(self) -> bool:
        return self.end == self.start + b"\0"


EVERYTHING = Span()
ColumnChoice = Span | Collection[bytes]

_PART = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*\Z")
_SYSTEM = re.compile(r"_[a-z_]+\Z")
_LONGEST_TABLE_NAME = 128
RESERVED_NAMESPACE = "sweep"


class TableRef(NamedTuple):
    """A table by its qualified name. Tables of the system itself have no namespace, or the reserved one."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def is_system(self) -> bool:
        return self.namespace in ("", RESERVED_NAMESPACE)

    @classmethod
    def parse(cls, text: str) -> TableRef:
        """A table name as a user gives it."""
        namespace, dot, name = text.partition(".")
        if not dot or not _PART.match(namespace) or not _PART.match(name):
            raise BadValue(
                "table",
                f"{_shown(text)} is not a table name; write namespace.name, each of letters, digits and single "
                "underscores, starting with a letter",
                reason="malformed",
            )
        if len(text) > _LONGEST_TABLE_NAME:
            raise BadValue(
                "table",
                f"the name has {len(text)} characters, at most {_LONGEST_TABLE_NAME} are allowed",
                reason="too_long",
            )
        if namespace == RESERVED_NAMESPACE:
            raise BadValue(
                "table", f"the namespace '{RESERVED_NAMESPACE}' is the system's own; choose another", reason="reserved"
            )
        return cls(namespace, name)

    @classmethod
    def queued(cls, text: str) -> TableRef:
        """A table name as an entry of the queue gives it. Where the entry is garbled that may be anybody's bytes, so
        what is not a name is not repeated."""
        try:
            return cls.parse(text)
        except BadValue:
            raise BadValue("table", "its name can't be read") from None

    @classmethod
    def stored(cls, text: str) -> TableRef:
        """A table name as a store gives it back, system tables included."""
        if _SYSTEM.match(text):
            return cls("", text)
        namespace, _, name = text.partition(".")
        return cls(namespace, name)


@dataclass(frozen=True, slots=True)
class TableMetadata:
    strategy: SweepStrategy = SweepStrategy.CONSERVATIVE
    conflicts: ConflictHandling = ConflictHandling.FIRST_COMMITTER_WINS
    retention_s: int | None = None
    look_before_delete: bool = False
    past_strategies: frozenset[SweepStrategy] = frozenset()
    """Strategies the table had before: their sweeps may still be at work on it, so their thresholds still count."""
    layout: Layout = Layout.CELLS
    own_threshold: bool = False
    """Readers go by the table's own threshold, because it keeps longer than its strategy. Set only once that threshold
    stands at least where sweeps that knew nothing of the retention may have been."""
    revision: int = 0
    """How often this was changed by hand: tells a retention from the same one, taken away and given back."""
    scan_due: ScanDue | None = None

    def __post_init__(self) -> None:
        if self.retention_s is not None and self.retention_s < 0:
            raise BadValue("retention_s", f"{self.retention_s} is negative; give seconds, or leave it out")

    @property
    def strategies(self) -> frozenset[SweepStrategy]:
        """Past and present, those that sweep at all."""
        return (self.past_strategies | {self.strategy}) - {SweepStrategy.NOTHING}

    @property
    def scan_waits_for_queue(self) -> bool:
        """Sentinels are to go, and entries of the time as a conservative table may still write some: whatever the scan
        is due for, and whatever the table was in between."""
        return self.strategy is SweepStrategy.THOROUGH and SweepStrategy.CONSERVATIVE in self.past_strategies

    def with_strategy(self, strategy: SweepStrategy) -> TableMetadata:
        """Strategies it had still count, and what the change leaves to be done goes on record with it."""
        if strategy is self.strategy:
            return self
        past = (self.past_strategies | {self.strategy}) - {SweepStrategy.NOTHING}
        return replace(self, strategy=strategy, past_strategies=past, scan_due=self._scan_due_as(strategy))

    def _scan_due_as(self, strategy: SweepStrategy) -> ScanDue | None:
        """What was written or swept by nothing has to be looked for whatever it is swept by from now on; sentinels and
        delete markers only where they do not belong. A table that is swept by nothing has nothing due."""
        if strategy is SweepStrategy.NOTHING:
            return None
        unqueued = self.scan_due is not None and self.scan_due.why is ScanReason.UNQUEUED
        if unqueued or self.strategy is SweepStrategy.NOTHING:
            return ScanDue(ScanReason.UNQUEUED)
        return ScanDue(ScanReason.MARKERS) if strategy is SweepStrategy.THOROUGH else None


def checked_timestamp(ts: int, field: str = "timestamp") -> int:
    if not 0 <= ts <= MAX_TS:
        raise BadValue(
            field, f"{ts} is out of range; a timestamp is at least 0 and at most {MAX_TS}", reason="out_of_range"
        )
    return ts


def checked_name(name: bytes, field: str) -> bytes:
    if not isinstance(name, bytes):
        raise BadValue(field, f"expected bytes, got {type(name).__name__}", reason="wrong_type")
    if not 0 < len(name) <= MAX_NAME_BYTES:
        problem = f"has {len(name)} bytes; 1 to {MAX_NAME_BYTES} are allowed"
        raise BadValue(field, problem, reason="too_long" if name else "empty")
    return name


def _shown(text: str) -> str:
    """A name worth repeating to the user: cut, so that a pasted blob does not fill the screen."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
