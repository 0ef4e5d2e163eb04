"""Published thresholds, below which tables can no longer be read, and announcements to truncate or drop a table.

A sweep publishes its threshold before it reads the protections. A truncation or a drop is announced before it reads
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sweep_tasks import retries
from sweep_tasks.clock import Clock
from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, checked_timestamp
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import THRESHOLDS

# ---------------------------------------------------------------------------------------------------------------------
# Published thresholds: the greatest timestamp below which sweeps have removed versions, or are about to.
#
# A sweep publishes before it deletes. A reader checks after it has read, a writer after it has enqueued, a protection
# after it is recorded. Of two concurrent operations, the later one sees the earlier one, without locks or clocks.
# Thresholds only rise. The threshold of a table is the highest of: those of each strategy that it has or had, its own
# threshold if its retention is longer than that of its strategy, and the mark of its last truncation (catalog row).
# ---------------------------------------------------------------------------------------------------------------------

_VALUE = b"v"


def _strategy(strategy: SweepStrategy) -> Cell:
    return Cell(b"strategy:" + strategy.value.encode(), _VALUE)


def _own(table: TableRef) -> Cell:
    return Cell(b"table:" + str(table).encode(), _VALUE)


@dataclass(frozen=True, slots=True)
class TableThreshold:
    """The thresholds of a table, with its catalog row."""

    metadata: TableMetadata
    by_strategy: Mapping[SweepStrategy, int]
    own: int

    @property
    def mark(self) -> int:
        return self.metadata.mark

    @property
    def for_readers(self) -> int:
        """The threshold for readers: below it, versions of a snapshot may have been removed."""
        return max(self.mark, self.own if self.metadata.own_threshold else self.swept)

    @property
    def swept(self) -> int:
        """The greatest threshold of the table's strategies, for sweeps that do not know a retention of the table."""
        return max(self.by_strategy.values(), default=0)

    @property
    def for_writers(self) -> int:
        """The threshold for writers: below it, a sweep may already have passed.

        That sweep would not find the queue entry of a write that comes now, and it may have removed a later delete
        marker that must hide this write. Past strategies of the table are included, and so is the mark: no write that
        started before a truncation may survive it.
        """
        return max(self.mark, self.swept)


class Thresholds:
    """The published thresholds of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def raise_strategy(self, strategy: SweepStrategy, ts: int) -> int:
        """Publish that sweeps of this strategy go up to `ts`; return the current threshold, which may be higher."""
        return self._raise(_strategy(strategy), ts)

    def raise_own(self, table: TableRef, ts: int) -> int:
        """Publish that a table with its own retention is swept up to `ts`; return its current own threshold."""
        return self._raise(_own(table), ts)

    def _raise(self, cell: Cell, ts: int) -> int:
        checked_timestamp(ts)
        raised = self._store.update(THRESHOLDS, cell, lambda current: var_long(max(ts, stored_long(current))))
        return stored_long(raised)

    def of_strategy(self, strategy: SweepStrategy) -> int:
        cell = _strategy(strategy)
        return stored_long(self._store.read(THRESHOLDS, [cell]).get(cell))

    def of_tables(self, tables: Collection[TableRef]) -> dict[TableRef, TableThreshold]:
        """Return the current thresholds of tables.

        Metadata is read first: a new strategy of a table is recorded there before any sweep of that strategy can touch
        the table.
        """
        metadata = self._store.tables(tables)
        for table in tables:
            if table not in metadata:
                raise UnknownTable(table)
        strategies = {strategy for found in metadata.values() for strategy in found.strategies}
        wanted = [*map(_strategy, strategies), *map(_own, metadata)]
        current = self._store.read(THRESHOLDS, wanted)
        return {
            table: TableThreshold(
                found,
                {strategy: stored_long(current.get(_strategy(strategy))) for strategy in found.strategies},
                stored_long(current.get(_own(table))),
            )
            for table, found in metadata.items()
        }


# ---------------------------------------------------------------------------------------------------------------------
# Announcements to truncate or drop a table, as a reader or a protection finds them.
#
# Between the announcement and the decision, it is not known whether a table will be empty at a timestamp. A caller that
# needs to know waits for a moment, since the decision is only a few calls away, and then rolls the announcement back:
# its owner may have died. An owner that is alive notices this and announces again, at a later timestamp.
# ---------------------------------------------------------------------------------------------------------------------

PATIENCE_S = 2.0


class Announcements:
    """Waits for announced truncations and drops, or rolls them back."""

    def __init__(self, store: Store, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._thresholds = Thresholds(store)
        self._clock = clock
        self._patience_s = patience_s

    def resolve(self, tables: Collection[TableRef]) -> dict[TableRef, TableThreshold]:
        """Return the thresholds of tables after all announcements on them are decided or rolled back."""
        while True:
            found = self._thresholds.of_tables(tables)
            announced = [table for table, each in found.items() if each.metadata.is_announced]
            if not announced:
                return found
            for table in announced:
                self.roll_back(table)

    def roll_back(self, table: TableRef) -> None:
        """Roll back the announcement on a table, unless it is decided in the meantime."""
        current = self.wait_for(table)
        if current and current.is_announced:
            self._store.alter_table(table, current, current.rolled_back())

    def wait_for(self, table: TableRef) -> TableMetadata | None:
        """Wait until a table has no announcement, at most for the patience; return its catalog row at that time."""
        attempt, waited_s = 0, 0.0
        while True:
            current = self._store.catalog_rows([table]).get(table)
            if current is None or not current.is_announced or waited_s >= self._patience_s:
                return current
            pause_s = retries.ANNOUNCED_TABLE.pause_s(attempt)
            self._clock.sleep(pause_s)
            attempt, waited_s = attempt + 1, waited_s + pause_s
