"""What a plan does to the store, in the order that is safe: sentinels, then tombstones, delete markers last.

A sentinel must stand before the versions it speaks for are gone; otherwise a reader in between finds nothing at all
and takes that for the truth.

Where the newest version stays it hides whatever a copy that was missing still has below it. A delete marker that goes
hides nothing any more: such a copy would bring the old value back once the tombstones are purged. So what is below a
marker goes first, at every copy, and the marker only where every copy confirmed that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, TableRef, VersionRange
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.rules import Entry, Looked, Marker, Plan, TableView, after_looking
from sweep_tasks.sweep.tally import Kind, Tally
from sweep_tasks.timestamps.thresholds import Thresholds

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Applied:
    """What was done, by distinct cell where a cell counts once."""

    sentinels: dict[TableRef, set[Cell]] = field(default_factory=dict)
    ranged: dict[TableRef, set[Cell]] = field(default_factory=dict)
    aborted: int = 0
    waiting: list[Entry] = field(default_factory=list)
    """Delete markers that are not gone, with all they hid, at every copy: they must be tried again."""
    deleted: Tally = field(default_factory=Tally)
    """Every tombstone and sentinel that was written, where the store has a ring."""


class Actions:
    def __init__(self, store: Store, dry_run: bool) -> None:
        self._store = store
        self._thresholds = Thresholds(store)
        self._dry_run = dry_run

    def apply(self, plan: Plan, tables: Mapping[TableRef, TableView]) -> Applied:
        """`tables` is what the plan was made with."""
        self._look(plan)
        done = Applied()
        for table, cells in plan.sentinels.items():
            done.sentinels[table] = set(cells)
            self._do(self._store.add_sentinels, table, cells)
            self._count(done, table, Kind.SENTINELS, cells)
        for table, ranges in plan.ranges.items():
            done.ranged[table] = {each.cell for each in ranges}
            self._do(self._store.delete_ranges, table, ranges)
            self._count(done, table, Kind.RANGES, (each.cell for each in ranges))
        for table, markers in plan.markers.items():
            self._remove_markers(table, markers, done)
        for table, versions in plan.exact.items():
            done.aborted += len(versions)
            self._do(self._store.delete_versions, table, versions)
            self._count(done, table, Kind.VERSIONS, (cell for cell, _ in versions))
        if not self._dry_run:
            self._take_back_sentinels(plan, tables)
        return done

    def _remove_markers(self, table: TableRef, markers: Collection[Marker], done: Applied) -> None:
        """What is below first, and only where that is gone everywhere the marker. Who is not confirmed waits."""
        hidden = self._delete_everywhere(table, [each.below for each in markers])
        bare = [each for each in markers if each.below not in hidden]
        standing = self._delete_everywhere(table, [each.itself for each in bare])
        for each in markers:
            if each.below in hidden or each.itself in standing:
                done.waiting.append(each.entry)
            else:
                done.ranged.setdefault(table, set()).add(each.entry.cell)
        for gone in (markers, bare):
            self._count(done, table, Kind.RANGES, (each.entry.cell for each in gone))
        if hidden or standing:
            log.info("delete markers wait for replicas", table=str(table), markers=len(hidden) + len(standing))

    def _delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> set[VersionRange]:
        """Those that not every copy confirmed."""
        if not ranges:
            return set()
        return set(self._do(self._store.delete_everywhere, table, ranges) or ())

    def _do(self, action: Callable[[TableRef, Any], T], table: TableRef, what: Any) -> T | None:
        """A table dropped since the plan was made has nothing left to do anything to."""
        if self._dry_run:
            return None
        try:
            return action(table, what)
        except UnknownTable:
            log.info("a table was dropped while it was swept", table=str(table))
            return None

    def _count(self, done: Applied, table: TableRef, kind: Kind, cells: Iterable[Cell]) -> None:
        """What was not confirmed by every copy counts too: some have it."""
        tokens = None if self._dry_run else self._store.tokens(cell.row for cell in cells)
        if tokens:
            done.deleted.add(table, kind, tokens)

    def _look(self, plan: Plan) -> None:
        """Turn ranges to look into first into ranges to delete, one read of versions for each table."""
        for table, looked in plan.looked.items():
            versions = self._versions(table, {look.range.cell for look in looked})
            for look in looked:
                ranges, sentinel = after_looking(look, versions.get(look.range.cell, []))
                if sentinel:
                    plan.sentinels.setdefault(table, []).append(look.range.cell)
                if ranges and look.marker:
                    plan.markers.setdefault(table, []).append(look.marker)
                elif ranges:
                    plan.ranges.setdefault(table, []).extend(ranges)

    def _versions(self, table: TableRef, cells: set[Cell]) -> dict[Cell, list[int]]:
        try:
            return self._store.timestamps(table, cells)
        except UnknownTable:
            return {}

    def _take_back_sentinels(self, plan: Plan, tables: Mapping[TableRef, TableView]) -> None:
        """A table truncated since the plan was made must not keep sentinels that were written after it was emptied.

        A truncation whose mark is not published yet comes after our sentinels, and empties them itself.
        """
        now = self._thresholds.marks(list(plan.sentinels))
        for table, cells in plan.sentinels.items():
            if now[table] > tables[table].mark:
                self._delete_lone_sentinels(table, cells)

    def _delete_lone_sentinels(self, table: TableRef, cells: Iterable[Cell]) -> None:
        nothing = [Looked(VersionRange(cell, 0, 0), False, True) for cell in cells]
        versions = self._versions(table, {look.range.cell for look in nothing})
        ranges = [each for look in nothing for each in after_looking(look, versions.get(look.range.cell, []))[0]]
        if ranges:
            self._do(self._store.delete_ranges, table, ranges)
