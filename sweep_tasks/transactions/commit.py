"""The commit, in the order that makes it safe.

    stamp the lease → queue entries → look → values → look for others → commit timestamp → look again → decide

*Look*: is our start still at or above the published thresholds, and is each table's strategy the one we enqueued
for? An entry that is durable before the look is seen by every sweep that publishes after it, so a transaction that
passes the look can't be missed; one that fails it was passed by a sweep and must not commit. *Look for others* comes
after our own values are there: of two writers of a cell, whoever looks second sees the other. The put-if-absent of
the commit timestamp alone decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from sweep_tasks.errors import (
    CommitUnknown,
    LeaseLost,
    StoreError,
    TransactionAborted,
    WriteConflict,
)
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, ConflictHandling, TableMetadata, TableRef
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED, CommitTable
from sweep_tasks.transactions.keeper import HeldLease
from sweep_tasks.transactions.protecting import Protecting
from sweep_tasks.transactions.writers import Writers

log = structlog.get_logger(__name__)

Writes = Mapping[TableRef, Mapping[Cell, bytes]]
TablesUsed = Mapping[TableRef, TableMetadata]


class WriteQueue(Protocol):
    """Where writes are announced before they are made, so that a sweep finds what they replace."""

    def enqueue(self, start: int, writes: Writes, tables: TablesUsed) -> None: ...

    def withdraw(self, start: int, writes: Writes, tables: TablesUsed) -> None:
        """Remove the entries of a transaction whose values are gone."""


@dataclass(frozen=True, slots=True)
class Committer:
    store: Store
    timestamps: TimestampService
    thresholds: Thresholds
    commits: CommitTable
    writers: Writers
    queue: WriteQueue | None

    def commit(
        self, start: int, lease: HeldLease, writes: Writes, tables: TablesUsed, protecting: Protecting | None = None
    ) -> int:
        """The commit timestamp. Any error but `CommitUnknown` means the transaction never will be committed."""
        if not lease.stamp(start):
            raise lease_lost(start)
        try:
            if self.queue:
                self.queue.enqueue(start, writes, tables)
            self._look(start, tables)
            self.store.put(start, writes)
            for table, metadata in tables.items():
                if metadata.conflicts is ConflictHandling.FIRST_COMMITTER_WINS:
                    self._look_for_others(start, table, writes[table].keys())
            commit = self.timestamps.fresh()
            self._look(start, tables)
            if protecting:
                protecting.prepare()
            outcome = self._decide(start, commit)
        except CommitUnknown:
            raise
        except Exception:
            self._undo(start, writes, tables, protecting)
            raise
        if outcome != commit:
            self._undo(start, writes, tables, protecting)
            raise TransactionAborted(
                f"transaction: the one started at {start} was taken for dead and rolled back; run it again",
                reason="rolled_back",
            )
        if protecting:
            protecting.committed()
        return commit

    def _look(self, start: int, tables: TablesUsed) -> None:
        for table, now in self.thresholds.of_tables(tables.keys()).items():
            if now.metadata.strategy != tables[table].strategy:
                raise TransactionAborted(
                    f"transaction: the sweep strategy of {table} changed while the one started at {start} was open; "
                    "run it again",
                    reason="strategy_changed",
                    table=table,
                )
            if start < now.for_writers:
                raise TransactionAborted(
                    f"transaction: {table} was swept up to {now.for_writers}, past the one started at {start}; "
                    "run it again",
                    reason="swept",
                    start=start,
                    threshold=now.for_writers,
                )

    def _look_for_others(self, start: int, table: TableRef, cells: Collection[Cell]) -> None:
        """First committer wins: nobody may have committed a version of our cells since we started.

        Versions are looked at from the newest down to the first committed one. A live writer that has not finished
        is a conflict if it started before us, and waited for if it started after us: that one direction can't
        deadlock.
        """
        below = dict.fromkeys(cells, MAX_TS)
        while below:
            newest = self.store.newest(table, below)
            outcomes = self._outcomes_of_others(start, {ts for ts in newest.values() if ts not in (start, SENTINEL_TS)})
            below = {}
            for cell, ts in newest.items():
                if ts == start or outcomes.get(ts) == ABORTED:
                    below[cell] = ts
                elif ts != SENTINEL_TS and outcomes[ts] > start:
                    raise _conflict(start, table)

    def _outcomes_of_others(self, start: int, others: Collection[int]) -> dict[int, int]:
        earlier = [other for other in others if other < start]
        outcomes = self.writers.settled_without_waiting(earlier)
        if len(outcomes) < len(earlier):
            raise WriteConflict(
                f"transaction: another writer of the same cells, started before {start}, is about to commit; "
                "run this one again"
            )
        return outcomes | self.writers.settled([other for other in others if other > start])

    def _decide(self, start: int, commit: int) -> int:
        try:
            return self.commits.decide(start, commit)
        except StoreError:
            # The answer is lost, the commit perhaps not. Only if -1 stands may the values be removed.
            try:
                return self.commits.abort([start])[start]
            except StoreError as error:
                raise CommitUnknown(start) from error

    def _undo(self, start: int, writes: Writes, tables: TablesUsed, protecting: Protecting | None) -> None:
        """Remove our values, then our queue entries: what a crash leaves in between, a sweep still finds.

        If the store fails here too, nothing is wrong, only left over: -1 is put by whoever meets a value.
        """
        try:
            if self.commits.abort([start])[start] != ABORTED:
                raise CommitUnknown(start)
            for table, values in writes.items():
                if table in self.store.tables([table]):
                    self.store.delete_versions(table, [(cell, start) for cell in values])
            if self.queue:
                self.queue.withdraw(start, writes, tables)
            if protecting:
                protecting.aborted()
        except StoreError as error:
            log.warning("aborted transaction left values behind for the sweep", start=start, reason=error.code)


def lease_lost(start: int) -> LeaseLost:
    return LeaseLost(
        f"transaction: the one started at {start} was silent for longer than its lease and is taken for dead; "
        "run it again, or raise the setting lease_ttl_s"
    )


def _conflict(start: int, table: TableRef) -> WriteConflict:
    return WriteConflict(
        f"transaction: another writer committed to cells of {table} after {start}, when this one started; run it again",
        table=table,
    )
