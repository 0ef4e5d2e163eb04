"""What happens to an entry of the queue. Pure: entries in, a plan out.

The same few lines decide for the in-process engine, the Spark job, the legacy sweep and `explain`.

An entry says that a transaction wrote a cell at `start` and committed at `commit`, below the sweep timestamp. Whatever
started before it in that cell is hidden from every reader at or above the sweep timestamp, and may go, unless a
protection at p ≤ commit covers the cell: then a reader at p does not see the entry but something older.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep_tasks.model import SENTINEL_TS, Cell, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Mode, Protection, Protections
from sweep_tasks.queue.parking import Hold, ParkedEntry, Why
from sweep_tasks.transactions.commits import ABORTED


class Entry(NamedTuple):
    """A queued write whose transaction is decided: `commit` is a timestamp or -1."""

    table: TableRef
    table_id: int
    cell: Cell
    start: int
    commit: int
    delete: bool


class TableView(NamedTuple):
    """What a sweep knows of a table, as read after it published."""

    strategy: SweepStrategy
    mark: int = 0
    """Everything that started before this was truncated."""
    horizon: int | None = None
    """How far a table with a retention of its own is swept."""
    look_first: bool = False
    paused: bool = False
    """Nothing of it goes; its entries wait until somebody resumes it."""


class Marker(NamedTuple):
    """A delete marker that goes with everything below it. The marker is the cell's newest version: it may go only when
    nothing that it hides is left at any copy."""

    entry: Entry
    below: VersionRange

    @property
    def itself(self) -> VersionRange:
        return VersionRange(self.entry.cell, self.entry.start, self.entry.start + 1)


class Looked(NamedTuple):
    """A range to delete only as far as something is there; a sentinel only if it is, where one is due."""

    range: VersionRange
    sentinel: bool
    truncated: bool
    marker: Marker | None = None
    """What the range is deleted as, if it takes a delete marker along."""


@dataclass(slots=True)
class Plan:
    sentinels: dict[TableRef, list[Cell]] = field(default_factory=dict)
    ranges: dict[TableRef, list[VersionRange]] = field(default_factory=dict)
    markers: dict[TableRef, list[Marker]] = field(default_factory=dict)
    looked: dict[TableRef, list[Looked]] = field(default_factory=dict)
    exact: dict[TableRef, list[tuple[Cell, int]]] = field(default_factory=dict)
    parked: list[ParkedEntry] = field(default_factory=list)


def plan(
    entries: Iterable[Entry],
    strategy: SweepStrategy,
    tables: Mapping[TableRef, TableView],
    protections: Protections,
    grace_until_ms: int,
) -> Plan:
    """Per cell and segment between protections only the greatest start acts: it covers all below it."""
    result = Plan()
    acting: dict[tuple[int, Cell, Protection | None], Entry] = {}
    for entry in entries:
        view = tables.get(entry.table)
        if view is None or view.strategy is SweepStrategy.NOTHING:
            continue
        if view.paused and (entry.commit == ABORTED or too_young(entry, view)):
            result.parked.append(parked(entry, _until_resumed(entry)))
        elif entry.commit == ABORTED:
            result.exact.setdefault(entry.table, []).append((entry.cell, entry.start))
            result.parked.append(parked(entry, Hold(Why.GRACE, until_ms=grace_until_ms)))
        elif too_young(entry, view):
            result.parked.append(parked(entry, Hold(Why.RETENTION, table_id=entry.table_id)))
        else:
            key = (entry.table_id, entry.cell, holder(entry, protections))
            standing = acting.get(key)
            if standing is None or entry.start > standing.start:
                acting[key] = entry
    for (_, _, held_by), entry in acting.items():
        _act(result, entry, held_by, strategy, tables[entry.table])
    return result


def too_young(entry: Entry, view: TableView) -> bool:
    return view.horizon is not None and entry.commit >= view.horizon


def holder(entry: Entry, protections: Protections) -> Protection | None:
    if not protections.protects(entry.table):
        return None
    return holding(protections.covering(entry.table, entry.cell.row), entry.commit)


def segment(entry: Entry, view: TableView | None, protections: Protections) -> str:
    """Names those entries of a cell of which only the greatest start acts. Whatever is judged by itself, because it was
    aborted or is too young, has a segment of its own."""
    if view is None:
        return ""
    if entry.commit == ABORTED or too_young(entry, view):
        return f"start {entry.start}"
    held_by = holder(entry, protections)
    return f"{held_by.mode} {held_by.ts} {held_by.record}" if held_by else ""


def holding(protections: Iterable[Protection], commit: int) -> Protection | None:
    """The protection that an entry answers to: any *after* at or below its commit, else the greatest *at*."""
    below = [protection for protection in protections if protection.ts <= commit]
    return max((p for p in below if p.mode is Mode.AFTER), default=None) or max(below, default=None)


def doomed(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
    """The versions that may go because of this entry."""
    if held_by is not None:
        if held_by.mode is Mode.AFTER or held_by.ts >= entry.start:
            return None
        return VersionRange(entry.cell, held_by.ts, entry.start)
    if strategy is SweepStrategy.CONSERVATIVE:
        return VersionRange(entry.cell, 0, entry.start)
    return VersionRange(entry.cell, SENTINEL_TS, entry.start + entry.delete)


def parked(entry: Entry, hold: Hold) -> ParkedEntry:
    return ParkedEntry(hold, entry.table_id, entry.cell, entry.start, entry.commit, entry.delete)


def _until_resumed(entry: Entry) -> Hold:
    return Hold(Why.PAUSED, table_id=entry.table_id)


def after_looking(look: Looked, versions: list[int]) -> tuple[list[VersionRange], bool]:
    """What to delete of what is there, and whether a sentinel goes before it.

    A truncated table gets no sentinel back; if one is all that would be left of the cell, it goes as well.
    """
    cell, first, end = look.range
    hit = [ts for ts in versions if first <= ts < end]
    ranges = [look.range] if hit else []
    left = [ts for ts in versions if not first <= ts < end]
    if look.truncated and left == [SENTINEL_TS]:
        ranges.append(VersionRange(cell, SENTINEL_TS, SENTINEL_TS + 1))
    return ranges, bool(hit) and look.sentinel


def going(entry: Entry, held_by: Protection | None, strategy: SweepStrategy, view: TableView) -> Looked | None:
    """What goes because of this entry, and how: behind a sentinel, or with the delete marker that it is."""
    gone = doomed(entry, held_by, strategy)
    if gone is None:
        return None
    truncated = entry.start < view.mark
    sentinel = held_by is None and strategy is SweepStrategy.CONSERVATIVE and not truncated
    marker = Marker(entry, gone._replace(end=entry.start)) if gone.end > entry.start else None
    return Looked(gone, sentinel, truncated, marker)


def _act(result: Plan, entry: Entry, held_by: Protection | None, strategy: SweepStrategy, view: TableView) -> None:
    if view.paused:
        result.parked.append(parked(entry, _until_resumed(entry)))
        return
    if held_by is not None:
        hold = Hold(Why.PROTECTED, record=held_by.record, record_ts=held_by.ts)
        result.parked.append(parked(entry, hold))
    goes = going(entry, held_by, strategy, view)
    if goes is None:
        return
    if goes.truncated or view.look_first:
        result.looked.setdefault(entry.table, []).append(goes)
        return
    if goes.sentinel:
        result.sentinels.setdefault(entry.table, []).append(entry.cell)
    if goes.marker:
        result.markers.setdefault(entry.table, []).append(goes.marker)
    else:
        result.ranges.setdefault(entry.table, []).append(goes.range)
