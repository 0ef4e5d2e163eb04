"""Judging entries: plan, apply, park. For those from the queue and for those that were parked before."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sweep_tasks.clock import Clock
from sweep_tasks.model import EVERYTHING, Span, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import ParkedEntry, Parking, Why
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.actions import Actions, Applied
from sweep_tasks.sweep.rules import Entry, Plan, plan
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.commits import ABORTED

_PAGE = 1_000


class Judge:
    def __init__(
        self,
        store: Store,
        strategy: SweepStrategy,
        view: SweepView,
        parking: Parking,
        clock: Clock,
        grace_s: int,
        summary: Summary,
        counted: Counted,
    ) -> None:
        self._strategy = strategy
        self._view = view
        self._parking = parking
        self._clock = clock
        self._grace_ms = grace_s * 1000
        self._summary = summary
        self._counted = counted
        self._dry_run = summary.dry_run
        self._records = ProtectionCatalog(store)
        self._actions = Actions(store, self._dry_run)

    def judge(self, entries: Collection[Entry], protections: Protections) -> None:
        """Entries of the queue: tombstones, then parking. The queue keeps the entry until both are durable."""
        decided = self._plan(entries, protections)
        self._apply(decided)
        self._park(decided.parked)
        self._summary.parked += len(decided.parked)

    def rejudge_parked(self, columns: Span = EVERYTHING) -> None:
        """All parked entries whose hold is gone, in bounded steps: a page of entries, *then* the records.

        A list of records older than the page could lack the record that an entry was parked under in between, and we
        would judge as free what it protects.
        """
        after = b""
        while page := self._parking.page(after, _PAGE, columns):
            protections = self._records.protections()
            hold = page[0].hold
            under = [entry for entry in page if entry.hold == hold]
            due = [entry for entry in under if self._is_due(entry, protections)]
            self._rejudge(due, protections)
            read_on = due if hold.why is not Why.RETENTION else self._may_be_due(under[-1])
            after = under[-1].column() if read_on else self._parking.behind(hold)

    def due_holds(self) -> Iterator[ParkedEntry]:
        """The first entry under each hold that has some which are due, or may have: one look for each hold."""
        after = b""
        while page := self._parking.page(after, 1):
            protections = self._records.protections()
            first = page[0]
            if self._is_due(first, protections) or (first.hold.why is Why.RETENTION and self._may_be_due(first)):
                yield first
            after = self._parking.behind(first.hold)

    def _rejudge(self, due: Collection[ParkedEntry], protections: Protections) -> None:
        """New parking, then tombstones, then the old parking goes: an entry is at any time in one place at least."""
        aborted = Plan()
        committed: list[Entry] = []
        for parked in due:
            table = self._view.name_of(parked.table_id)
            if table is None or table not in self._view.tables:
                continue
            if parked.commit == ABORTED:
                aborted.exact.setdefault(table, []).append((parked.cell, parked.start))
            else:
                committed.append(Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete))
        decided = self._plan(committed, protections)
        self._park(decided.parked)
        self._apply(decided)
        self._apply(aborted)
        if not self._dry_run:
            self._parking.remove(due)
        self._summary.unparked += len(due) - len(decided.parked)

    def _is_due(self, entry: ParkedEntry, protections: Protections) -> bool:
        hold = entry.hold
        if hold.why is Why.PROTECTED:
            return not protections.stands(hold.record, hold.record_ts)
        if hold.why is Why.RETENTION:
            horizon = self._own_horizon(hold.table_id)
            return horizon is None or entry.commit < horizon
        return hold.until_ms <= self._clock.now_ms()

    def _may_be_due(self, last: ParkedEntry) -> bool:
        """Whether entries behind this one, which started later, may be old enough."""
        horizon = self._own_horizon(last.hold.table_id)
        return horizon is None or last.start < horizon

    def _own_horizon(self, table_id: int) -> int | None:
        table: TableRef | None = self._view.name_of(table_id)
        view = self._view.tables.get(table) if table else None
        return view.horizon if view else None

    def _plan(self, entries: Collection[Entry], protections: Protections) -> Plan:
        until_ms = self._clock.now_ms() + self._grace_ms
        return plan(entries, self._strategy, self._view.tables, protections, until_ms)

    def _apply(self, decided: Plan) -> None:
        done: Applied = self._actions.apply(decided, self._view.tables)
        self._counted.ranged.add(done.ranged)
        self._counted.sentinels.add(done.sentinels)
        self._summary.aborted_deletes += done.aborted

    def _park(self, entries: Collection[ParkedEntry]) -> None:
        if not self._dry_run:
            self._parking.park(entries)
