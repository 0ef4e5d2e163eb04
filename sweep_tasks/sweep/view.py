"""What a sweep knows of the tables and of the entries it reads, as of after it published."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.queue.encoding import read_write
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.quarantine import Quarantined
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, in_table
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.rules import Entry, TableView
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.thresholds import Thresholds

_NO_ID = 0
"""Ids are only needed to park; a dry run parks nothing, and gives out none."""


class SweepView:
    """Read once for each sweep, and the same for all who work on it."""

    def __init__(self, store: Store, tables: dict[TableRef, TableView], dry_run: bool) -> None:
        self.tables = tables
        self._dry_run = dry_run
        self._thresholds = Thresholds(store)
        self._ids = TableIds(store)

    @classmethod
    def published(
        cls, store: Store, horizon: Horizon, dry_run: bool, only: Collection[TableRef] | None = None
    ) -> SweepView:
        """To be read after the threshold is published and before protections are. Tables with a retention of their own
        have their thresholds published here. Of all tables, or of those that the sweep is about."""
        thresholds, puncher = Thresholds(store), Puncher(store)
        metadata = store.tables(only)
        marks = thresholds.marks(list(metadata))
        paused = Pauses(store).standing().tables
        tables: dict[TableRef, TableView] = {}
        for table, found in metadata.items():
            own: int | None = None
            if found.retention_s is not None:
                own = in_table(horizon, found.retention_s, puncher)
                if not dry_run:
                    thresholds.raise_own(table, own)
            tables[table] = TableView(found.strategy, marks[table], own, found.look_before_delete, table in paused)
        return cls(store, tables, dry_run)

    def heed(self, paused: Collection[TableRef]) -> None:
        """What is paused by now. Everything else stays as it was read after publishing."""
        self.tables = {table: view._replace(paused=table in paused) for table, view in self.tables.items()}

    def name_of(self, table_id: int) -> TableRef | None:
        return self._ids.name_of(table_id)

    def decoded(
        self, raw_entries: Collection[RawEntry], outcomes: Mapping[int, int], strategy: SweepStrategy, shard: int
    ) -> tuple[list[Entry], list[Quarantined]]:
        """Entries with their commit timestamps, and those that can't be read, with the reason."""
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
                    found = tables[given] = self._table(given)
            except BadValue as error:
                unreadable.append(Quarantined(strategy, shard, start, place, value, str(error)))
            else:
                entries.append(Entry(*found, cell, start, outcomes[start], delete))
        return entries, unreadable

    def _table(self, given: int | str) -> tuple[TableRef, int]:
        """A table that was dropped left a mark behind: its entries have nothing to do any more. One that left none is a
        mistake that somebody must look at."""
        named = TableRef.queued(given) if isinstance(given, str) else self._ids.name_of(given)
        if named is None:
            raise BadValue("table", f"no table has the id {given}")
        if named not in self.tables and not self._thresholds.marks([named])[named]:
            raise BadValue("table", f"{named} does not exist and was never dropped")
        if isinstance(given, int):
            return named, given
        return named, _NO_ID if self._dry_run else self._ids.id_of(named)
