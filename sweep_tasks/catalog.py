"""The tables of a store: created, listed, changed, emptied and dropped, in an order that keeps readers right.

Emptying or dropping a table removes what open snapshots could see. So a mark with a fresh timestamp is published
first: readers below it fail instead of finding nothing, and no write that started below it commits any more.

Another strategy is one change of the table's metadata: readers and writers answer to the old strategy's threshold for
ever, and what no queue entry leads to goes on record as a scan that is due. A timestamp taken *afterwards* says from
where on a scan counts; whoever dies in between leaves a scan without one, and anybody may add it later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sweep_tasks.errors import AlreadyExists, TableProtected, UnknownTable
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.store.contract import Change, Store, every
from sweep_tasks.store.system import LEGACY_SWEEPS, SCAN_ROWS, scan_row
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import TableThreshold, Thresholds

_COUNT_PAGE = 10_000


class Count(NamedTuple):
    cells: int
    versions: int


class StrategyChange(NamedTuple):
    before: TableMetadata
    after: TableMetadata


class Catalog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timestamps = TimestampService(store)
        self._thresholds = Thresholds(store)
        self._protections = ProtectionCatalog(store)

    def create(self, table: TableRef, metadata: TableMetadata) -> None:
        """What is on record about scans of a table that once had this name is not about the new one, and goes first:
        whoever drops a table and dies, or scans it to the last moment, may have left some."""
        if table not in self._store.tables([table]):
            self._forget_scans(table)
        if not self._store.create_table(table, metadata):
            raise AlreadyExists(f"table: {table} exists already; drop it first, or choose another name")
        self._adopt_own_threshold(table)

    def _forget_scans(self, table: TableRef) -> None:
        rows = [scan_row(kind, table) for kind in SCAN_ROWS]
        for (row, column), value in self._store.read_rows(LEGACY_SWEEPS, rows).items():
            self._store.compare_and_set(LEGACY_SWEEPS, row, {column: Change(value, None)})

    def change(self, table: TableRef, strategy: SweepStrategy | None, retention_s: int | None) -> None:
        """Give a table another strategy or retention; without a strategy it keeps the one it has."""

        def changed(metadata: TableMetadata) -> TableMetadata:
            own = metadata.own_threshold and retention_s is not None
            kept = metadata.with_strategy(strategy or metadata.strategy)
            new = replace(kept, retention_s=retention_s, own_threshold=own)
            return new if new == metadata else replace(new, revision=metadata.revision + 1)

        self._alter(table, changed)
        self._adopt_own_threshold(table)
        self.date_scan(table)

    def set_strategy(self, table: TableRef, strategy: SweepStrategy) -> StrategyChange:
        """Have a table swept by another strategy from now on, everything else as it was."""

        def changed(metadata: TableMetadata) -> TableMetadata:
            new = metadata.with_strategy(strategy)
            return new if new == metadata else replace(new, revision=metadata.revision + 1)

        before = self._alter(table, changed)
        return StrategyChange(before, self.date_scan(table))

    def date_scan(self, table: TableRef) -> TableMetadata:
        """Give a scan that is due the timestamp it must reach, if it has none yet; the table's metadata afterwards.

        A writer that commits by the old strategy has looked at the metadata before they changed, and had its start
        timestamp before that: one taken after they were read is greater. Metadata that were changed since then are read
        again, and the timestamp taken again.
        """
        while True:
            known = self._metadata(table)
            due = known.scan_due
            if due is None or due.since is not None:
                return known
            dated = replace(known, scan_due=due._replace(since=self._timestamps.fresh()))
            if self._store.alter_table(table, known, dated):
                return dated

    def scanned(self, table: TableRef, up_to: int) -> bool:
        """A scan of the whole table has ended that went up to this timestamp: true if it was all that was due."""
        done = False

        def settled(metadata: TableMetadata) -> TableMetadata:
            nonlocal done
            due = metadata.scan_due
            done = due is not None and due.since is not None and up_to >= due.since
            return replace(metadata, scan_due=None) if done else metadata

        self._alter(table, settled)
        return done

    def _adopt_own_threshold(self, table: TableRef) -> None:
        """Let readers go by the table's own threshold, if it has a retention of its own.

        The retention is on record, so every sweep that looks from now on heeds it; those that looked before had
        published how far they go. Raising the own threshold to that point and only then relying on it leaves no sweep
        that could have gone beyond it. Unless the retention was gone in between, and a sweep saw that: then another
        revision stands there, and we begin again.
        """
        while True:
            known = self.show(table)
            if known.metadata.retention_s is None or known.metadata.own_threshold:
                return
            self._thresholds.raise_own(table, known.swept)
            if self._store.alter_table(table, known.metadata, replace(known.metadata, own_threshold=True)):
                return

    def _alter(self, table: TableRef, change: Callable[[TableMetadata], TableMetadata]) -> TableMetadata:
        """What stood before."""
        while True:
            current = self._metadata(table)
            if change(current) == current or self._store.alter_table(table, current, change(current)):
                return current

    def _metadata(self, table: TableRef) -> TableMetadata:
        found = self._store.tables([table]).get(table)
        if found is None:
            raise UnknownTable(table)
        return found

    def list(self) -> dict[TableRef, TableMetadata]:
        """The user's tables, by name."""
        return {table: found for table, found in self._store.tables().items() if not table.is_system}

    def show(self, table: TableRef) -> TableThreshold:
        """What is known about one table, its thresholds included."""
        return self._thresholds.of_tables([table])[table]

    def count(self, table: TableRef) -> Count:
        """How many cells and versions a table holds, by reading all of it."""
        cells = versions = 0
        last = None
        for cell, _, _ in every(lambda after: self._store.scan_versions(table, limit=_COUNT_PAGE, after=after)):
            cells += cell != last
            versions += 1
            last = cell
        return Count(cells, versions)

    def truncate(self, table: TableRef, force: bool = False) -> None:
        """Remove everything that started before now; what is written meanwhile stays."""
        self._store.truncate(table, before=self._publish_mark(table, force))

    def drop(self, table: TableRef, force: bool = False) -> None:
        self._publish_mark(table, force)
        if not self._store.drop_table(table):
            raise UnknownTable(table)

    def _publish_mark(self, table: TableRef, force: bool) -> int:
        """The mark first, then the protections: one that is accepted later has seen the mark. Looking once before
        spares readers a mark for nothing."""
        if table not in self._store.tables([table]):
            raise UnknownTable(table)
        if not force:
            self._check_unprotected(table)
        mark = self._timestamps.fresh()
        self._thresholds.raise_mark(table, mark)
        if not force:
            self._check_unprotected(table)
        return mark

    def _check_unprotected(self, table: TableRef) -> None:
        holding = sorted(record.id for record in self._protections.records() if record.covers_table(table))
        if holding:
            raise TableProtected(table, holding)
