"""The tables as a sweep sees them, read after it published its threshold, and the decoding of queue entries."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import read_write, row_of
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Quarantined
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, in_table
from sweep_tasks.sweep.rules import Entry, TableView, may_divide
from sweep_tasks.sweep.superseded import Divided
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.outcomes import ABORTED

_NO_ID = 0
"""Ids are only needed to park. A dry run parks nothing, so it assigns no ids."""


class SweepView:
    """The tables of a sweep. Read once, so that all workers of a sweep decide with the same view."""

    def __init__(self, store: Store, tables: dict[TableRef, TableView], dry_run: bool) -> None:
        self.tables = tables
        self._dry_run = dry_run
        self._store = store
        self._ids = TableIds(store)

    @classmethod
    def publish(
        cls, store: Store, horizon: Horizon, dry_run: bool, only: Collection[TableRef] | None = None
    ) -> SweepView:
        """Publish the thresholds of tables with a retention of their own, and return the view of all tables, or of
        `only` some. Must run after the sweep's threshold is published and before protections are read."""
        thresholds, clock_history = Thresholds(store), ClockHistory(store)
        metadata = store.tables(only)
        paused = Pauses(store).current().tables
        tables: dict[TableRef, TableView] = {}
        for table, found in metadata.items():
            own: int | None = None
            if found.retention_s is not None:
                own = in_table(horizon, found.retention_s, clock_history)
                if not dry_run:
                    thresholds.raise_own(table, own)
            tables[table] = TableView(found.strategy, found.mark, own, found.look_before_delete, table in paused)
        return cls(store, tables, dry_run)

    def apply_pauses(self, paused: Collection[TableRef]) -> None:
        """Update which tables are paused. Everything else stays as it was read after publishing."""
        self.tables = {table: view._replace(paused=table in paused) for table, view in self.tables.items()}

    def name_of(self, table_id: int) -> TableRef | None:
        return self._ids.name_of(table_id)

    def divided(self, outcomes: Mapping[int, int], protections: Protections) -> Divided | None:
        """Return whether more than one of the committed entries of a cell may act, or None if that is never so. It is
        asked about the cell's row and the last commit of the batch: to look at each commit takes longer."""
        if not protections and all(view.horizon is None for view in self.tables.values()):
            return None
        latest = max(outcomes.values(), default=ABORTED)
        known: dict[int | str, tuple[TableRef, TableView] | None] = {}

        def divided(raw: RawEntry) -> bool:
            try:
                given, row = row_of(raw.value)
            except BadValue:
                return True
            if given not in known:
                known[given] = self._with_view(given)
            found = known[given]
            return found is None or may_divide(found[0], row, latest, found[1], protections)

        return divided

    def _with_view(self, given: int | str) -> tuple[TableRef, TableView] | None:
        table = TableRef.stored(given) if isinstance(given, str) else self.name_of(given)
        view = None if table is None else self.tables.get(table)
        return None if table is None or view is None else (table, view)

    def decoded(
        self, raw_entries: Collection[RawEntry], outcomes: Mapping[int, int], strategy: SweepStrategy, shard: int
    ) -> tuple[list[Entry], list[Quarantined]]:
        """Return the entries with their commit timestamps, and those that can't be read, with the reason."""
        entries: list[Entry] = []
        unreadable: list[Quarantined] = []
        tables: dict[int | str, tuple[TableRef, int]] = {}
        for start, place, value in raw_entries:
            try:
                if start is None:
                    raise BadValue("column", "can't be read")
                given, cell, delete = read_write(value)
                found = tables.get(given)
                if found is None:
                    found = tables[given] = self.table_of(given)
            except BadValue as error:
                unreadable.append(Quarantined(strategy, shard, start, place, value, str(error)))
            else:
                entries.append(Entry(*found, cell, start, outcomes[start], delete))
        return entries, unreadable

    def table_of(self, given: int | str) -> tuple[TableRef, int]:
        """Return the table of an entry and its id. A dropped table keeps its catalog row, and its entries are skipped
        later. An entry of a table without a row can't be explained, so it is quarantined."""
        named = TableRef.queued(given) if isinstance(given, str) else self._ids.name_of(given)
        if named is None:
            raise BadValue("table", f"no table has the id {given}")
        if named not in self.tables and named not in self._store.catalog_rows([named]):
            raise BadValue("table", f"{named} does not exist and was never dropped")
        if isinstance(given, int):
            return named, given
        return named, _NO_ID if self._dry_run else self._ids.id_of(named)
