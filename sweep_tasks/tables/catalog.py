"""The catalog of tables: create, list, change, truncate and drop them, in an order that keeps readers correct.

Truncating or dropping a table removes versions that open snapshots could see. So it is announced first, then decided,
and only then carried out:

    announce → fresh timestamp F → read protections → decide, with F as the mark → delete what started below F

All steps but the last are compare-and-set changes of the table's catalog row. After the announcement, no writer commits
to the table, and no reader or protection relies on it without rolling the announcement back. So everything that was
admitted before the announcement started below F, and everything later sees the mark. Below the mark every read fails.
Above it, versions that started below the mark do not exist, even if they are still stored. If a protection covers the
table, nothing is deleted and no mark is set.

A change of strategy is one change of the table's metadata. The threshold of the old strategy applies to readers and
writers forever, and versions that no queue entry refers to are recorded as a scan that is due. A timestamp taken
*after* the change is the one that the scan must reach. If the process dies in between, the scan has no timestamp, and
any process may add it later.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.coordination.thresholds import PATIENCE_S, Announcements, TableThreshold, Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, BadValue, OutcomeUnknown, StoreBusy, UnknownTable
from sweep_tasks.journal.journal import Act, Journal
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, TableState
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.store.contract import Change, Store, every
from sweep_tasks.store.schema import LEGACY_SWEEPS, SCAN_ROWS, scan_row

_COUNT_PAGE = 10_000


class TableCount(NamedTuple):
    """The number of cells and versions in a table."""

    cells: int
    versions: int


class StrategyChange(NamedTuple):
    """The metadata of a table before and after its strategy was set."""

    before: TableMetadata
    after: TableMetadata


def _unique_owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"


class Catalog:
    """Creates, changes and removes the tables of a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        new_owner: Callable[[], str] = _unique_owner,
    ) -> None:
        """`new_owner` returns a unique name for each attempt to truncate or drop a table."""
        self._store = store
        self._new_owner = new_owner
        self._announcements = Announcements(store, clock or SystemClock(), patience_s)
        self._timestamps = TimestampService(store)
        self._thresholds = Thresholds(store)
        self._protections = ProtectionCatalog(store)
        self._journal = Journal(store, clock)

    def create(self, table: TableRef, metadata: TableMetadata) -> None:
        """Create a table, or the next incarnation of a dropped one, with one change of its catalog row.

        The mark of a new incarnation is a timestamp that is taken after the row was read, so that no earlier snapshot,
        protected or not, can read the new table. Records of scans of an earlier table with this name are removed first:
        an interrupted drop, or a scan that ran until the drop, may have left some. They are read before the catalog
        row: if that shows no table, none of them belongs to a table that another process creates meanwhile.
        """
        while True:
            scans = self._scans(table)
            gone = self._store.catalog_rows([table]).get(table)
            if gone and not gone.is_gone:
                raise AlreadyExists(f"table: {table} exists already; drop it first, or choose another name")
            self._forget(scans)
            if gone:
                self._store.remove_table(table, gone.incarnation)  # an interrupted drop may have left data
                new = replace(metadata, mark=self._timestamps.fresh(), incarnation=gone.incarnation + 1)
            else:
                new = metadata
            if self._store.create_table(table, new, gone):
                break
        self._adopt_own_threshold(table)

    def _scans(self, table: TableRef) -> dict[Cell, bytes]:
        return self._store.read_rows(LEGACY_SWEEPS, [scan_row(kind, table) for kind in SCAN_ROWS])

    def _forget(self, scans: Mapping[Cell, bytes]) -> None:
        """Remove records of scans that still have these values."""
        for (row, column), value in scans.items():
            self._store.compare_and_set(LEGACY_SWEEPS, row, {column: Change(value, None)})

    def change(self, table: TableRef, strategy: SweepStrategy | None, retention_s: int | None) -> None:
        """Change the strategy and the retention of a table; None keeps the strategy and removes the retention."""

        def changed(metadata: TableMetadata) -> TableMetadata:
            own = metadata.own_threshold and retention_s is not None
            kept = metadata.with_strategy(strategy or metadata.strategy)
            new = replace(kept, retention_s=retention_s, own_threshold=own)
            return new if new == metadata else replace(new, revision=metadata.revision + 1)

        self._alter_on_record(table, changed)
        self._adopt_own_threshold(table)
        self.date_scan(table)

    def set_strategy(self, table: TableRef, strategy: SweepStrategy) -> StrategyChange:
        """Change the strategy of a table and nothing else."""

        def changed(metadata: TableMetadata) -> TableMetadata:
            new = metadata.with_strategy(strategy)
            return new if new == metadata else replace(new, revision=metadata.revision + 1)

        before = self._alter_on_record(table, changed)
        return StrategyChange(before, self.date_scan(table))

    def date_scan(self, table: TableRef) -> TableMetadata:
        """Set the timestamp that a due scan must reach, if it has none yet; return the table's metadata.

        A writer that commits by the old strategy checked the metadata before they changed, and took its start timestamp
        before that. So a timestamp that is taken after the metadata were read is greater. If the metadata change in the
        meantime, they are read again and a new timestamp is taken.
        """
        while True:
            known = self._metadata(table)
            due = known.scan_due
            if due is None or due.since is not None:
                return known
            dated = replace(known, scan_due=due._replace(since=self._timestamps.fresh()))
            if self._store.alter_table(table, known, dated):
                return dated

    def complete_scan(self, table: TableRef, up_to: int) -> bool:
        """Record that all versions below a timestamp were scanned or deleted; True if that completes the due scan."""
        done = False

        def completed(metadata: TableMetadata) -> TableMetadata:
            nonlocal done
            due = metadata.scan_due
            done = due is not None and due.since is not None and up_to >= due.since
            return replace(metadata, scan_due=None) if done else metadata

        self._alter(table, completed)
        return done

    def _adopt_own_threshold(self, table: TableRef) -> None:
        """Make readers use the table's own threshold if the table has its own retention.

        The retention is recorded, so every sweep that reads it from now on respects it. Sweeps that read the metadata
        before had already published their threshold. The own threshold is raised to that value before readers rely on
        it, so that no sweep can have gone beyond it. If the retention was removed in between, and a sweep saw that, the
        row has another revision, and everything is repeated.
        """
        while True:
            known = self._resolved(table)
            if known.metadata.retention_s is None or known.metadata.own_threshold:
                return
            self._thresholds.raise_own(table, known.swept)
            if self._store.alter_table(table, known.metadata, replace(known.metadata, own_threshold=True)):
                return

    def _alter(self, table: TableRef, change: Callable[[TableMetadata], TableMetadata]) -> TableMetadata:
        """Change a table's metadata, after any announcement on it is resolved; return the previous metadata."""
        while True:
            current = self._metadata(table)
            if change(current) == current or self._store.alter_table(table, current, change(current)):
                return current

    def _alter_on_record(self, table: TableRef, change: Callable[[TableMetadata], TableMetadata]) -> TableMetadata:
        """Change a table's metadata and record it in the journal, unless nothing changes."""
        current = self._metadata(table)
        wanted = change(current)
        if wanted == current:
            return current
        with self._journal.record("change table", str(table), before=_properties(current), after=_properties(wanted)):
            return self._alter(table, change)

    def _metadata(self, table: TableRef) -> TableMetadata:
        return self._resolved(table).metadata

    def _resolved(self, table: TableRef) -> TableThreshold:
        return self._announcements.resolve([table])[table]

    def list(self) -> dict[TableRef, TableMetadata]:
        """Return all tables except those of the system."""
        return {table: found for table, found in self._store.tables().items() if not table.is_system}

    def show(self, table: TableRef) -> TableThreshold:
        """Return the metadata and the thresholds of one table."""
        return self._thresholds.of_tables([table])[table]

    def count(self, table: TableRef) -> TableCount:
        """Count the cells and versions of a table by reading all of it."""
        cells = versions = 0
        last = None
        for cell, _, _ in every(lambda after: self._store.scan_versions(table, limit=_COUNT_PAGE, after=after)):
            cells += cell != last
            versions += 1
            last = cell
        return TableCount(cells, versions)

    def truncate(self, table: TableRef, force: bool = False) -> None:
        """Remove everything that started before now; later writes stay.

        If the process dies after the decision, a scan removes the rest: it is due until everything is deleted.
        """
        with self._journal.record("truncate", str(table), forced=force) as act:
            mark = self._empty(table, TableState.TRUNCATING, force).mark
            act.add(mark=mark)
            with suppress(UnknownTable):  # another process has dropped the table
                self._store.truncate(table, before=mark)
                self.complete_scan(table, mark)

    def drop(self, table: TableRef, force: bool = False) -> None:
        """Drop a table. For a dropped table with data left, finish the interrupted drop."""
        with self._journal.record("drop", str(table), forced=force) as act:
            self._drop(table, force, act)

    def _drop(self, table: TableRef, force: bool, act: Act) -> None:
        current = self._store.catalog_rows([table]).get(table)
        if current and current.is_gone and self._store.remove_table(table, current.incarnation):
            return
        decided = self._empty(table, TableState.DROPPING, force)
        act.add(mark=decided.mark)
        self._store.remove_table(table, decided.incarnation)

    def _empty(self, table: TableRef, state: TableState, force: bool) -> TableMetadata:
        """Announce and decide a truncation or drop; return the decided catalog row.

        An attempt whose announcement is rolled back or taken over by another process is repeated, but never on a later
        incarnation of the table.
        """
        incarnation = None
        for _ in range(retries.EMPTIED_TABLE.attempts):
            announced = self._announce(table, state, incarnation)
            incarnation = announced.incarnation
            mark = self._timestamps.fresh()
            if not force:
                self._check_unprotected(announced, table)
            decided = announced.decided(mark)
            if self._decide(table, announced, decided):
                return decided
        raise StoreBusy(
            f"table: {table} could not be truncated or dropped: other processes rolled it back "
            f"{retries.EMPTIED_TABLE.attempts} times; retry, or "
            "raise the setting emptying_wait_s",
            reason="emptying",
        )

    def _decide(self, table: TableRef, announced: TableMetadata, decided: TableMetadata) -> bool:
        """Decide a truncation or drop. If the response is lost, the row shows the outcome: its mark is unique."""
        try:
            return self._store.alter_table(table, announced, decided)
        except OutcomeUnknown:
            if self._store.catalog_rows([table]).get(table) != decided:
                raise
            return True

    def _announce(self, table: TableRef, state: TableState, incarnation: int | None) -> TableMetadata:
        """Announce a truncation or drop under a unique id. An announcement that another process left is replaced."""
        owner = self._new_owner()
        while True:
            current = self._announcements.wait_for(table)
            if current is None or current.is_gone or incarnation not in (None, current.incarnation):
                raise UnknownTable(table)
            announced = current.announced(state, owner)
            if self._store.alter_table(table, current, announced):
                return announced
            incarnation = current.incarnation

    def _check_unprotected(self, announced: TableMetadata, table: TableRef) -> None:
        """Fail if a protection covers the table, and roll the announcement back.

        Protections are read after the announcement: any that is accepted later has seen the announcement or the mark.
        """
        holding = sorted(record.id for record in self._protections.records() if record.covers_table(table))
        if holding:
            self._store.alter_table(table, announced, announced.rolled_back())
            shown = f"{', '.join(holding[:5])}{' and others' if len(holding) > 5 else ''}"
            problem = f"{table} is protected by {shown}; release these protections first, or use --force"
            raise BadValue("table", problem, reason="protected", records=tuple(holding))


def _properties(metadata: TableMetadata) -> dict[str, str | int | None]:
    """Return the properties for the journal: those that decide how much of a table is removed."""
    return {"strategy": metadata.strategy.value, "retention_s": metadata.retention_s}
