"""Protect, release, move, list: records in one row, changed together with a row of counts by compare-and-set.

Protecting goes: write the record as pending, *then* look at the thresholds of its tables. Below one, it is refused and
taken away again; otherwise it is accepted, for good. A sweep publishes its threshold and *then* reads the records. So
whoever comes second sees the other, and a record that was accepted is honoured by every sweep that could harm it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sweep_tasks.errors import AlreadyExists, BadValue, LimitExceeded, NotFound, StoreBusy, UnknownTable
from sweep_tasks.model import Cell, checked_timestamp
from sweep_tasks.protection.records import Mode, Protections, Record, State, dump_record, load_record
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import PROTECTIONS
from sweep_tasks.timestamps.thresholds import Thresholds

_ROW = b"records"
_META = b"meta"
_PREFIX = b"r:"
_ATTEMPTS = 200


class Meta(NamedTuple):
    version: int = 0
    records: int = 0
    spans: int = 0


class Verdict(NamedTuple):
    accepted: bool
    earliest: int | None = None
    """The least timestamp that could be protected now, if this one could not."""


class ProtectionCatalog:
    def __init__(self, store: Store, max_records: int = 512, max_spans: int = 4096) -> None:
        self._store = store
        self._thresholds = Thresholds(store)
        self._max_records = max_records
        self._max_spans = max_spans

    def records(self) -> list[Record]:
        """As they stand now."""
        return list(self._read()[1].values())

    def protections(self) -> Protections:
        return Protections(self.records())

    def get(self, record_id: str) -> Record:
        found = self._read()[1].get(record_id)
        if found is None:
            raise NotFound(f"protection: there is no record {record_id!r}; 'sweepflow protections' lists them")
        return found

    def protect(self, record: Record) -> Verdict:
        checked_timestamp(record.ts, "ts")
        if not record.targets:
            raise BadValue("targets", "name at least one table or row range to protect")
        self._thresholds.of_tables(record.tables)
        self._change(record.id, lambda standing: self._added(standing, replace(record, state=State.PENDING)))
        try:
            earliest = self._earliest(record)
        except UnknownTable:
            self._change(record.id, lambda standing: None)
            raise
        if record.ts < earliest:
            self._change(record.id, lambda standing: None)
            return Verdict(False, earliest)
        self._change(record.id, lambda standing: replace(_still(record.id, standing), state=State.ACCEPTED))
        return Verdict(True)

    def move(self, record_id: str, ts: int) -> Verdict:
        """Both timestamps are held until the new one is known to be safe; then it takes the place of the old.

        What an *after* record keeps includes everything that it keeps at a later timestamp, so it may always move up.
        """
        checked_timestamp(ts, "ts")
        record = self.get(record_id)
        if ts == record.ts:
            return Verdict(True)
        self._change(record_id, lambda standing: _moving(record_id, standing, ts))
        try:
            earliest = self._earliest(record)
        except UnknownTable:
            self._change(record_id, lambda standing: _arrived(record_id, standing, ts, stays=True))
            raise
        safe = ts >= earliest or record.mode is Mode.AFTER
        self._change(record_id, lambda standing: _arrived(record_id, standing, ts, stays=not safe))
        return Verdict(True) if safe else Verdict(False, earliest)

    def release(self, record_id: str) -> None:
        self.get(record_id)
        self._change(record_id, lambda standing: None)

    def _earliest(self, record: Record) -> int:
        return max(found.for_readers for found in self._thresholds.of_tables(record.tables).values())

    @staticmethod
    def _added(standing: Record | None, record: Record) -> Record:
        if standing is not None:
            raise AlreadyExists(f"protection: a record {record.id!r} exists already; release it, or choose another id")
        return record

    def _read(self) -> tuple[bytes | None, dict[str, Record]]:
        found = self._store.read_rows(PROTECTIONS, [_ROW])
        records = {
            cell.column.removeprefix(_PREFIX).decode(): value
            for cell, value in found.items()
            if cell.column.startswith(_PREFIX)
        }
        return found.get(Cell(_ROW, _META)), {name: load_record(name, value) for name, value in records.items()}

    def _change(self, record_id: str, change: Callable[[Record | None], Record | None]) -> None:
        """One record and the counts, together or not at all."""
        column = _PREFIX + record_id.encode()
        for _ in range(_ATTEMPTS):
            meta, records = self._read()
            old = records.get(record_id)
            new = change(old)
            if new == old:
                return
            counts = self._counted(_meta(meta), old, new)
            changes = {
                _META: Change(meta, json.dumps(counts).encode()),
                column: Change(dump_record(old) if old else None, dump_record(new) if new else None),
            }
            if self._store.compare_and_set(PROTECTIONS, _ROW, changes):
                return
        raise StoreBusy("protections: the records changed all the time while this one was written; try again")

    def _counted(self, meta: Meta, old: Record | None, new: Record | None) -> Meta:
        records = int(new is not None) - int(old is not None)
        spans = len(new.targets if new else ()) - len(old.targets if old else ())
        self._check_limit("records", meta.records, records, self._max_records)
        self._check_limit("spans", meta.spans, spans, self._max_spans)
        return Meta(meta.version + 1, meta.records + records, meta.spans + spans)

    @staticmethod
    def _check_limit(what: str, used: int, more: int, limit: int) -> None:
        if limit and more > 0 and used + more > limit:
            raise LimitExceeded(
                f"protection: limit exceeded: {used}+{more} > {limit} {what}; release records that are no longer "
                f"needed, or raise the setting max_protection_{what}"
            )


def _still(record_id: str, standing: Record | None) -> Record:
    """A record that was released while it was being verified must not be reported as holding."""
    if standing is None:
        raise NotFound(f"protection: record {record_id!r} was released meanwhile; protect again")
    return standing


def _moving(record_id: str, standing: Record | None, ts: int) -> Record:
    """Holding both timestamps. A move that somebody else left unfinished is taken over, and will notice."""
    record = _still(record_id, standing)
    if ts < record.ts:
        raise BadValue("ts", f"{ts} lies before {record.ts}; a record moves forward only")
    return replace(record, held_ts=ts)


def _arrived(record_id: str, standing: Record | None, ts: int, stays: bool) -> Record:
    """At the new timestamp, or back to the old one alone; but only if ours is still the move under way: what another
    one put in its place may have let go of the timestamp that we verified."""
    record = _still(record_id, standing)
    if record.held_ts != ts or ts < record.ts:
        raise StoreBusy(f"protection: record {record_id!r} was moved by somebody else meanwhile; look and try again")
    return replace(record, ts=record.ts if stays else ts, held_ts=None)


def _meta(value: bytes | None) -> Meta:
    return Meta(*json.loads(value)) if value else Meta()
