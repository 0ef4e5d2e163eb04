"""The tables of a store: created, listed, changed, emptied and dropped, in an order that keeps readers right.

Emptying or dropping a table removes what open snapshots could see. So a mark with a fresh timestamp is published
first: readers below it fail instead of finding nothing, and no write that started below it commits any more.
"""

from __future__ import annotations

from typing import NamedTuple

from sweep_tasks.errors import AlreadyExists, UnknownTable
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import TableThreshold, Thresholds

_COUNT_PAGE = 10_000


class Count(NamedTuple):
    cells: int
    versions: int


class Catalog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timestamps = TimestampService(store)
        self._thresholds = Thresholds(store)

    def create(self, table: TableRef, metadata: TableMetadata) -> None:
        if not self._store.create_table(table, metadata):
            raise AlreadyExists(f"table: {table} exists already; drop it first, or choose another name")

    def list(self) -> dict[TableRef, TableMetadata]:
        """The user's tables, by name."""
        return {table: found for table, found in self._store.tables().items() if not table.is_system}

    def show(self, table: TableRef) -> TableThreshold:
        """What is known about one table, its thresholds included."""
        return self._thresholds.of_tables([table])[table]

    def count(self, table: TableRef) -> Count:
        """How many cells and versions a table holds, by reading all of it."""
        cells = versions = 0
        last = after = None
        while True:
            page = self._store.scan_versions(table, limit=_COUNT_PAGE, after=after)
            for cell, _, _ in page.items:
                cells += cell != last
                last = cell
            versions += len(page.items)
            after = page.resume
            if after is None:
                return Count(cells, versions)

    def truncate(self, table: TableRef) -> None:
        self._publish_mark(table)
        self._store.truncate(table)

    def drop(self, table: TableRef) -> None:
        self._publish_mark(table)
        if not self._store.drop_table(table):
            raise UnknownTable(table)

    def _publish_mark(self, table: TableRef) -> None:
        if table not in self._store.tables([table]):
            raise UnknownTable(table)
        self._thresholds.raise_mark(table, self._timestamps.fresh())
