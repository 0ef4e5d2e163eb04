"""Stores the protection records: in one row, each changed together with the counts of all, by compare-and-set.

Every change raises the version of the counts. A reader that finds the same version again knows that no record has
changed. Two writers can't exceed a limit together, because both change the counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import LimitExceeded, OutcomeUnknown, StoreBusy, StoreError
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.protection.records import MANUAL, Mode, Record, State, Target
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import PROTECTIONS

_ROW = b"records"
_META = b"meta"
_PREFIX = b"r:"


class ProtectionMetadata(NamedTuple):
    """The version of the catalog, and the number of records and spans in it."""

    version: int = 0
    records: int = 0
    spans: int = 0


class RecordLimits(NamedTuple):
    """The most records and spans that a catalog may hold. 0 means no limit."""

    records: int = 0
    spans: int = 0


NO_LIMITS = RecordLimits()


class Ledger:
    """Reads and changes the stored records."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def metadata(self) -> ProtectionMetadata:
        cell = Cell(_ROW, _META)
        return _meta(self._store.read(PROTECTIONS, [cell]).get(cell))

    def state(self) -> tuple[ProtectionMetadata, dict[str, Record]]:
        """Return the counts and all records, as of the same moment."""
        found = self._read()
        return _meta(found.get(_META)), _records(found)

    def change(
        self, record_id: str, change: Callable[[Record | None], Record | None], limits: RecordLimits = NO_LIMITS
    ) -> Record | None:
        """Replace a record with what `change` returns for it, and return what is stored then. `change` may be called
        several times."""
        column = _PREFIX + record_id.encode()
        for attempt in range(retries.PROTECTIONS.attempts):
            self._wait_before_retry(attempt)
            found = self._read()
            old = load_record(record_id, found[column]) if column in found else None
            new = change(old)
            if new == old:
                return old
            meta = _counted(_meta(found.get(_META)), old, new, limits)
            if new:
                new = replace(new, version=meta.version, first_version=new.first_version or meta.version)
            if self._write({_META: _changed(found, _META, json.dumps(meta).encode()),
                              column: _changed(found, column, dump_record(new) if new else None)}):  # fmt: skip
                return new
        raise StoreBusy(
            f"protections: the records changed {retries.PROTECTIONS.attempts} times before this change was stored; "
            "retry later"
        )

    def recount(self) -> bool:
        """Correct the counts. Returns True if they were wrong."""
        for attempt in range(retries.PROTECTIONS.attempts):
            self._wait_before_retry(attempt)
            found = self._read()
            meta, records = _meta(found.get(_META)), _records(found)
            correct = meta._replace(records=len(records), spans=sum(len(each.targets) for each in records.values()))
            if correct == meta:
                return False
            stored = json.dumps(correct._replace(version=meta.version + 1)).encode()
            if self._write({_META: _changed(found, _META, stored)}):
                return True
        raise StoreBusy(
            f"protections: the records changed {retries.PROTECTIONS.attempts} times while they were counted; "
            "retry later"
        )

    def _write(self, changes: dict[bytes, Change]) -> bool:
        """Apply changes to the row. If the answer is lost, a read shows whether they were applied: no other writer
        stores the same bytes."""
        try:
            return self._store.compare_and_set(PROTECTIONS, _ROW, changes)
        except OutcomeUnknown as unknown:
            try:
                found = self._read()
            except StoreError:
                raise unknown from None
            return all(found.get(column) == change.new for column, change in changes.items() if column != _META)

    def _wait_before_retry(self, attempt: int) -> None:
        """Wait a random time, so that concurrent writers do not retry at the same moment."""
        if attempt > 1:
            self._clock.sleep(retries.PROTECTIONS.pause_s(attempt))

    def _read(self) -> dict[bytes, bytes]:
        return {cell.column: value for cell, value in self._store.read_rows(PROTECTIONS, [_ROW]).items()}


def _records(found: dict[bytes, bytes]) -> dict[str, Record]:
    names = ((column, column.removeprefix(_PREFIX).decode()) for column in found if column.startswith(_PREFIX))
    return {name: load_record(name, found[column]) for column, name in names}


def _changed(found: dict[bytes, bytes], column: bytes, new: bytes | None) -> Change:
    return Change(found.get(column), new)


def _counted(
    meta: ProtectionMetadata, old: Record | None, new: Record | None, limits: RecordLimits
) -> ProtectionMetadata:
    records = int(new is not None) - int(old is not None)
    spans = len(new.targets if new else ()) - len(old.targets if old else ())
    _check_limit("records", meta.records, records, limits.records)
    _check_limit("spans", meta.spans, spans, limits.spans)
    return ProtectionMetadata(meta.version + 1, meta.records + records, meta.spans + spans)


def _check_limit(what: str, used: int, more: int, limit: int) -> None:
    if limit and more > 0 and used + more > limit:
        setting = f"max_protection_{what}"
        raise LimitExceeded(
            f"protection: limit exceeded: {used}+{more} > {limit} {what}; release records that are no longer needed, "
            f"or raise the setting {setting}",
            field=setting,
            used=used,
            more=more,
            limit=limit,
        )


def _meta(value: bytes | None) -> ProtectionMetadata:
    return ProtectionMetadata(*json.loads(value)) if value else ProtectionMetadata()


def dump_record(record: Record) -> bytes:
    """Return the stored form of a record."""
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
        "made": record.first_version,
    }
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def load_record(record_id: str, value: bytes) -> Record:
    """Parse a stored record. Records of an older format lack the newer fields."""
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
        first_version=plain.get("made", 0),
    )


def _load_targets(plain: Iterable[list[str]]) -> Iterable[Target]:
    for table, start, end in plain:
        yield Target(TableRef.stored(table), Span(bytes.fromhex(start), bytes.fromhex(end)))
