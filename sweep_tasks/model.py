"""The data model: small frozen values that all packages use.

A table has cells, a cell is a row and a column, and a cell has versions by start timestamp. The reprs show lengths
instead of bytes: such values appear in log lines and exceptions, and the bytes are user data.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.errors import BadValue

SENTINEL_TS = -1
"""The timestamp of garbage deletion sentinels, below every start timestamp."""

MAX_TS = 2**63 - 1
MAX_NAME_BYTES = 1500
"""Maximum length of a row or column name, as in AtlasDB; it keeps queue rows below Cassandra's limits."""

DELETE_MARKER = b""

LEAST_TOKEN, GREATEST_TOKEN = -(2**63), 2**63 - 1
"""The tokens of Cassandra's default partitioner."""


class SweepStrategy(StrEnum):
    """How a table is swept."""

    CONSERVATIVE = "conservative"
    THOROUGH = "thorough"
    NOTHING = "nothing"


class ScanReason(StrEnum):
    """Why a scan is due: what a change of strategy or a truncation leaves without queue entries."""

    UNQUEUED = "unqueued"
    """Versions that were written, or not swept, while the strategy was `nothing`."""
    MARKERS = "markers"
    """Sentinels and delete markers, which a conservative table keeps and a thorough one does not."""
    TRUNCATED = "truncated"
    """Versions below the mark that an interrupted truncation has not deleted yet."""


class ScanDue(NamedTuple):
    """A scan of the whole table that is necessary after a change of strategy or a truncation."""

    why: ScanReason
    since: int | None = None
    """A timestamp taken after the change was recorded; None until it is set. Every writer by the old strategy started
    below it, so a scan up to it finds everything."""


class ConflictHandling(StrEnum):
    """The rule for two transactions that write the same cell."""

    FIRST_COMMITTER_WINS = "first-committer-wins"
    NONE = "none"


class Layout(StrEnum):
    """How a table is stored.

    Cells are versioned and written at store timestamps. Registers have one value, change by compare-and-set and may
    expire. Cassandra uses different clocks for the write times of the two, so no table has both.
    """

    CELLS = "cells"
    REGISTERS = "registers"


class Cell(NamedTuple):
    """A row and a column of a table."""

    row: bytes
    column: bytes

    def __repr__(self) -> str:
        return f"Cell(<{len(self.row)} bytes>, <{len(self.column)} bytes>)"


class Version(NamedTuple):
    """A value of a cell, with the start timestamp of its transaction. An empty value is a delete marker."""

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
    """A stored version without its value, as `Store.scan_versions` returns it."""

    cell: Cell
    ts: int
    empty: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A range of byte strings from `start` up to, but not including, `end`; an empty end is open."""

    start: bytes = b""
    end: bytes = b""

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def overlaps(self, other: Span) -> bool:
        """Return whether some key is in both."""
        return (not other.end or self.start < other.end) and (not self.end or other.start < self.end)

    def __repr__(self) -> str:
        return f"Span(<{len(self.start)} bytes>, <{len(self.end)} bytes>)"

    @classmethod
    def only(cls, key: bytes) -> Span:
        return cls(key, key + b"\0")

    @property
    def is_one(self) -> bool:
        return self.end == self.start + b"\0"

    @property
    def is_empty(self) -> bool:
        return bool(self.end) and self.end <= self.start


EVERYTHING = Span()
ColumnChoice = Span | Collection[bytes]

_PART = re.compile(r"[A-Za-z0-9_-]+\Z")
"""A namespace or a table name, with the characters that AtlasDB allows."""
_LONGEST_TABLE_NAME = 128
RESERVED_NAMESPACE = "sweep"


class TableRef(NamedTuple):
    """The qualified name of a table.

    System tables have the reserved namespace, or no namespace and a name that starts with an underscore. AtlasDB also
    has other tables without a namespace.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def is_system(self) -> bool:
        return self.namespace == RESERVED_NAMESPACE or (not self.namespace and self.name.startswith("_"))

    @classmethod
    def parse(cls, text: str) -> TableRef:
        """Parse a table name from user input."""
        namespace, dot, name = text.partition(".")
        if not dot or not _PART.match(namespace) or not _PART.match(name):
            raise BadValue(
                "table",
                f"{_shown(text)} is not a table name; write namespace.name, in letters, digits, underscores, hyphens",
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
                "table", f"the namespace '{RESERVED_NAMESPACE}' is reserved; choose another", reason="reserved"
            )
        return cls(namespace, name)

    @classmethod
    def of(cls, table: TableRef | str) -> TableRef:
        """Return the table that a program names. It can't name one of the system, in either form."""
        if isinstance(table, str):
            return cls.parse(table)
        if not isinstance(table, TableRef):
            problem = f"expected namespace.name or a TableRef, got {type(table).__name__}"
            raise BadValue("table", problem, reason="wrong_type")
        if table.is_system:
            raise BadValue("table", f"{table} belongs to the store itself; name a table of your own", reason="reserved")
        return table

    @classmethod
    def queued(cls, text: str) -> TableRef:
        """Parse a table name from a queue entry; it may have no namespace.

        A corrupt entry may contain user data, so an invalid name is not included in the error.
        """
        found = cls.stored(text)
        parts = (found.namespace, found.name) if found.namespace else (found.name,)
        if found.is_system or len(text) > _LONGEST_TABLE_NAME or not all(map(_PART.match, parts)):
            raise BadValue("table", "the queue entry has no valid table name")
        return found

    @classmethod
    def stored(cls, text: str) -> TableRef:
        """Parse a table name from a store; system tables are valid."""
        namespace, dot, name = text.partition(".")
        return cls(namespace, name) if dot else cls("", text)


class TableState(StrEnum):
    """The state of a table. Only an active table can be changed, written and read."""

    ACTIVE = "active"
    TRUNCATING = "truncating"
    """A truncation is announced. It is not decided yet, and nothing is deleted."""
    DROPPING = "dropping"
    """A drop is announced. It is not decided yet, and nothing is deleted."""
    GONE = "gone"
    """The table is dropped. The next table of the same name is another incarnation."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """A table's catalog row: its properties and its state. Every change replaces the whole row."""

    strategy: SweepStrategy = SweepStrategy.CONSERVATIVE
    conflicts: ConflictHandling = ConflictHandling.FIRST_COMMITTER_WINS
    retention_s: int | None = None
    look_before_delete: bool = False
    past_strategies: frozenset[SweepStrategy] = frozenset()
    """Earlier strategies of the table. Their sweeps may still be running, so their thresholds still apply."""
    layout: Layout = Layout.CELLS
    own_threshold: bool = False
    """Readers use the table's own threshold, because the table has its own retention. It is set only after the own
    threshold was raised to that of sweeps that may not have known the retention."""
    revision: int = 0
    """The number of changes by operators. It distinguishes a retention from an equal one that was removed and set
    again."""
    scan_due: ScanDue | None = None
    state: TableState = TableState.ACTIVE
    owner: str | None = None
    """The attempt that announced the truncation or drop."""
    mark: int = 0
    """Everything that started below the mark was truncated, or belonged to an earlier incarnation. It does not exist,
    even if it is still stored, and no snapshot below the mark can be read."""
    incarnation: int = 1
    """The number of tables with this name so far. The physical name depends on it, so that a process that still uses an
    earlier incarnation can't reach this one."""

    def __post_init__(self) -> None:
        if self.retention_s is None:
            return
        if not isinstance(self.retention_s, int):
            problem = f"expected a whole number of seconds, got {type(self.retention_s).__name__}"
            raise BadValue("retention_s", problem, reason="wrong_type")
        if self.retention_s < 0:
            raise BadValue("retention_s", f"{self.retention_s} is negative; give seconds, or leave it out")

    @property
    def is_gone(self) -> bool:
        return self.state is TableState.GONE

    @property
    def is_announced(self) -> bool:
        """A truncation or drop is announced. Its owner may have died."""
        return self.state in (TableState.TRUNCATING, TableState.DROPPING)

    def announced(self, state: TableState, owner: str) -> TableMetadata:
        return replace(self, state=state, owner=owner)

    def decided(self, mark: int) -> TableMetadata:
        """Return the row after the announced truncation or drop is decided, with everything below the mark removed."""
        if self.state is TableState.DROPPING:
            return replace(self, state=TableState.GONE, owner=None, mark=mark, scan_due=None)
        due = None if self.strategy is SweepStrategy.NOTHING else ScanDue(ScanReason.TRUNCATED, mark)
        return replace(self, state=TableState.ACTIVE, owner=None, mark=mark, scan_due=due)

    def rolled_back(self) -> TableMetadata:
        """Return the row after the announcement is rolled back."""
        return replace(self, state=TableState.ACTIVE, owner=None)

    @property
    def strategies(self) -> frozenset[SweepStrategy]:
        """The past and present strategies, without `nothing`."""
        return (self.past_strategies | {self.strategy}) - {SweepStrategy.NOTHING}

    @property
    def scan_waits_for_queue(self) -> bool:
        """The due scan removes sentinels, and old entries in the conservative queue may still write some.

        This holds for every reason of the scan, and for every strategy in between.
        """
        return self.strategy is SweepStrategy.THOROUGH and SweepStrategy.CONSERVATIVE in self.past_strategies

    def with_strategy(self, strategy: SweepStrategy) -> TableMetadata:
        """Return the row with another strategy; the old one becomes a past strategy, and a scan may become due."""
        if strategy is self.strategy:
            return self
        past = (self.past_strategies | {self.strategy}) - {SweepStrategy.NOTHING}
        return replace(self, strategy=strategy, past_strategies=past, scan_due=self._scan_due_as(strategy))

    def _scan_due_as(self, strategy: SweepStrategy) -> ScanDue | None:
        """Return the scan that a change to this strategy makes due.

        Versions without queue entries need a scan under any strategy; sentinels and delete markers only if the table
        becomes thorough. With the strategy `nothing`, no scan is due.
        """
        if strategy is SweepStrategy.NOTHING:
            return None
        unqueued = self.scan_due is not None and self.scan_due.why is not ScanReason.MARKERS
        if unqueued or self.strategy is SweepStrategy.NOTHING:
            return ScanDue(ScanReason.UNQUEUED)
        return ScanDue(ScanReason.MARKERS) if strategy is SweepStrategy.THOROUGH else None


def checked_timestamp(ts: int, field: str = "timestamp") -> int:
    if not isinstance(ts, int):
        raise BadValue(field, f"expected a number, got {type(ts).__name__}", reason="wrong_type")
    if not 0 <= ts <= MAX_TS:
        raise BadValue(
            field, f"{ts} is out of range; a timestamp is at least 0 and at most {MAX_TS}", reason="out_of_range"
        )
    return ts


def checked_span(span: Span, field: str) -> Span:
    if not isinstance(span, Span):
        raise BadValue(field, f"expected a Span, got {type(span).__name__}", reason="wrong_type")
    for end in (span.start, span.end):
        if not isinstance(end, bytes):
            raise BadValue(field, f"expected a Span of bytes, got {type(end).__name__}", reason="wrong_type")
    return span


def checked_name(name: bytes, field: str) -> bytes:
    if not isinstance(name, bytes):
        raise BadValue(field, f"expected bytes, got {type(name).__name__}", reason="wrong_type")
    if not 0 < len(name) <= MAX_NAME_BYTES:
        problem = f"has {len(name)} bytes; 1 to {MAX_NAME_BYTES} are allowed"
        raise BadValue(field, problem, reason="too_long" if name else "empty")
    return name


def _shown(text: str) -> str:
    """Return a name for an error message, shortened so that a pasted blob does not fill the screen."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
