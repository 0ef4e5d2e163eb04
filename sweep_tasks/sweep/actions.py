"""Applies a plan to the store, in the safe order: sentinels, then tombstones, then delete markers.

A sentinel must be stored before the versions that it stands for are removed. Otherwise a reader in between would find
nothing and take that as the result.

Where the newest version of a cell stays, it hides what an unavailable replica still holds below it. A removed delete
marker hides nothing any more: such a replica would bring the old value back when the tombstones are purged. So the
versions below a marker are removed first, on every replica, and the marker only after every replica has confirmed that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.parking import HoldReason, Parking
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.rules import Entry, Marker, Plan, Removal, TableView, after_check, plan
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.deletions import DeleteKind, DeleteTally
from sweep_tasks.transactions.outcomes import ABORTED

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Applied:
    """What was written to the store. Cells are counted once."""

    sentinels: dict[TableRef, set[Cell]] = field(default_factory=dict)
    ranged: dict[TableRef, set[Cell]] = field(default_factory=dict)
    aborted: int = 0
    waiting: list[Entry] = field(default_factory=list)
    """Delete markers whose removal was not confirmed by every replica. They must be retried."""
    deleted: DeleteTally = field(default_factory=DeleteTally)
    """Every tombstone and sentinel that was written, by token, if the store has a ring."""


class Actions:
    """Applies plans to a store, or only counts what it would do in a dry run."""

    def __init__(self, store: Store, dry_run: bool) -> None:
        self._store = store
        self._dry_run = dry_run

    def apply(self, plan: Plan, tables: Mapping[TableRef, TableView]) -> Applied:
        """Apply a plan. `tables` must be the views that the plan was made with."""
        self._resolve_checks(plan)
        done = Applied()
        for table, cells in plan.sentinels.items():
            done.sentinels[table] = set(cells)
            self._do(self._store.add_sentinels, table, cells)
            self._count(done, table, DeleteKind.SENTINELS, cells)
        for table, ranges in plan.ranges.items():
            done.ranged[table] = {each.cell for each in ranges}
            self._do(self._store.delete_ranges, table, ranges)
            self._count(done, table, DeleteKind.RANGES, (each.cell for each in ranges))
        for table, markers in plan.markers.items():
            self._remove_markers(table, markers, done)
        for table, versions in plan.exact.items():
            done.aborted += len(versions)
            self._do(self._store.delete_versions, table, versions)
            self._count(done, table, DeleteKind.VERSIONS, (cell for cell, _ in versions))
        if not self._dry_run:
            self._withdraw_sentinels(plan, tables)
        return done

    def _remove_markers(self, table: TableRef, markers: Collection[Marker], done: Applied) -> None:
        """Remove the versions below each marker, then the markers whose versions every replica has removed. The others
        wait."""
        unconfirmed = self._delete_everywhere(table, [each.below for each in markers])
        bare = [each for each in markers if each.below not in unconfirmed]
        remaining = self._delete_everywhere(table, [each.itself for each in bare])
        for each in markers:
            if each.below in unconfirmed or each.itself in remaining:
                done.waiting.append(each.entry)
            else:
                done.ranged.setdefault(table, set()).add(each.entry.cell)
        for deleted in (markers, bare):
            self._count(done, table, DeleteKind.RANGES, (each.entry.cell for each in deleted))
        if unconfirmed or remaining:
            log.info(
                "delete markers are waiting for unavailable replicas",
                table=str(table),
                markers=len(unconfirmed) + len(remaining),
            )

    def _delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> set[VersionRange]:
        """Delete ranges on all replicas. Returns those that not every replica has confirmed."""
        if not ranges:
            return set()
        return set(self._do(self._store.delete_everywhere, table, ranges) or ())

    def _do(self, action: Callable[[TableRef, Any], T], table: TableRef, what: Any) -> T | None:
        """Run an action on the store. A table that was dropped since the plan was made is skipped."""
        if self._dry_run:
            return None
        try:
            return action(table, what)
        except UnknownTable:
            log.info("skipped a table that was dropped during the sweep", table=str(table))
            return None

    def _count(self, done: Applied, table: TableRef, kind: DeleteKind, cells: Iterable[Cell]) -> None:
        """Count what was written. Unconfirmed deletes count too, because some replicas have applied them."""
        tokens = None if self._dry_run else self._store.tokens(cell.row for cell in cells)
        if tokens:
            done.deleted.add(table, kind, tokens)

    def _resolve_checks(self, plan: Plan) -> None:
        """Turn the removals that depend on the stored versions into deletes, with one read for each table."""
        for table, removals in plan.to_check.items():
            versions = self._versions(table, {removal.range.cell for removal in removals})
            for removal in removals:
                ranges, sentinel = after_check(removal, versions.get(removal.range.cell, []))
                if sentinel:
                    plan.sentinels.setdefault(table, []).append(removal.range.cell)
                if ranges and removal.marker:
                    plan.markers.setdefault(table, []).append(removal.marker)
                elif ranges:
                    plan.ranges.setdefault(table, []).extend(ranges)

    def _versions(self, table: TableRef, cells: set[Cell]) -> dict[Cell, list[int]]:
        try:
            return self._store.timestamps(table, cells)
        except UnknownTable:
            return {}

    def _withdraw_sentinels(self, plan: Plan, tables: Mapping[TableRef, TableView]) -> None:
        """Remove sentinels from tables that were truncated since the plan was made: they were written after the
        truncation. A truncation that is still in progress comes after these sentinels, and removes them itself.
        """
        now = self._store.tables(plan.sentinels.keys()) if plan.sentinels else {}
        for table, cells in plan.sentinels.items():
            if table in now and now[table].mark > tables[table].mark:
                self._delete_lone_sentinels(table, cells)

    def _delete_lone_sentinels(self, table: TableRef, cells: Iterable[Cell]) -> None:
        empty = [Removal(VersionRange(cell, 0, 0), False, True) for cell in cells]
        versions = self._versions(table, {each.range.cell for each in empty})
        ranges = [range_ for each in empty for range_ in after_check(each, versions.get(each.range.cell, []))[0]]
        if ranges:
            self._do(self._store.delete_ranges, table, ranges)


def delete_aborted(
    store: Store, view: SweepView, strategy: SweepStrategy, shard: int, progress: int, aborted: Collection[int]
) -> DeleteTally:
    """Delete versions of aborted transactions in the partition that the progress is in, and return what was written.

    An entry that is added below the progress is found as long as its transaction is undecided. If a reader rolls the
    transaction back before the sweep reads it, the entry looks as if it had been judged, but its versions were never
    deleted. So before a partition is completed, the versions of its aborted transactions are deleted once more, which
    is always safe. Those of a paused table are parked instead, because the queue is about to be cleaned.
    """
    partition = progress // FINE
    batch = QueueReader(store, strategy, shard).all_of(partition, partition * FINE, progress + 1)
    entries = [raw for raw in batch.entries if raw.start in aborted]
    readable, _ = view.decoded(entries, dict.fromkeys(aborted, ABORTED), strategy, shard)
    decided = plan(readable, strategy, view.tables, Protections.none(), 0)
    paused = [entry for entry in decided.parked if entry.hold.why is HoldReason.PAUSED]
    Parking(store, TimestampService(store), strategy, shard).park(paused)
    return Actions(store, dry_run=False).apply(Plan(exact=decided.exact), view.tables).deleted
