"""Protect, release, move, list.

Protecting goes: write the record as pending, *then* look at the thresholds of its tables. Below one, it is refused and
taken away again; otherwise it is accepted, for good. A sweep publishes its threshold and *then* reads the records. So
whoever comes second sees the other, and a record that was accepted is honoured by every sweep that could harm it.

A record may be made or released in a transaction of the caller's (`transactional.py`): then the commit decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import (
    BadValue,
    NotFound,
    RecordChanged,
    RecordExists,
    RecordReleased,
    UnknownRecord,
    UnknownTable,
)
from sweep_tasks.model import TableRef, checked_timestamp
from sweep_tasks.protection.ledger import Ledger, Limits, Meta
from sweep_tasks.protection.metrics import counted
from sweep_tasks.protection.records import Mode, Protections, Record, State
from sweep_tasks.protection.targets import checked_rows
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.thresholds import Thresholds

_LONGEST_ID = 200
_MOST_META_CHARACTERS = 4_000

Outcomes = Callable[[Collection[int]], Mapping[int, int]]
"""How transactions ended, by start: a commit timestamp, or -1; those still under way are left out."""


class Verdict(NamedTuple):
    accepted: bool
    earliest: int | None = None
    """The least timestamp that could be protected now, if this one could not."""


class ProtectionCatalog:
    def __init__(self, store: Store, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock or SystemClock()
        self._thresholds = Thresholds(store)
        self._ledger = Ledger(store, clock)

    # --- looking --------------------------------------------------------------------------------------------------

    def metadata(self) -> Meta:
        """The version of the whole, and how many there are: cheap."""
        return self._ledger.metadata()

    def state(self) -> tuple[Meta, list[Record]]:
        meta, records = self._ledger.state()
        return meta, list(records.values())

    def records(self) -> list[Record]:
        """As they stand now."""
        return self.state()[1]

    def protections(self) -> Protections:
        return Protections(self.records())

    def get(self, record_id: str) -> Record:
        return _named(record_id, self._ledger.state()[1].get(record_id))

    # --- changing -------------------------------------------------------------------------------------------------

    def protect(self, record: Record) -> Verdict:
        with counted("protect") as call:
            verdict = self._verified(self.begin(record))
            if not verdict.accepted:
                call.refused()
            return verdict

    def move(self, record_id: str, ts: int) -> Verdict:
        """Both timestamps are held until the new one is known to be safe; then it takes the place of the old."""
        with counted("move") as call:
            checked_timestamp(ts, "ts")
            record = self.get(record_id)
            if ts == record.ts:
                return Verdict(True)
            moving = _standing(self._ledger.change(record_id, lambda standing: _moving(record, standing, ts)))
            verdict = self._arrived(moving)
            if not verdict.accepted:
                call.refused()
            return verdict

    def release(self, record_id: str, version: int | None = None) -> None:
        """With a version: only if the record is still as it was then."""

        def released(standing: Record | None) -> None:
            if version not in (None, _named(record_id, standing).version):
                raise RecordChanged(record_id)

        with counted("release"):
            self._ledger.change(record_id, released)

    # --- what is left to finish -----------------------------------------------------------------------------------

    def settle(self, record: Record, outcomes: Outcomes) -> Record | None:
        """Finish or drop what somebody has left half done; what stands afterwards. A record whose transaction is still
        under way stays as it is."""
        with counted("settle"):
            made_in, released_by = record.transaction, record.released_by
            ended = outcomes([start for start in (made_in, released_by) if start is not None])
            if made_in is None and record.state is State.PENDING:
                with suppress(UnknownTable, NotFound):
                    self._verified(record)
            elif made_in is not None and made_in in ended:
                (self.accept if ended[made_in] >= 0 else self.drop)(record)
            if released_by is not None and released_by in ended:
                (self.drop if ended[released_by] >= 0 else self.keep)(record)
            if record.held_ts is not None:
                with suppress(UnknownTable, NotFound, RecordChanged):
                    self._arrived(record)
            standing = self._ledger.state()[1].get(record.id)
            return standing if standing and standing.made == record.made else None

    def recount(self) -> bool:
        """Whether the counts were wrong; then they are right again."""
        with counted("recount"):
            return self._ledger.recount()

    # --- the steps, for whoever takes them one by one ---------------------------------------------------------------

    def begin(self, record: Record) -> Record:
        """On record as pending: sweeps honour it from here on."""
        checked_timestamp(record.ts, "ts")
        _check_described(record)
        self._check_tables(record)
        settings = self._settings or Settings()
        mode = Mode.AFTER if settings.protect_at_as_after else record.mode
        new = replace(
            record, mode=mode, state=State.PENDING, created_ms=record.created_ms or self._clock.now_ms(), made=0
        )

        def added(standing: Record | None) -> Record:
            if standing is not None:
                raise RecordExists(record.id, "exists already; release it, or choose another id", reason="duplicate")
            return new

        limits = Limits(settings.max_protection_records, settings.max_protection_spans)
        return _standing(self._ledger.change(record.id, added, limits))

    def look(self, record: Record) -> Verdict:
        """To be read after the record is there."""
        earliest = max(
            (each.for_readers for each in self._thresholds.of_tables(self._tables(record)).values()), default=0
        )
        return Verdict(True) if record.ts >= earliest else Verdict(False, earliest)

    def accept(self, record: Record) -> None:
        self._ledger.change(
            record.id, lambda standing: replace(_same(record, standing), state=State.ACCEPTED, transaction=None)
        )

    def renew(self, record: Record) -> Record:
        """It is needed anew: whoever has decided about it as it was before must look again."""

        def younger(standing: Record | None) -> Record:
            now = _same(record, standing)
            return replace(now, created_ms=max(self._clock.now_ms(), now.created_ms + 1))

        return _standing(self._ledger.change(record.id, younger))

    def drop(self, record: Record) -> None:
        """This one, and not another that somebody has made since under the same name."""
        self._ledger.change(record.id, lambda standing: standing if standing and standing.made != record.made else None)

    def announce_release(self, record_id: str, transaction: int) -> Record:
        """It holds until that transaction has committed."""

        def announced(standing: Record | None) -> Record:
            now = _named(record_id, standing)
            if now.released_by not in (None, transaction) or now.transaction is not None:
                raise RecordChanged(record_id)
            return replace(now, released_by=transaction)

        return _standing(self._ledger.change(record_id, announced))

    def keep(self, record: Record) -> None:
        """It is not released after all."""
        self._ledger.change(
            record.id,
            lambda standing: (
                replace(standing, released_by=None)
                if standing and standing.released_by == record.released_by
                else standing
            ),
        )

    def _verified(self, pending: Record) -> Verdict:
        try:
            verdict = self.look(pending)
        except UnknownTable:
            self.drop(pending)
            raise
        if verdict.accepted:
            self.accept(pending)
            return verdict
        standing = self._ledger.change(pending.id, lambda standing: _unless_pending(pending, standing))
        return Verdict(True) if standing and standing.made == pending.made else verdict

    def _arrived(self, moving: Record) -> Verdict:
        """What an *after* record keeps includes everything that it keeps at a later timestamp: that may always move."""
        ts = moving.timestamps[-1]
        try:
            verdict = self.look(replace(moving, ts=ts))
        except UnknownTable:
            self._ledger.change(moving.id, lambda standing: _at_rest(moving, standing, stays=True))
            raise
        verdict = Verdict(True) if moving.mode is Mode.AFTER else verdict
        stays = not verdict.accepted
        standing = _standing(self._ledger.change(moving.id, lambda standing: _at_rest(moving, standing, stays)))
        return Verdict(True) if standing.ts == ts else verdict

    def _check_tables(self, record: Record) -> None:
        if not record.targets:
            raise BadValue("targets", "name at least one table or row range to protect")
        for target in record.targets:
            checked_rows(target.rows, "targets")
        tables = self._tables(record)
        for target in record.targets:
            if target.is_pattern and not target.among(tables):
                raise BadValue(
                    "targets",
                    f"{target.table} matches no table; 'sweepflow tables list' shows those there are",
                    reason="no_match",
                )
        self._thresholds.of_tables(tables)

    def _tables(self, record: Record) -> set[TableRef]:
        """Those that are named, and those that exist and match a pattern. One that is made later holds nothing that the
        record's timestamp could show."""
        named = {target.table for target in record.targets if not target.is_pattern}
        patterns = [target for target in record.targets if target.is_pattern]
        existing = self._store.tables() if patterns else {}
        return named.union(*(target.among(existing) for target in patterns))


def _check_described(record: Record) -> None:
    if not 0 < len(record.id) <= _LONGEST_ID or not record.id.isprintable():
        raise BadValue("id", f"must have 1 to {_LONGEST_ID} printable characters")
    if sum(len(key) + len(value) for key, value in record.meta.items()) > _MOST_META_CHARACTERS:
        raise BadValue(
            "meta", f"has more than {_MOST_META_CHARACTERS} characters; keep details elsewhere, and their key here"
        )
    if not record.meta_type:
        raise BadValue("meta_type", "must name the kind of the record's owner, manual if it is a person")


def _named(record_id: str, standing: Record | None) -> Record:
    if standing is None:
        raise UnknownRecord(record_id)
    return standing


def _standing(record: Record | None) -> Record:
    if record is None:
        raise AssertionError("a change that leaves a record left none")
    return record


def _same(record: Record, standing: Record | None) -> Record:
    """One that was released while it was being verified must not be reported as holding, nor another in its place."""
    if standing is None or standing.made != record.made:
        raise RecordReleased(record.id)
    return standing


def _unless_pending(refused: Record, standing: Record | None) -> Record | None:
    """Whoever else has verified it did so before a sweep went past, and may have said so: then it stands."""
    if standing and standing.made == refused.made and standing.state is State.PENDING:
        return None
    return standing


def _moving(record: Record, standing: Record | None, ts: int) -> Record:
    """Holding both timestamps. A move that somebody else left unfinished is taken over, and will notice. One that is
    still being verified can't move: whoever verifies it speaks of where it was."""
    now = _same(record, standing)
    if now.state is State.PENDING:
        raise RecordChanged(record.id)
    if ts < now.ts:
        raise BadValue("ts", f"{ts} lies before {now.ts}; a record moves forward only", reason="backwards")
    return replace(now, held_ts=ts)


def _at_rest(moving: Record, standing: Record | None, stays: bool) -> Record:
    """At the new timestamp, or back to the old one alone; but only if ours is still the move under way: what another
    one put in its place may have let go of the timestamp that we verified."""
    record, ts = _same(moving, standing), moving.timestamps[-1]
    if record.held_ts is None and record.ts == ts:
        return record  # somebody has settled it
    if record.held_ts != ts or ts < record.ts:
        raise RecordChanged(record.id)
    if stays:
        return replace(record, held_ts=None)
    origin = record.ts if record.origin_ts is None else record.origin_ts
    return replace(record, ts=ts, held_ts=None, origin_ts=origin)
