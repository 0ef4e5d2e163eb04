"""Where the records are kept: in one row, each changed together with a count of them all, by compare-and-set.

The count has a version that every change moves. Whoever finds the version unmoved knows every record unchanged, and a
limit can't be passed by two who each saw room for one more.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import LimitExceeded, OutcomeUnknown, StoreBusy, StoreError
from sweep_tasks.model import Cell
from sweep_tasks.protection.records import Record, dump_record, load_record
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import PROTECTIONS

_ROW = b"records"
_META = b"meta"
_PREFIX = b"r:"
_ATTEMPTS = 60
_FIRST_PAUSE_S = 0.004
_LONGEST_PAUSE_S = 1.0


class Meta(NamedTuple):
    version: int = 0
    records: int = 0
    spans: int = 0


class Limits(NamedTuple):
    """0 is none."""

    records: int = 0
    spans: int = 0


NO_LIMITS = Limits()


class Ledger:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def metadata(self) -> Meta:
        cell = Cell(_ROW, _META)
        return _meta(self._store.read(PROTECTIONS, [cell]).get(cell))

    def state(self) -> tuple[Meta, dict[str, Record]]:
        """The count and all records, of the same moment."""
        found = self._read()
        return _meta(found.get(_META)), _records(found)

    def change(
        self, record_id: str, change: Callable[[Record | None], Record | None], limits: Limits = NO_LIMITS
    ) -> Record | None:
        """Replace one record by a function of it, which may be called several times; what stands afterwards."""
        column = _PREFIX + record_id.encode()
        for attempt in range(_ATTEMPTS):
            self._let_others_pass(attempt)
            found = self._read()
            old = load_record(record_id, found[column]) if column in found else None
            new = change(old)
            if new == old:
                return old
            meta = _counted(_meta(found.get(_META)), old, new, limits)
            if new:
                new = replace(new, version=meta.version, made=new.made or meta.version)
            if self._written({_META: _changed(found, _META, json.dumps(meta).encode()),
                              column: _changed(found, column, dump_record(new) if new else None)}):  # fmt: skip
                return new
        raise StoreBusy("protections: the records changed all the time while this one was written; try again")

    def recount(self) -> bool:
        """Whether the count was wrong; then it is right again."""
        for attempt in range(_ATTEMPTS):
            self._let_others_pass(attempt)
            found = self._read()
            meta, records = _meta(found.get(_META)), _records(found)
            right = meta._replace(records=len(records), spans=sum(len(each.targets) for each in records.values()))
            if right == meta:
                return False
            mended = json.dumps(right._replace(version=meta.version + 1)).encode()
            if self._written({_META: _changed(found, _META, mended)}):
                return True
        raise StoreBusy("protections: the records changed all the time while they were counted; try again")

    def _written(self, changes: dict[bytes, Change]) -> bool:
        """An answer that was lost is found by reading: a read sees what stands, and nobody else writes the same."""
        try:
            return self._store.compare_and_set(PROTECTIONS, _ROW, changes)
        except OutcomeUnknown as unknown:
            try:
                found = self._read()
            except StoreError:
                raise unknown from None
            return all(found.get(column) == change.new for column, change in changes.items() if column != _META)

    def _let_others_pass(self, attempt: int) -> None:
        """Of many who write at once one succeeds; the others wait, each for a time of its own."""
        if attempt > 1:
            self._clock.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)))  # noqa: S311

    def _read(self) -> dict[bytes, bytes]:
        return {cell.column: value for cell, value in self._store.read_rows(PROTECTIONS, [_ROW]).items()}


def _records(found: dict[bytes, bytes]) -> dict[str, Record]:
    names = ((column, column.removeprefix(_PREFIX).decode()) for column in found if column.startswith(_PREFIX))
    return {name: load_record(name, found[column]) for column, name in names}


def _changed(found: dict[bytes, bytes], column: bytes, new: bytes | None) -> Change:
    return Change(found.get(column), new)


def _counted(meta: Meta, old: Record | None, new: Record | None, limits: Limits) -> Meta:
    records = int(new is not None) - int(old is not None)
    spans = len(new.targets if new else ()) - len(old.targets if old else ())
    _check_limit("records", meta.records, records, limits.records)
    _check_limit("spans", meta.spans, spans, limits.spans)
    return Meta(meta.version + 1, meta.records + records, meta.spans + spans)


def _check_limit(what: str, used: int, more: int, limit: int) -> None:
    if limit and more > 0 and used + more > limit:
        raise LimitExceeded(what, used, more, limit)


def _meta(value: bytes | None) -> Meta:
    return Meta(*json.loads(value)) if value else Meta()
