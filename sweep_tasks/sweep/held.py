"""What a protection holds back: entries that wait under it, and the versions that would go if it were gone.

Entries are found where sweeps parked them. A record that has moved has some under timestamps where it no longer stands;
whether it still holds those is asked as a sweep asks. Which versions wait for it alone is asked of the sweep's own
rules: what may go of a cell with all records, and with all but this one. Two records may hold a version together, and
then neither holds it alone.

Bounded: of each record so many entries are looked at, and of what waits for them so many versions; where that was not
all, the figures are the least that it can be.
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
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_TS, Cell, Span, SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections, Record
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking, Why
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.chunks import chunks
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.rules import Entry, doomed, holding, too_young
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService

MOST = 10_000
_PAGE = 1_000
_PROTECTED = Span(bytes([Why.PROTECTED]), bytes([Why.PROTECTED + 1]))


class Held(NamedTuple):
    entries: int = 0
    versions: int = 0
    bytes: int = 0
    """Of their rows, columns and values."""
    at_least: bool = False
    """There is more than was looked at."""

    @property
    def blocking(self) -> bool:
        return self.entries > 0


@dataclass(slots=True)
class _Found:
    """What is parked under one record: what waits for it, and what it has moved past, which the next sweep takes up."""

    parked: list[tuple[SweepStrategy, ParkedEntry]] = field(default_factory=list)
    waiting: int = 0
    full: bool = False


@dataclass(slots=True)
class _Goes:
    """What may go of a cell, as things stand and without the record: from a first version up to the greatest end."""

    now: dict[int, int] = field(default_factory=dict)
    then: dict[int, int] = field(default_factory=dict)

    def freed(self, versions: Iterable[int]) -> list[int]:
        return [ts for ts in versions if _within(ts, self.then) and not _within(ts, self.now)]


class HeldBack:
    def __init__(self, store: Store, most: int = MOST, clock: Clock | None = None, longest_s: float = math.inf) -> None:
        """`longest_s`: look at no further shard once that is over, for whoever waits in front of a browser."""
        self._store = store
        self._most = most
        self._longest_s = longest_s
        self._clock = clock or SystemClock()

    def by_each(self, wanted: Collection[Record], records: Collection[Record]) -> dict[str, Held]:
        """For each of the records wanted, by id; `records` are all that there are."""
        found = {record.id: _Found() for record in wanted}
        standing = Protections(records)
        within = _under(next(iter(found))) if len(found) == 1 else _PROTECTED
        began = time.monotonic()
        for strategy, shard in Progress(self._store).all() if found else ():
            if time.monotonic() - began > self._longest_s:
                for each in found.values():
                    each.full = True
                break
            parking = Parking(self._store, TimestampService(self._store), strategy, shard)
            self._gather(parking, strategy, within, found, standing)
        view = SweepView.published(self._store, Horizon(MAX_TS, self._clock.now_ms()), dry_run=True)
        return {name: self._weighed(name, each, standing, view) for name, each in found.items()}

    def _gather(
        self, parking: Parking, strategy: SweepStrategy, within: Span, found: dict[str, _Found], standing: Protections
    ) -> None:
        """A page at a time, passing over what is parked under records that nobody asked about or that have enough."""
        after = b""
        while entries := parking.page(after, min(_PAGE, self._most + 1), within).entries:
            for name, under in groupby(entries, key=lambda entry: entry.hold.record):
                if name in found:
                    self._take(found[name], strategy, under, standing)
            last = entries[-1]
            read_on = last.hold.record in found and not found[last.hold.record].full
            after = last.column() if read_on else _under(last.hold.record).end

    def _take(
        self, found: _Found, strategy: SweepStrategy, under: Iterable[ParkedEntry], standing: Protections
    ) -> None:
        for entry in under:
            if len(found.parked) == self._most:
                found.full = True
                return
            found.parked.append((strategy, entry))
            found.waiting += entry.commit >= standing.frees_below(entry.hold.record, entry.hold.record_ts)

    def _weighed(self, name: str, found: _Found, standing: Protections, view: SweepView) -> Held:
        held = Held(found.waiting, at_least=found.full)
        by_table: dict[TableRef, dict[Cell, _Goes]] = {}
        for strategy, parked in found.parked:
            table = view.name_of(parked.table_id)
            known = view.tables.get(table) if table else None
            if table is None or known is None or known.strategy is SweepStrategy.NOTHING:
                continue
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            if not too_young(entry, known):
                goes = by_table.setdefault(table, {}).setdefault(entry.cell, _Goes())
                _add(goes, entry, strategy, name, standing)
        for table, cells in by_table.items():
            with suppress(UnknownTable):  # dropped by force at this moment: nothing is left to hold
                held = self._read(held, table, cells)
        return held

    def _read(self, held: Held, table: TableRef, cells: dict[Cell, _Goes]) -> Held:
        """Many cells at a time; of a cell with many versions one after another."""
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
    """The columns of everything parked under a record, wherever it stood."""
    first, last = (Hold(Why.PROTECTED, record=record_id, record_ts=ts) for ts in (0, MAX_TS))
    return Span(first.encoded(), Parking.behind(last))


def _add(goes: _Goes, entry: Entry, strategy: SweepStrategy, name: str, standing: Protections) -> None:
    covering = standing.covering(entry.table, entry.cell.row)
    others = [protection for protection in covering if protection.record != name]
    for ends, these in ((goes.now, covering), (goes.then, others)):
        gone = doomed(entry, holding(these, entry.commit), strategy)
        if gone:
            ends[gone.first] = max(gone.end, ends.get(gone.first, gone.end))


def _within(ts: int, ends: dict[int, int]) -> bool:
    return any(first <= ts < end for first, end in ends.items())
