"""Protection records: what each one covers, and which of them cover a cell. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from sweep_tasks.errors import BadValue, NotFound, RecordChanged
from sweep_tasks.model import EVERYTHING, MAX_NAME_BYTES, MAX_TS, Span, TableRef
from sweep_tasks.protection.index import RangeIndex

# ---------------------------------------------------------------------------------------------------------------------
# Targets: what a protection covers. A table by name or by pattern, completely or a range of its rows.
#
# shop.orders             a table
# shop.*                  every table of a namespace, including tables that are created later
# shop.orders[61:7a)      the rows from 61 up to but not including 7a, in hexadecimal; either end may be left out
# ---------------------------------------------------------------------------------------------------------------------

_STAR = "*"
_TEXT = re.compile(r"(?P<table>[^\[]+)(?:\[(?P<start>[0-9a-f]*):(?P<end>[0-9a-f]*)\))?\Z")
_PATTERN_PART = re.compile(r"[A-Za-z0-9_*-]+\Z")


class Target(NamedTuple):
    """A table or a pattern of tables, and the rows that are covered (a span)."""

    table: TableRef
    """A `*` stands for any characters of a name. A pattern never covers system tables."""
    rows: Span = EVERYTHING

    @classmethod
    def parse(cls, text: str) -> Target:
        found = _TEXT.match(text)
        if found is None:
            raise _bad()
        start, end = (bytes.fromhex(_even(found[name] or "")) for name in ("start", "end"))
        return cls(_table(found["table"]), checked_rows(Span(start, end), "target"))

    @property
    def is_pattern(self) -> bool:
        return _STAR in self.table.namespace or _STAR in self.table.name

    def covers(self, table: TableRef) -> bool:
        if not self.is_pattern:
            return self.table == table
        named = fnmatchcase(table.namespace, self.table.namespace) and fnmatchcase(table.name, self.table.name)
        return named and not table.is_system

    def among(self, tables: Iterable[TableRef]) -> set[TableRef]:
        """Return those of the tables that the target covers."""
        return {table for table in tables if self.covers(table)}

    def __str__(self) -> str:
        rows = f"[{self.rows.start.hex()}:{self.rows.end.hex()})"
        return str(self.table) if self.rows == EVERYTHING else f"{self.table}{rows}"


def checked_rows(rows: Span, field: str) -> Span:
    if max(len(rows.start), len(rows.end)) > MAX_NAME_BYTES or (rows.end and rows.end <= rows.start):
        raise BadValue(
            field, "the first row must come before the end row; leave the end empty for the end of the table"
        )
    return rows


def _table(text: str) -> TableRef:
    if _STAR not in text:
        return TableRef.parse(text)
    namespace, dot, name = text.partition(".")
    if not dot or not _PATTERN_PART.match(namespace) or not _PATTERN_PART.match(name):
        raise _bad()
    return TableRef(namespace, name)


def _even(digits: str) -> str:
    if len(digits) % 2:
        raise _bad()
    return digits


def _bad() -> BadValue:
    return BadValue(
        "target",
        "must be namespace.name, with * for any characters, and optionally a row range [from:to) in hexadecimal",
        reason="malformed",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Protection records, and which of them cover a cell.
#
# A record keeps the versions that are visible *at* its timestamp, or all that are visible at it or *after* it, in its
# targets. Sweeps respect pending and accepted records alike; readers may rely on accepted ones only.
# ---------------------------------------------------------------------------------------------------------------------

MANUAL = "manual"


class Mode(StrEnum):
    """Which versions a record keeps: those visible at its timestamp, or all visible at it or after it."""

    AT = "at"
    AFTER = "after"


class State(StrEnum):
    """Whether a record was checked against the thresholds."""

    PENDING = "pending"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Record:
    """A protected timestamp: what is kept, since when, and for which owner."""

    id: str
    ts: int
    mode: Mode
    targets: tuple[Target, ...]
    state: State = State.PENDING
    held_ts: int | None = None
    """While a record moves, the timestamp that it moves to. It is held too, but not yet known to be safe."""
    meta_type: str = MANUAL
    """The type of its owner. Reconciliation asks the owner whether the record is still needed."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Details that identify the owner, such as a run id."""
    created_ms: int = 0
    expires_ms: int | None = None
    origin_ts: int | None = None
    """The timestamp that it was created with, if it has moved since."""
    transaction: int | None = None
    """The start of the transaction that creates it, until that has ended. Its commit accepts the record."""
    released_by: int | None = None
    """The start of a transaction whose commit releases it."""
    version: int = field(default=0, compare=False)
    """The version of the catalog that stored it in this form. No two records share one."""
    first_version: int = field(default=0, compare=False)
    """Its first version. Distinguishes it from another record with the same id."""

    @property
    def timestamps(self) -> tuple[int, ...]:
        return (self.ts,) if self.held_ts is None else (self.ts, self.held_ts)

    def covers_table(self, table: TableRef) -> bool:
        return any(target.covers(table) for target in self.targets)

    def covers(self, table: TableRef, row: bytes) -> bool:
        return any(target.covers(table) and row in target.rows for target in self.targets)

    def covers_all(self, table: TableRef, rows: Span) -> bool:
        return any(target.covers(table) and _within(rows, target.rows) for target in self.targets)

    def lets_read(self, table: TableRef, rows: Span, at: int) -> bool:
        """Return True if a reader at this timestamp still finds its complete snapshot here."""
        kept = at >= self.ts if self.mode is Mode.AFTER else at == self.ts
        return self.state is State.ACCEPTED and kept and self.covers_all(table, rows)


class Protection(NamedTuple):
    """One timestamp that a record holds: the part of a record that judging an entry needs."""

    ts: int
    mode: Mode
    record: str


class _TableIndex(NamedTuple):
    """The protections of one table, by mode; None if it has none of the mode."""

    at: RangeIndex | None
    after: RangeIndex | None


class Protections:
    """The records that a sweep must respect, looked up by table, row and commit timestamp.

    The index of a table is built when the table is first asked for: only then are the patterns known that cover it.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {record.id: record for record in records}
        self._by_name: dict[TableRef, list[tuple[Span, Protection]]] = {}
        self._by_pattern: list[tuple[Target, Protection]] = []
        for record in self._records.values():
            targets = [target for target in record.targets if not target.rows.is_empty]
            for target, ts in product(targets, record.timestamps):
                held = Protection(ts, record.mode, record.id)
                if target.is_pattern:
                    self._by_pattern.append((target, held))
                else:
                    self._by_name.setdefault(target.table, []).append((target.rows, held))
        self._indexes: dict[TableRef, _TableIndex] = {}

    def __bool__(self) -> bool:
        return bool(self._records)

    @classmethod
    def none(cls) -> Protections:
        """Return no protections, for work that no record can hold back. Never a default: callers write it out."""
        return cls([])

    def holding(self, table: TableRef, row: bytes, commit: int) -> Protection | None:
        """Return the protection that applies to an entry: the greatest *after* at or below its commit if there is one,
        else the greatest *at*."""
        index = self._indexes.get(table) or self._index(table)
        found = None if index.after is None else index.after.greatest(row, commit)
        return index.at.greatest(row, commit) if found is None and index.at is not None else found

    def holding_in_order(self, table: TableRef, row: bytes, commit: int) -> Iterator[Protection]:
        """Yield the protection that applies to an entry, then the one that would apply without it, and so on."""
        index = self._indexes.get(table) or self._index(table)
        for part in (index.after, index.at):
            if part is not None:
                yield from part.descending(row, commit)

    def protects(self, table: TableRef) -> bool:
        """Return whether some row of a table is covered."""
        index = self._indexes.get(table) or self._index(table)
        return index.at is not None or index.after is not None

    def intersecting(self, table: TableRef, rows: Span) -> list[Record]:
        """Return the records that cover some of these rows."""
        index = self._indexes.get(table) or self._index(table)
        found = {held.record for part in index if part is not None for held in part.overlapping(rows)}
        return [record for name, record in self._records.items() if name in found]

    def frees_below(self, record_id: str, ts: int) -> int:
        """Return the timestamp below which this record no longer holds entries that were parked under it at `ts`:
        `MAX_TS` if the record was released or replaced, its current timestamp if it has moved."""
        record = self._records.get(record_id)
        if record is None:
            return MAX_TS
        first = record.ts if record.origin_ts is None else record.origin_ts
        return min(record.timestamps) if first <= ts <= max(record.timestamps) else MAX_TS

    def _index(self, table: TableRef) -> _TableIndex:
        matching = [(target.rows, held) for target, held in self._by_pattern if target.covers(table)]
        placed = [*self._by_name.get(table, ()), *matching]
        by_mode = ([each for each in placed if each[1].mode is mode] for mode in (Mode.AT, Mode.AFTER))
        index = _TableIndex(*(RangeIndex(each) if each else None for each in by_mode))
        self._indexes[table] = index
        return index


def _within(inner: Span, outer: Span) -> bool:
    ends = not outer.end or (bool(inner.end) and inner.end <= outer.end)
    return outer.start <= inner.start and ends


# ---------------------------------------------------------------------------------------------------------------------
# Changes of a record, given the record as it is stored now.
# ---------------------------------------------------------------------------------------------------------------------


def same_record(record: Record, stored: Record | None) -> Record:
    """Return the stored record, or raise `NotFound` if it was released or replaced since. A record that was released
    while it was verified must not be reported as holding."""
    if stored is None or stored.first_version != record.first_version:
        raise NotFound(
            f"protection: record {record.id!r} was released at the same time; protect again", released=record.id
        )
    return stored


def unless_pending(refused: Record, stored: Record | None) -> Record | None:
    """Return None to remove a refused record, unless it is no longer pending. Another process may have verified it
    before the sweep published, and may have reported it as accepted: then it stays."""
    if stored and stored.first_version == refused.first_version and stored.state is State.PENDING:
        return None
    return stored


def moving_to(record: Record, stored: Record | None, ts: int) -> Record:
    """Return the record holding both timestamps. An unfinished move of another process is taken over; that process
    notices it. A pending record can't move, because its verification is about the old timestamp."""
    now = same_record(record, stored)
    if now.state is State.PENDING:
        raise RecordChanged(record.id)
    if ts < now.ts:
        raise BadValue("ts", f"{ts} is below {now.ts}; a record can only move forward", reason="backwards")
    return replace(now, held_ts=ts)


def after_move(moving: Record, stored: Record | None, stays: bool) -> Record:
    """Return the record at the new timestamp, or at the old one alone, but only if this move is still the current one.
    Another move that replaced it may no longer hold the timestamp that was verified here."""
    record, ts = same_record(moving, stored), moving.timestamps[-1]
    if record.held_ts is None and record.ts == ts:
        return record  # another process completed the move
    if record.held_ts != ts or ts < record.ts:
        raise RecordChanged(record.id)
    if stays:
        return replace(record, held_ts=None)
    origin = record.ts if record.origin_ts is None else record.origin_ts
    return replace(record, ts=ts, held_ts=None, origin_ts=origin)
