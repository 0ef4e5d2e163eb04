"""Protection records, and which of them cover a cell. Pure.

A record keeps what is visible *at* its timestamp, or everything visible at it or *after* it, in the tables and row
ranges it names. Sweeps honour pending and accepted records alike; readers may rely on accepted ones only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from sweep_tasks.model import MAX_TS, Span, TableRef
from sweep_tasks.protection.targets import Target as Target

MANUAL = "manual"


class Mode(StrEnum):
    AT = "at"
    AFTER = "after"


class State(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    ts: int
    mode: Mode
    targets: tuple[Target, ...]
    state: State = State.PENDING
    held_ts: int | None = None
    """While a record moves, the timestamp it moves to: held as well, and not yet known to be safe."""
    meta_type: str = MANUAL
    """The kind of its owner, who can be asked whether it is still needed."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """What that owner is asked about."""
    created_ms: int = 0
    expires_ms: int | None = None
    origin_ts: int | None = None
    """Where it stood when it was made, if it has moved since."""
    transaction: int | None = None
    """The start of the transaction it was made in, until that has ended: its commit makes the record accepted."""
    released_by: int | None = None
    """The start of a transaction whose commit releases it."""
    version: int = field(default=0, compare=False)
    """Which change of the catalog made it what it is: no two have the same."""
    made: int = field(default=0, compare=False)
    """The version it had first: tells it from another one under the same name."""

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
        """Whether a reader at this timestamp finds here all that its snapshot held."""
        kept = at >= self.ts if self.mode is Mode.AFTER else at == self.ts
        return self.state is State.ACCEPTED and kept and self.covers_all(table, rows)


class Protection(NamedTuple):
    """One timestamp that a record holds: what judging an entry needs to know of it."""

    ts: int
    mode: Mode
    record: str


class Protections:
    """The records that a sweep must honour, asked per cell."""

    def __init__(self, records: Collection[Record]) -> None:
        self._records = {record.id: record for record in records}
        self._by_table: dict[TableRef, list[tuple[Span, Protection]]] = {}

    def covering(self, table: TableRef, row: bytes) -> list[Protection]:
        return [protection for rows, protection in self._of(table) if row in rows]

    def protects(self, table: TableRef) -> bool:
        return bool(self._of(table))

    def frees_below(self, record_id: str, ts: int) -> int:
        """Of the entries that were parked under this record when it stood at this timestamp, those that committed below
        the answer have nothing to wait for any more: all, if it is gone or was made anew; those that it has moved past,
        if it has moved."""
        record = self._records.get(record_id)
        if record is None:
            return MAX_TS
        first = record.ts if record.origin_ts is None else record.origin_ts
        return min(record.timestamps) if first <= ts <= max(record.timestamps) else MAX_TS

    def _of(self, table: TableRef) -> list[tuple[Span, Protection]]:
        found = self._by_table.get(table)
        if found is None:
            found = self._by_table[table] = [
                (target.rows, Protection(ts, record.mode, record.id))
                for record in self._records.values()
                for target in record.targets
                if target.covers(table)
                for ts in record.timestamps
            ]
        return found


def dump_record(record: Record) -> bytes:
    plain: dict[str, Any] = {
        "ts": record.ts,
        "mode": record.mode,
        "state": record.state,
        "held_ts": record.held_ts,
        "targets": [[str(table), rows.start.hex(), rows.end.hex()] for table, rows in record.targets],
        "meta_type": record.meta_type,
        "meta": dict(record.meta),
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
        "origin_ts": record.origin_ts,
        "transaction": record.transaction,
        "released_by": record.released_by,
        "version": record.version,
        "made": record.made,
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def load_record(record_id: str, value: bytes) -> Record:
    """Records of an earlier version of the format lack what came later."""
    plain = json.loads(value)
    return Record(
        record_id,
        plain["ts"],
        Mode(plain["mode"]),
        tuple(_load_targets(plain["targets"])),
        State(plain["state"]),
        plain["held_ts"],
        meta_type=plain.get("meta_type", MANUAL),
        meta=plain.get("meta", {}),
        created_ms=plain.get("created_ms", 0),
        expires_ms=plain.get("expires_ms"),
        origin_ts=plain.get("origin_ts"),
        transaction=plain.get("transaction"),
        released_by=plain.get("released_by"),
        version=plain.get("version", 0),
        made=plain.get("made", 0),
    )


def _load_targets(plain: Iterable[list[str]]) -> Iterable[Target]:
    for table, start, end in plain:
        yield Target(TableRef.stored(table), Span(bytes.fromhex(start), bytes.fromhex(end)))


def _within(inner: Span, outer: Span) -> bool:
    ends = not outer.end or (bool(inner.end) and inner.end <= outer.end)
    return outer.start <= inner.start and ends
