"""Computes what a protection holds back: the entries parked under it, and the versions that its release would free.

Entries are found where sweeps parked them. A record that has moved also has entries under its former timestamps; as in
a sweep, it is checked whether it still holds those. The versions that wait for this record alone are computed with the
sweep's own rules: what is removable with all records, and with all but this one. A version held by two records is held
by neither alone.

The work is bounded: a limited number of entries of each record is read, and a limited number of versions. If there are
more, the numbers are a lower bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_TS, Cell, Span, SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections, Record
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry, Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store, chunks
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.rules import Entry, removable, too_young
from sweep_tasks.sweep.view import SweepView

MOST = 10_000
_PAGE = 1_000
_PROTECTED = Span(bytes([HoldReason.PROTECTED]), bytes([HoldReason.PROTECTED + 1]))


class HeldByRecord(NamedTuple):
    entries: int = 0
    versions: int = 0
    bytes: int = 0
    """The size of the rows, columns and values of these versions."""
    at_least: bool = False
    """There is more than was read."""

    @property
    def blocking(self) -> bool:
        return self.entries > 0


@dataclass(slots=True)
class _Found:
    """The entries parked under one record. It may have moved past some of them: the next sweep processes those."""

    parked: list[tuple[SweepStrategy, ParkedEntry]] = field(default_factory=list)
    waiting: int = 0
    full: bool = False


@dataclass(slots=True)
class _Removable:
    """The removable versions of a cell, with the record and without it: ends of ranges by their first version."""

    held: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)

    def freed(self, versions: Iterable[int]) -> list[int]:
        return [ts for ts in versions if _within(ts, self.released) and not _within(ts, self.held)]


class HeldBack:
    def __init__(self, store: Store, most: int = MOST, clock: Clock | None = None, longest_s: float = math.inf) -> None:
        """After `longest_s` no further shard is read, for a user who waits in a browser."""
        self._store = store
        self._most = most
        self._longest_s = longest_s
        self._clock = clock or SystemClock()

    def per_record(self, wanted: Collection[Record], records: Collection[Record]) -> dict[str, HeldByRecord]:
        """Return what each of the records wanted holds back, by id. `records` are all records."""
        found = {record.id: _Found() for record in wanted}
        existing = Protections(records)
        within = _under(next(iter(found))) if len(found) == 1 else _PROTECTED
        began = time.monotonic()
        for strategy, shard in Progress(self._store).all() if found else ():
            if time.monotonic() - began > self._longest_s:
                for each in found.values():
                    each.full = True
                break
            parking = Parking(self._store, TimestampService(self._store), strategy, shard)
            self._gather(parking, strategy, within, found, existing)
        view = SweepView.publish(self._store, Horizon(MAX_TS, self._clock.now_ms()), dry_run=True)
        return {name: self._measure(name, each, existing, view) for name, each in found.items()}

    def _gather(
        self, parking: Parking, strategy: SweepStrategy, within: Span, found: dict[str, _Found], existing: Protections
    ) -> None:
        """Collect parked entries page by page, skipping records that are not wanted or have reached the limit."""
        after = b""
        while entries := parking.page(after, min(_PAGE, self._most + 1), within).entries:
            for name, under in groupby(entries, key=lambda entry: entry.hold.record):
                if name in found:
                    self._take(found[name], strategy, under, existing)
            last = entries[-1]
            read_on = last.hold.record in found and not found[last.hold.record].full
            after = last.column() if read_on else _under(last.hold.record).end

    def _take(
        self, found: _Found, strategy: SweepStrategy, under: Iterable[ParkedEntry], existing: Protections
    ) -> None:
        for entry in under:
            if len(found.parked) == self._most:
                found.full = True
                return
            found.parked.append((strategy, entry))
            found.waiting += entry.commit >= existing.frees_below(entry.hold.record, entry.hold.record_ts)

    def _measure(self, name: str, found: _Found, existing: Protections, view: SweepView) -> HeldByRecord:
        held = HeldByRecord(found.waiting, at_least=found.full)
        by_table: dict[TableRef, dict[Cell, _Removable]] = {}
        for strategy, parked in found.parked:
            table = view.name_of(parked.table_id)
            known = view.tables.get(table) if table else None
            if table is None or known is None or known.strategy is SweepStrategy.NOTHING:
                continue
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            if not too_young(entry, known):
                of_cell = by_table.setdefault(table, {}).setdefault(entry.cell, _Removable())
                _add(of_cell, entry, strategy, name, existing)
        for table, cells in by_table.items():
            with suppress(UnknownTable):  # dropped meanwhile: nothing is left to hold
                held = self._read(held, table, cells)
        return held

    def _read(self, held: HeldByRecord, table: TableRef, cells: dict[Cell, _Removable]) -> HeldByRecord:
        """Count the versions and their bytes: many cells at a time, the versions of one cell one after the other."""
        for some in chunks(cells, _PAGE):
            present = self._store.timestamps(table, some)
            left = {cell: cells[cell].freed(versions) for cell, versions in present.items()}
            while left := {cell: versions for cell, versions in left.items() if versions}:
                if held.versions >= self._most:
                    return held._replace(at_least=True)
                asked = islice(left.items(), self._most - held.versions)
                read = self._store.get(table, {cell: versions.pop() + 1 for cell, versions in asked})
                size = sum(len(cell.row) + len(cell.column) + len(version.value) for cell, version in read.items())
                held = held._replace(versions=held.versions + len(read), bytes=held.bytes + size)
        return held


def _under(record_id: str) -> Span:
    """Return the columns of everything parked under a record, at any of its timestamps."""
    first, last = (Hold(HoldReason.PROTECTED, record=record_id, record_ts=ts) for ts in (0, MAX_TS))
    return Span(first.encoded(), Parking.behind(last))


def _add(of_cell: _Removable, entry: Entry, strategy: SweepStrategy, name: str, existing: Protections) -> None:
    held_by = existing.holding(entry.table, entry.cell.row, entry.commit)
    others = existing.holding_in_order(entry.table, entry.cell.row, entry.commit)
    without = next((held for held in others if held.record != name), None)
    for ends, limit in ((of_cell.held, held_by), (of_cell.released, without)):
        range_ = removable(entry, limit, strategy)
        if range_:
            ends[range_.first] = max(range_.end, ends.get(range_.first, range_.end))


def _within(ts: int, ends: dict[int, int]) -> bool:
    return any(first <= ts < end for first, end in ends.items())
