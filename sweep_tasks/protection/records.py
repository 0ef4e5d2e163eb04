"""Protection records, and which of them cover a cell. Pure.

A record keeps what is visible *at* its timestamp, or everything visible at it or *after* it, in the tables and row
ranges it names. Sweeps honour pending and accepted records alike; readers may rely on accepted ones only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.model import EVERYTHING, Span, TableRef


class Mode(StrEnum):
    AT = "at"
    AFTER = "after"


class State(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"


class Target(NamedTuple):
    table: TableRef
    rows: Span = EVERYTHING


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    ts: int
    mode: Mode
    targets: tuple[Target, ...]
    state: State = State.PENDING
    held_ts: int | None = None
    """While a record moves, the timestamp it moves to: held as well, and not yet known to be safe."""

    @property
    def timestamps(self) -> tuple[int, ...]:
        return (self.ts,) if self.held_ts is None else (self.ts, self.held_ts)

    @property
    def tables(self) -> set[TableRef]:
        return {target.table for target in self.targets}

    def covers(self, table: TableRef, row: bytes) -> bool:
        return any(target.table == table and row in target.rows for target in self.targets)

    def covers_all(self, table: TableRef, rows: Span) -> bool:
        return any(target.table == table and _within(rows, target.rows) for target in self.targets)

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
        self._by_table: dict[TableRef, list[tuple[Span, Protection]]] = {}
        self._standing = {(record.id, ts) for record in records for ts in record.timestamps}
        for record in records:
            for table, rows in record.targets:
                for ts in record.timestamps:
                    self._by_table.setdefault(table, []).append((rows, Protection(ts, record.mode, record.id)))

    def covering(self, table: TableRef, row: bytes) -> list[Protection]:
        return [protection for rows, protection in self._by_table.get(table, ()) if row in rows]

    def protects(self, table: TableRef) -> bool:
        return table in self._by_table

    def stands(self, record: str, ts: int) -> bool:
        """Whether this record is still there and still holds this timestamp."""
        return (record, ts) in self._standing


def dump_record(record: Record) -> bytes:
    plain = {
        "ts": record.ts,
        "mode": record.mode,
        "state": record.state,
        "held_ts": record.held_ts,
        "targets": [[str(table), rows.start.hex(), rows.end.hex()] for table, rows in record.targets],
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def load_record(record_id: str, value: bytes) -> Record:
    plain = json.loads(value)
    return Record(
        record_id,
        plain["ts"],
        Mode(plain["mode"]),
        tuple(_load_targets(plain["targets"])),
        State(plain["state"]),
        plain["held_ts"],
    )


def _load_targets(plain: Iterable[list[str]]) -> Iterable[Target]:
    for table, start, end in plain:
        yield Target(TableRef.stored(table), Span(bytes.fromhex(start), bytes.fromhex(end)))


def _within(inner: Span, outer: Span) -> bool:
    ends = not outer.end or (bool(inner.end) and inner.end <= outer.end)
    return outer.start <= inner.start and ends
