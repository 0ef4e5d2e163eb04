"""The commit protocol, and the protections that a transaction creates and releases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from sweep_tasks.coordination.leases import HeldLease
from sweep_tasks.coordination.thresholds import Announcements, Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import CommitUnknown, NotFound, StoreError, TransactionAborted, WriteConflict
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, ConflictHandling, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.metrics import count_call
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable, Writers

# ---------------------------------------------------------------------------------------------------------------------
# Protections that a transaction creates and releases: they take effect with its commit.
#
# A new protection holds at once, as pending, and names the transaction. It is verified before the commit is decided. A
# release is announced before the decision, and the protection holds until then. If the process dies in between, the
# commit table has the outcome, and the reconciliation finishes the work.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)


class TransactionProtections:
    """The protections that one transaction creates and releases."""

    def __init__(self, catalog: ProtectionCatalog, start: int) -> None:
        self._catalog = catalog
        self._start = start
        self._created: list[Record] = []
        self._to_release: list[str] = []
        self._announced: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self._created or self._to_release)

    def protect(self, record: Record) -> None:
        wanted = replace(record, transaction=self._start)
        with count_call("protect"), self._catalog.record_protect(wanted):
            created = self._catalog.begin(wanted)
            self._created.append(created)
            self._check(created)

    def release(self, record_id: str) -> None:
        """Release a record with the commit. An unknown id fails here and not at the commit."""
        ours = [created for created in self._created if created.id == record_id]
        if ours:
            self._catalog.drop(ours[0])
            self._created.remove(ours[0])
        elif record_id not in self._to_release:
            self._catalog.get(record_id)
            self._to_release.append(record_id)

    def prepare(self) -> None:
        """Announce releases and verify new records: the last step before the commit is decided.

        A sweep that publishes later reads the records later.
        """
        for record_id in self._to_release:
            with count_call("release"):
                self._announced.append(self._catalog.announce_release(record_id, self._start))
        for created in self._created:
            self._check(created)

    def finish_commit(self) -> None:
        self._finish(self._catalog.accept, self._created)
        self._finish(self._catalog.drop, self._announced)

    def finish_abort(self) -> None:
        self._finish(self._catalog.drop, self._created)
        self._finish(self._catalog.cancel_release, self._announced)

    def _check(self, created: Record) -> None:
        self._catalog.check_thresholds(created).raise_if_refused(created.ts)

    def _finish(self, step: Callable[[Record], None], records: list[Record]) -> None:
        for record in records:
            try:
                step(record)
            except NotFound:
                log.info("a protection was already released by another process", record=record.id)
            except StoreError as error:
                log.warning(
                    "a protection could not be completed now; the next reconciliation completes it",
                    record=record.id,
                    reason=error.code,
                )


# ---------------------------------------------------------------------------------------------------------------------
# The commit. The order of its steps makes it safe:
#
#   stamp the lease → queue entries → check tables → values → check conflicts → commit timestamp → check tables → decide
#
# *Check tables*: the start timestamp must not be below a published threshold, and each table must still be the one that
# was enqueued for, with the same strategy and no announced truncation or drop. Every sweep that publishes after the
# check sees the queue entries, because they were durable before it. So a transaction that passes the check can't be
# missed, and one that fails it was passed by a sweep and must not commit. *Check conflicts* follows the values: of two
# writers of a cell, the second to check sees the other. The put-if-absent of the commit timestamp alone decides.
# ---------------------------------------------------------------------------------------------------------------------

Writes = Mapping[TableRef, Mapping[Cell, bytes]]
TablesUsed = Mapping[TableRef, TableMetadata]


class WriteQueue(Protocol):
    """The queue that records writes before they are stored, so that a sweep finds the versions that they replace."""

    def enqueue(self, start: int, writes: Writes, tables: TablesUsed) -> None: ...

    def withdraw(self, start: int, writes: Writes, tables: TablesUsed) -> None:
        """Remove the entries of a transaction whose values were removed."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits transactions on a store."""

    store: Store
    timestamps: TimestampService
    thresholds: Thresholds
    commits: CommitTable
    writers: Writers
    queue: WriteQueue | None
    announcements: Announcements

    def commit(
        self,
        start: int,
        lease: HeldLease,
        writes: Writes,
        tables: TablesUsed,
        protections: TransactionProtections,
    ) -> int:
        """Commit a transaction and return its commit timestamp.

        Any error other than `CommitUnknown` means that the transaction will never be committed.
        """
        if not lease.stamp(start):
            raise lease_lost(start)
        try:
            if self.queue:
                self.queue.enqueue(start, writes, tables)
            self._check_tables(start, tables)
            self.store.put(start, writes)
            for table, metadata in tables.items():
                if metadata.conflicts is ConflictHandling.FIRST_COMMITTER_WINS:
                    self._check_conflicts(start, table, writes[table].keys())
            commit = self.timestamps.fresh()
            self._check_tables(start, tables)
            if protections:
                protections.prepare()
            outcome = self._decide(start, commit)
        except CommitUnknown:
            raise
        except Exception:
            self._undo(start, writes, tables, protections)
            raise
        if outcome != commit:
            self._undo(start, writes, tables, protections)
            raise TransactionAborted(
                f"transaction: the one started at {start} was considered dead and rolled back; run it again",
                reason="rolled_back",
            )
        if protections:
            protections.finish_commit()
        return commit

    def _check_tables(self, start: int, tables: TablesUsed) -> None:
        for table, now in self.thresholds.of_tables(tables.keys()).items():
            if now.metadata.is_announced:
                self.announcements.roll_back(table)  # its owner may be dead, and would block later transactions
                raise TransactionAborted(
                    f"transaction: a truncation or drop of {table} was announced while the one started at {start} was "
                    "open; run it again",
                    reason="emptying",
                    table=table,
                )
            if now.metadata.incarnation != tables[table].incarnation:
                raise TransactionAborted(
                    f"transaction: {table} was dropped and created again while the one started at {start} was open; "
                    "run it again",
                    reason="recreated",
                    table=table,
                )
            if now.metadata.strategy != tables[table].strategy:
                raise TransactionAborted(
                    f"transaction: the sweep strategy of {table} changed while the one started at {start} was open; "
                    "run it again",
                    reason="strategy_changed",
                    table=table,
                )
            if start < now.for_writers:
                raise TransactionAborted(
                    f"transaction: {table} was swept up to {now.for_writers}, which is after the one started at "
                    f"{start}; run it again",
                    reason="swept",
                    start=start,
                    threshold=now.for_writers,
                )

    def _check_conflicts(self, start: int, table: TableRef, cells: Collection[Cell]) -> None:
        """Fail if another transaction committed to our cells since we started: the first committer wins.

        Versions are examined from the newest down to the first committed one. A live writer that has not finished is a
        conflict if it started before us, and is waited for if it started after us. Waiting in one direction only can't
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
        outcomes = self.writers.settle_without_waiting(earlier)
        if len(outcomes) < len(earlier):
            raise WriteConflict(
                f"transaction: another writer of the same cells, started before {start}, is about to commit; "
                "run this one again"
            )
        return outcomes | self.writers.settle([other for other in others if other > start])

    def _decide(self, start: int, commit: int) -> int:
        try:
            return self.commits.decide(start, commit)
        except StoreError:
            # The response is lost, but the commit may have succeeded. Values may be removed only if -1 is stored.
            try:
                return self.commits.abort([start])[start]
            except StoreError as error:
                raise CommitUnknown(start) from error

    def _undo(self, start: int, writes: Writes, tables: TablesUsed, protections: TransactionProtections) -> None:
        """Remove our values, then our queue entries, so that a sweep still finds the values after a crash.

        If the store fails here too, values are left behind, which is harmless: the first reader that finds one stores
        -1.
        """
        try:
            if self.commits.abort([start])[start] != ABORTED:
                raise CommitUnknown(start)
            for table, values in writes.items():
                if table in self.store.tables([table]):
                    self.store.delete_versions(table, [(cell, start) for cell in values])
            if self.queue:
                self.queue.withdraw(start, writes, tables)
            if protections:
                protections.finish_abort()
        except StoreError as error:
            log.warning("an aborted transaction left values for the sweep", start=start, reason=error.code)


def lease_lost(start: int) -> TransactionAborted:
    return TransactionAborted(
        f"transaction: the one started at {start} did not renew its lease in time and is considered dead; run it "
        "again, or raise the setting lease_ttl_s",
        reason="lease_lost",
    )


def _conflict(start: int, table: TableRef) -> WriteConflict:
    return WriteConflict(
        f"transaction: another writer committed to cells of {table} after {start}, when this one started; run it again",
        table=table,
    )
