"""Protects, releases, moves and lists protection records.

To protect, the catalog writes the record as pending, and *then* checks the published thresholds of its tables. If the
record's timestamp is below one of them, the record is refused and removed; otherwise it is accepted. A sweep publishes
its threshold and *then* reads the records. The later of the two always sees the other, so every sweep that could remove
protected versions respects an accepted record.

A record may be created or released in a transaction of the caller (`transactions/commit.py`). Then the commit decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Announcements, Thresholds
from sweep_tasks.errors import AlreadyExists, AlreadySwept, BadValue, NotFound, RecordChanged, UnknownTable
from sweep_tasks.journal.journal import Act, Detail, Journal
from sweep_tasks.model import EVERYTHING, Span, TableRef, checked_span, checked_timestamp
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.protection.ledger import Ledger, ProtectionMetadata, RecordLimits
from sweep_tasks.protection.metrics import count_call
from sweep_tasks.protection.records import (
    Mode,
    Protections,
    Record,
    State,
    after_move,
    checked_rows,
    moving_to,
    same_record,
    unless_pending,
)
from sweep_tasks.store.contract import Store
from sweep_tasks.texts import LONGEST_ID, without_controls

_MOST_META_CHARACTERS = 4_000

Outcomes = Callable[[Collection[int]], Mapping[int, int]]
"""Returns the outcome of transactions by start timestamp: a commit timestamp, or -1 if aborted. Those still open are
left out."""


class ProtectionVerdict(NamedTuple):
    """The answer to a request to protect a timestamp."""

    accepted: bool
    earliest: int | None = None
    """The least timestamp that can be protected now, if this one can't."""

    def raise_if_refused(self, ts: int) -> None:
        """Raise `AlreadySwept` if `ts`, the timestamp that was asked for, can no longer be protected."""
        if self.earliest is not None:
            raise AlreadySwept(ts, self.earliest)


class ProtectionCatalog:
    """All protection records of a store: reads them, and changes them safely beside concurrent sweeps."""

    def __init__(self, store: Store, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._given_settings = settings
        self._clock = clock or SystemClock()
        self._thresholds = Thresholds(store)
        self._ledger = Ledger(store, clock)
        self._journal = Journal(store, clock)

    @cached_property
    def _settings(self) -> Settings:
        """Loaded on the first change, and only then: readers need no settings."""
        return self._given_settings or Settings()

    # --- reading --------------------------------------------------------------------------------------------------

    def metadata(self) -> ProtectionMetadata:
        """Return the version of the catalog and the number of records and spans, with one cheap read."""
        return self._ledger.metadata()

    def state(self) -> tuple[ProtectionMetadata, list[Record]]:
        """Return the metadata and all records, as of the same moment."""
        meta, records = self._ledger.state()
        return meta, list(records.values())

    def records(self) -> list[Record]:
        """Return all records as they are now."""
        return self.state()[1]

    def protections(self) -> Protections:
        return Protections(self.records())

    def get(self, record_id: str) -> Record:
        return _found(record_id, self._ledger.state()[1].get(record_id))

    # --- changing -------------------------------------------------------------------------------------------------

    def protect(self, record: Record) -> ProtectionVerdict:
        """Create a record, and accept or refuse it."""
        with count_call("protect") as call, self.record_protect(record) as act:
            verdict = self._verify(self.begin(record))
            if not verdict.accepted:
                call.mark_refused()
                act.refuse(AlreadySwept.code)
            return verdict

    @contextmanager
    def record_protect(self, record: Record) -> Iterator[Act]:
        """Record in the journal that the block creates this record."""
        checked_timestamp(record.ts, "ts")
        _check_described(record)
        within = {} if record.transaction is None else {"transaction": record.transaction}
        with self._journal.record("protect", record.id, **_for_journal(record), **within) as act:
            yield act

    def move(self, record_id: str, ts: int) -> ProtectionVerdict:
        """Move a record to a later timestamp. It holds both timestamps until the new one is known to be safe."""
        with count_call("move") as call:
            checked_timestamp(ts, "ts")
            record = self.get(record_id)
            if ts == record.ts:
                return ProtectionVerdict(True)
            with self._journal.record(
                "move", record_id, **_for_journal(record) | {"ts": ts, "before": record.ts}
            ) as act:
                moving = _required(self._ledger.change(record_id, lambda stored: moving_to(record, stored, ts)))
                verdict = self._finish_move(moving)
                if not verdict.accepted:
                    call.mark_refused()
                    act.refuse(AlreadySwept.code)
                return verdict

    def release(self, record_id: str, version: int | None = None) -> None:
        """Remove a record. With `version`, only if the record has not changed since that version."""
        with count_call("release"), self._journal.record("release", record_id) as act:

            def released(stored: Record | None) -> None:
                found = _found(record_id, stored)
                act.add(**_for_journal(found))
                if version not in (None, found.version):
                    raise RecordChanged(record_id)

            self._ledger.change(record_id, released)

    # --- completing unfinished changes ----------------------------------------------------------------------------

    def resolve(self, record: Record, outcomes: Outcomes) -> Record | None:
        """Complete or undo a change of this record that its process left unfinished, and return the record as it is
        afterwards. A record whose transaction is still open is not changed."""
        with count_call("settle"):
            created_by, released_by = record.transaction, record.released_by
            ended = outcomes([start for start in (created_by, released_by) if start is not None])
            if created_by is None and record.state is State.PENDING:
                with suppress(UnknownTable, NotFound):
                    self._verify(record)
            elif created_by is not None and created_by in ended:
                (self.accept if ended[created_by] >= 0 else self.drop)(record)
            if released_by is not None and released_by in ended:
                (self.drop if ended[released_by] >= 0 else self.cancel_release)(record)
            if record.held_ts is not None:
                with suppress(UnknownTable, NotFound, RecordChanged):
                    self._finish_move(record)
            stored = self._ledger.state()[1].get(record.id)
            return stored if stored and stored.first_version == record.first_version else None

    def recount(self) -> bool:
        """Correct the counts of records and spans. Returns True if they were wrong."""
        with count_call("recount"):
            return self._ledger.recount()

    # --- single steps, for transactions ---------------------------------------------------------------------------

    def begin(self, record: Record) -> Record:
        """Write a record as pending and return it. Sweeps respect it from here on."""
        checked_timestamp(record.ts, "ts")
        _check_described(record)
        self._check_tables(record)
        settings = self._settings
        mode = Mode.AFTER if settings.protect_at_as_after else record.mode
        new = replace(
            record,
            mode=mode,
            state=State.PENDING,
            created_ms=record.created_ms or self._clock.now_ms(),
            first_version=0,
        )

        def added(stored: Record | None) -> Record:
            if stored is not None:
                raise record_exists(record.id, "already exists; release it, or use another id", reason="duplicate")
            return new

        limits = RecordLimits(settings.max_protection_records, settings.max_protection_spans)
        return _required(self._ledger.change(record.id, added, limits))

    def check_thresholds(self, record: Record) -> ProtectionVerdict:
        """Compare a record with the published thresholds of its tables. The record must be stored before.

        A process that has announced to empty one of the tables may not have seen the record, so this withdraws its
        announcement."""
        patience_s = self._settings.emptying_wait_s
        tables, dropped_at = self._covered(record)
        resolved = Announcements(self._store, self._clock, patience_s).resolve(tables)
        earliest = max([*(each.for_readers for each in resolved.values()), *dropped_at], default=0)
        return ProtectionVerdict(True) if record.ts >= earliest else ProtectionVerdict(False, earliest)

    def accept(self, record: Record) -> None:
        """Mark a pending record as accepted."""
        self._ledger.change(
            record.id, lambda stored: replace(same_record(record, stored), state=State.ACCEPTED, transaction=None)
        )

    def renew(self, record: Record) -> Record:
        """Give a record a new version and creation time, because its owner needs it again. A release that was decided
        for the old version then fails."""

        def younger(stored: Record | None) -> Record:
            now = same_record(record, stored)
            return replace(now, created_ms=max(self._clock.now_ms(), now.created_ms + 1))

        return _required(self._ledger.change(record.id, younger))

    def drop(self, record: Record) -> None:
        """Remove this record, but not a newer one with the same id."""
        self._ledger.change(
            record.id, lambda stored: stored if stored and stored.first_version != record.first_version else None
        )

    def announce_release(self, record_id: str, transaction: int) -> Record:
        """Mark a record as released by a transaction. It holds until that transaction commits."""

        def announced(stored: Record | None) -> Record:
            now = _found(record_id, stored)
            if now.released_by not in (None, transaction) or now.transaction is not None:
                raise RecordChanged(record_id)
            return replace(now, released_by=transaction)

        with self._journal.record("release", record_id, transaction=transaction) as act:
            record = _required(self._ledger.change(record_id, announced))
            act.add(**_for_journal(record))
            return record

    def cancel_release(self, record: Record) -> None:
        """Undo `announce_release`, because the transaction aborted."""
        self._ledger.change(
            record.id,
            lambda stored: (
                replace(stored, released_by=None) if stored and stored.released_by == record.released_by else stored
            ),
        )

    def _verify(self, pending: Record) -> ProtectionVerdict:
        try:
            verdict = self.check_thresholds(pending)
        except UnknownTable:
            self.drop(pending)
            raise
        if verdict.accepted:
            self.accept(pending)
            return verdict
        stored = self._ledger.change(pending.id, lambda stored: unless_pending(pending, stored))
        return ProtectionVerdict(True) if stored and stored.first_version == pending.first_version else verdict

    def _finish_move(self, moving: Record) -> ProtectionVerdict:
        """Complete or undo a move. An *after* record can always move forward: it already keeps everything that it keeps
        at a later timestamp."""
        ts = moving.timestamps[-1]
        try:
            verdict = self.check_thresholds(replace(moving, ts=ts))
        except UnknownTable:
            self._ledger.change(moving.id, lambda stored: after_move(moving, stored, stays=True))
            raise
        verdict = ProtectionVerdict(True) if moving.mode is Mode.AFTER else verdict
        stays = not verdict.accepted
        stored = _required(self._ledger.change(moving.id, lambda stored: after_move(moving, stored, stays)))
        return ProtectionVerdict(True) if stored.ts == ts else verdict

    def _check_tables(self, record: Record) -> None:
        if not record.targets:
            raise BadValue("targets", "must name at least one table or row range to protect")
        for target in record.targets:
            checked_rows(target.rows, "targets")
        tables, _ = self._covered(record)
        for target in record.targets:
            if target.is_pattern and not target.among(tables):
                raise BadValue(
                    "targets",
                    f"{target.table} matches no table; list the tables with 'sweepflow tables list'",
                    reason="no_match",
                )
        self._thresholds.of_tables(tables)

    def _covered(self, record: Record) -> tuple[set[TableRef], list[int]]:
        """Return the covered tables and the drop marks of dropped ones. Covered are tables that are named, and existing
        ones that match a pattern. The data of a dropped table that matches is gone. A table that is created later
        holds nothing that is visible at the record's timestamp."""
        named = {target.table for target in record.targets if not target.is_pattern}
        patterns = [target for target in record.targets if target.is_pattern]
        rows = self._store.catalog_rows() if patterns else {}
        matching = set[TableRef]().union(*(target.among(rows) for target in patterns))
        existing = {table for table in matching if not rows[table].is_gone}
        return named | existing, [rows[table].mark for table in matching - existing]


def _check_described(record: Record) -> None:
    if not 0 < len(record.id) <= LONGEST_ID or not record.id.isprintable():
        raise BadValue("id", f"must have 1 to {LONGEST_ID} printable characters")
    for text in (*record.meta, *record.meta.values()):
        without_controls("meta", text)
    if sum(len(key) + len(value) for key, value in record.meta.items()) > _MOST_META_CHARACTERS:
        raise BadValue(
            "meta",
            f"has more than {_MOST_META_CHARACTERS} characters; store the details elsewhere, and a key to them here",
        )
    if not 0 < len(record.meta_type) <= LONGEST_ID:
        raise BadValue(
            "meta_type",
            f"must have 1 to {LONGEST_ID} characters and name the type of the record's owner; use manual for a person",
        )
    without_controls("meta_type", record.meta_type)


def _found(record_id: str, stored: Record | None) -> Record:
    if stored is None:
        raise NotFound(
            f"protection: there is no record {record_id!r}; 'sweepflow protections' lists them", record_id=record_id
        )
    return stored


def record_exists(record_id: str, problem: str, *, reason: str) -> AlreadyExists:
    return AlreadyExists(
        f"protection: a record {record_id!r} {problem}", field="id", reason=reason, record_id=record_id
    )


def _for_journal(record: Record) -> dict[str, Detail]:
    """Return what a record protects, as the journal has it: tables only, rows are kept out of logs."""
    tables = sorted({str(target.table) for target in record.targets})
    return {"ts": record.ts, "mode": record.mode.value, "tables": tables}


def _required(record: Record | None) -> Record:
    if record is None:
        raise AssertionError("the change removed the record")
    return record


# ---------------------------------------------------------------------------------------------------------------------
# The tracker: the records as of a known moment, read again only if they have changed.
#
# A caller that may use slightly old records calls `known`. A caller that needs the current ones calls `refresh`, which
# starts its read after the call. When several callers refresh at once, one of them reads and the others wait for it.
# ---------------------------------------------------------------------------------------------------------------------

REFRESH_S = 300.0


class KnownProtections(NamedTuple):
    """The records as of a moment."""

    version: int
    records: tuple[Record, ...]
    protections: Protections
    as_of_ms: int


class Tracker:
    """Caches the records of a catalog. Safe with threads and with `fork`."""

    def __init__(self, catalog: ProtectionCatalog, clock: Clock | None = None, refresh_s: float = REFRESH_S) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._refresh_ms = refresh_s * 1000
        self._known: KnownProtections | None = None
        self._started = 0
        self._succeeded = 0
        call_in_each_process(self, Tracker._reset)

    def _reset(self) -> None:
        """Reset the lock in a forked child: a read that runs in the parent never ends there."""
        self._lock = threading.Condition()
        self._reading = False
        self._waiting = 0

    def intersecting(self, table: TableRef | str, rows: Span = EVERYTHING) -> KnownProtections:
        """Return the known records that cover some of these rows of a table, and as of when they are known."""
        ref = TableRef.of(table)
        checked_span(rows, "rows")
        known = self.known()
        records = tuple(known.protections.intersecting(ref, rows))
        return known._replace(records=records, protections=Protections(records))

    @property
    def waiting(self) -> int:
        """The number of callers of `refresh` that wait for another caller's read."""
        return self._waiting

    def known(self) -> KnownProtections:
        """Return records that are no older than the refresh interval."""
        known = self._known
        if known is None or self._clock.now_ms() - known.as_of_ms >= self._refresh_ms:
            return self.refresh()
        return known

    def refresh(self) -> KnownProtections:
        """Return records that were read after this call."""
        with self._lock:
            wanted = self._started + 1
            while self._reading:
                self._waiting += 1
                self._lock.wait()
                self._waiting -= 1
            if self._known and self._succeeded >= wanted:
                return self._known
            self._reading = True
            self._started += 1
            number = self._started
        try:
            known = self._read()
            with self._lock:
                self._known, self._succeeded = known, number
            return known
        finally:
            with self._lock:
                self._reading = False
                self._lock.notify_all()

    def _read(self) -> KnownProtections:
        """Read the version first: a list that is read after it is at least as new."""
        with count_call("refresh"):
            as_of_ms = self._clock.now_ms()
            version = self._catalog.metadata().version
            if self._known and self._known.version == version:
                return self._known._replace(as_of_ms=as_of_ms)
            meta, records = self._catalog.state()
            return KnownProtections(meta.version, tuple(records), Protections(records), as_of_ms)
