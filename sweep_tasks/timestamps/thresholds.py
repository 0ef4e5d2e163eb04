"""Published thresholds: how far sweeps have gone, or are about to go.

A sweep publishes before it deletes; a reader looks after it has read; a writer looks after it has enqueued; a
protection looks after it is on record. Whoever comes second sees the other, and no lock or clock is part of that.
Thresholds only rise. A table answers to the highest of: each strategy it has or had, one of its own where it keeps
longer than its strategy, and the mark of its last truncation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, checked_timestamp
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import THRESHOLDS

_VALUE = b"v"


def _strategy(strategy: SweepStrategy) -> Cell:
    return Cell(b"strategy:" + strategy.value.encode(), _VALUE)


def _own(table: TableRef) -> Cell:
    return Cell(b"table:" + str(table).encode(), _VALUE)


def _mark(table: TableRef) -> Cell:
    return Cell(b"mark:" + str(table).encode(), _VALUE)


@dataclass(frozen=True, slots=True)
class TableThreshold:
    metadata: TableMetadata
    by_strategy: Mapping[SweepStrategy, int]
    own: int
    mark: int

    @property
    def for_readers(self) -> int:
        """Below this, what a snapshot held may be gone."""
        return max(self.mark, self.own if self.metadata.own_threshold else self.swept)

    @property
    def swept(self) -> int:
        """How far sweeps that know of no retention of the table's own may have gone in it."""
        return max(self.by_strategy.values(), default=0)

    @property
    def for_writers(self) -> int:
        """Below this, a sweep may already have passed: it would not find the queue entry of a write that comes now, and
        may have removed a later delete marker that this write would have to hide behind. Strategies the table had count
        as well, and so does the mark: no write that started before a truncation may outlive it."""
        return max(self.mark, self.swept)


class Thresholds:
    def __init__(self, store: Store) -> None:
        self._store = store

    def raise_strategy(self, strategy: SweepStrategy, ts: int) -> int:
        """Publish that sweeps of this strategy go up to `ts`; returns what stands, which may be higher."""
        return self._raise(_strategy(strategy), ts)

    def raise_own(self, table: TableRef, ts: int) -> int:
        """Publish that a table with a retention of its own is swept up to `ts`."""
        return self._raise(_own(table), ts)

    def raise_mark(self, table: TableRef, ts: int) -> int:
        """Publish that the table is emptied of everything that started before `ts`."""
        return self._raise(_mark(table), ts)

    def _raise(self, cell: Cell, ts: int) -> int:
        checked_timestamp(ts)
        raised = self._store.update(THRESHOLDS, cell, lambda current: var_long(max(ts, stored_long(current))))
        return stored_long(raised)

    def marks(self, tables: Collection[TableRef]) -> dict[TableRef, int]:
        """Truncation marks, of tables that exist or once did; 0 where there is none."""
        standing = self._store.read(THRESHOLDS, [_mark(table) for table in tables])
        return {table: stored_long(standing.get(_mark(table))) for table in tables}

    def of_strategy(self, strategy: SweepStrategy) -> int:
        cell = _strategy(strategy)
        return stored_long(self._store.read(THRESHOLDS, [cell]).get(cell))

    def of_tables(self, tables: Collection[TableRef]) -> dict[TableRef, TableThreshold]:
        """As of now. Metadata is read first: a strategy that is new to a table was entered there before any sweep of
        that strategy could touch the table."""
        metadata = self._store.tables(tables)
        for table in tables:
            if table not in metadata:
                raise UnknownTable(table)
        strategies = {strategy for found in metadata.values() for strategy in found.strategies}
        wanted = [*map(_strategy, strategies), *map(_own, metadata), *map(_mark, metadata)]
        standing = self._store.read(THRESHOLDS, wanted)
        return {
            table: TableThreshold(
                found,
                {strategy: stored_long(standing.get(_strategy(strategy))) for strategy in found.strategies},
                stored_long(standing.get(_own(table))),
                stored_long(standing.get(_mark(table))),
            )
            for table, found in metadata.items()
        }
