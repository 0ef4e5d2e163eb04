"""The rules of a sweep: which versions an entry of the queue makes removable. Pure: entries in, a plan out.

The in-process engine, the Spark job, the legacy sweep and `explain` all decide with these functions.

An entry says that a transaction wrote a cell at `start` and committed at `commit`, below the sweep timestamp. Versions
of that cell that started before it are hidden from every reader at or above the sweep timestamp. They are removable,
unless a protection at p ≤ commit covers the cell: a reader at p does not see the entry, but an older version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep_tasks.model import SENTINEL_TS, Cell, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Mode, Protection, Protections
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry
from sweep_tasks.transactions.outcomes import ABORTED


class Entry(NamedTuple):
    """A queued write whose transaction has ended: `commit` is a timestamp, or -1 if it was aborted."""

    table: TableRef
    table_id: int
    cell: Cell
    start: int
    commit: int
    delete: bool


class TableView(NamedTuple):
    """The properties of a table that a sweep decides with, read after it published its threshold."""

    strategy: SweepStrategy
    mark: int = 0
    """Every version that started below the mark was truncated, or belonged to a dropped table of the same name."""
    horizon: int | None = None
    """The sweep timestamp of this table, if it has a retention of its own."""
    check_first: bool = False
    """Read which versions are stored before deleting, to write no tombstone where there is nothing to delete."""
    paused: bool = False
    """Nothing is removed from a paused table. Its entries are parked until it is resumed."""


class Marker(NamedTuple):
    """A delete marker to remove together with all versions below it. The marker is the newest version of its cell, so
    it may be removed only when no replica holds a version that it hides."""

    entry: Entry
    below: VersionRange

    @property
    def itself(self) -> VersionRange:
        return VersionRange(self.entry.cell, self.entry.start, self.entry.start + 1)


class Removal(NamedTuple):
    """A range of removable versions, and how to remove it."""

    range: VersionRange
    sentinel: bool
    """Write a sentinel first, so that readers of the removed versions fail instead of reading nothing."""
    truncated: bool
    """The versions are below the truncation mark. They are removed only if some are stored, without a sentinel."""
    marker: Marker | None = None
    """Set if the range ends with a delete marker, which is removed last."""


@dataclass(slots=True)
class Plan:
    """What a sweep does to the store for some entries, by table."""

    sentinels: dict[TableRef, list[Cell]] = field(default_factory=dict)
    ranges: dict[TableRef, list[VersionRange]] = field(default_factory=dict)
    markers: dict[TableRef, list[Marker]] = field(default_factory=dict)
    to_check: dict[TableRef, list[Removal]] = field(default_factory=dict)
    """Removals that depend on which versions are stored."""
    exact: dict[TableRef, list[tuple[Cell, int]]] = field(default_factory=dict)
    parked: list[ParkedEntry] = field(default_factory=list)


def plan(
    entries: Iterable[Entry],
    strategy: SweepStrategy,
    tables: Mapping[TableRef, TableView],
    protections: Protections,
    grace_until_ms: int,
) -> Plan:
    """Decide what to do for some entries. Of each cell, and of each segment between two protections, only the entry
    with the greatest start acts: its removal includes those of the others."""
    result = Plan()
    acting: dict[tuple[TableRef, Cell, Protection | None], Entry] = {}
    for entry in entries:
        view = tables.get(entry.table)
        if view is None or view.strategy is SweepStrategy.NOTHING:
            continue
        if view.paused and (entry.commit == ABORTED or too_young(entry, view)):
            result.parked.append(parked(entry, _until_resumed(entry)))
        elif entry.commit == ABORTED:
            result.exact.setdefault(entry.table, []).append((entry.cell, entry.start))
            result.parked.append(parked(entry, Hold(HoldReason.GRACE, until_ms=grace_until_ms)))
        elif too_young(entry, view):
            result.parked.append(parked(entry, Hold(HoldReason.RETENTION, table_id=entry.table_id)))
        else:
            key = (entry.table, entry.cell, holder(entry, view, protections))
            current = acting.get(key)
            if current is None or entry.start > current.start:
                acting[key] = entry
    holds: dict[Protection, Hold] = {}
    for (_, _, held_by), entry in acting.items():
        hold = None
        if held_by is not None:
            hold = holds.get(held_by)
            if hold is None:
                hold = holds[held_by] = Hold(HoldReason.PROTECTED, record=held_by.record, record_ts=held_by.ts)
        _act(result, entry, held_by, hold, strategy, tables[entry.table])
    return result


def is_truncated(start: int, view: TableView) -> bool:
    """Return True if a version was truncated. No retention and no protection keeps a truncated version."""
    return start < view.mark


def truncated(cell: Cell, view: TableView) -> Removal:
    """Return the removal of all versions of a cell below the truncation mark."""
    return Removal(VersionRange(cell, 0, view.mark), sentinel=False, truncated=True)


def too_young(entry: Entry, view: TableView) -> bool:
    """Return True if the table's own retention still keeps the versions below this entry."""
    return view.horizon is not None and entry.commit >= view.horizon and not is_truncated(entry.start, view)


def holder(entry: Entry, view: TableView, protections: Protections) -> Protection | None:
    """Return the protection that limits what this entry removes, if there is one."""
    if is_truncated(entry.start, view):
        return None
    return protections.holding(entry.table, entry.cell.row, entry.commit)


def segment(entry: Entry, view: TableView | None, protections: Protections) -> str:
    """Return the name of the entry's segment: of the entries of a cell with the same segment, only the greatest start
    acts. An entry that is judged alone, because it was aborted or is too young, has a segment of its own."""
    if view is None:
        return ""
    if entry.commit == ABORTED or too_young(entry, view):
        return f"start {entry.start}"
    held_by = holder(entry, view, protections)
    return f"{held_by.mode} {held_by.ts} {held_by.record}" if held_by else ""


def may_be_divided(table: TableRef, view: TableView | None, protections: Protections) -> bool:
    """Return True if entries of some cell of a table may be in several segments, apart from aborted ones."""
    return view is not None and (view.horizon is not None or protections.protects(table))


def may_divide(table: TableRef, row: bytes, commit: int, view: TableView, protections: Protections) -> bool:
    """Return True if entries of one cell that committed up to `commit` may be in several segments, so that more than
    one may act."""
    return (view.horizon is not None and commit >= view.horizon) or protections.holding(table, row, commit) is not None


def removable(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
    """Return the range of versions that this entry makes removable."""
    if held_by is not None:
        if held_by.mode is Mode.AFTER or held_by.ts >= entry.start:
            return None
        return VersionRange(entry.cell, held_by.ts, entry.start)
    if strategy is SweepStrategy.CONSERVATIVE:
        return VersionRange(entry.cell, 0, entry.start)
    return VersionRange(entry.cell, SENTINEL_TS, entry.start + entry.delete)


def parked(entry: Entry, hold: Hold) -> ParkedEntry:
    """Return an entry as it is parked under a hold."""
    return ParkedEntry(hold, entry.table_id, entry.cell, entry.start, entry.commit, entry.delete)


def _until_resumed(entry: Entry) -> Hold:
    return Hold(HoldReason.PAUSED, table_id=entry.table_id)


def after_check(removal: Removal, versions: list[int]) -> tuple[list[VersionRange], bool]:
    """Return the ranges to delete, given the stored versions of the cell, and whether to write a sentinel before.

    A truncated cell gets no sentinel. If a sentinel is all that would be left of it, the sentinel is removed too.
    """
    cell, first, end = removal.range
    hit = [ts for ts in versions if first <= ts < end]
    ranges = [removal.range] if hit else []
    left = [ts for ts in versions if not first <= ts < end]
    if removal.truncated and left == [SENTINEL_TS]:
        ranges.append(VersionRange(cell, SENTINEL_TS, SENTINEL_TS + 1))
    return ranges, bool(hit) and removal.sentinel


def removal_for(entry: Entry, held_by: Protection | None, strategy: SweepStrategy, view: TableView) -> Removal | None:
    """Return what this entry removes, and how: with a sentinel, or with the delete marker that the entry itself is. For
    a truncated entry, that is everything below the mark; readers ignore what a replica may still hold of it."""
    if is_truncated(entry.start, view):
        return truncated(entry.cell, view)
    versions = removable(entry, held_by, strategy)
    if versions is None:
        return None
    sentinel = held_by is None and strategy is SweepStrategy.CONSERVATIVE
    marker = Marker(entry, versions._replace(end=entry.start)) if versions.end > entry.start else None
    return Removal(versions, sentinel, False, marker)


def _act(
    result: Plan,
    entry: Entry,
    held_by: Protection | None,
    hold: Hold | None,
    strategy: SweepStrategy,
    view: TableView,
) -> None:
    if view.paused:
        result.parked.append(parked(entry, _until_resumed(entry)))
        return
    if hold is not None:
        result.parked.append(parked(entry, hold))
    removal = removal_for(entry, held_by, strategy, view)
    if removal is None:
        return
    if removal.truncated or view.check_first:
        result.to_check.setdefault(entry.table, []).append(removal)
        return
    if removal.sentinel:
        result.sentinels.setdefault(entry.table, []).append(entry.cell)
    if removal.marker:
        result.markers.setdefault(entry.table, []).append(removal.marker)
    else:
        result.ranges.setdefault(entry.table, []).append(removal.range)
