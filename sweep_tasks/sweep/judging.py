"""Judging entries: plan, apply, park. For those from the queue and for those that were parked before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from sweep_tasks.clock import Clock
from sweep_tasks.model import EVERYTHING, MAX_TS, Span, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.protection.tracker import Tracker
from sweep_tasks.queue.parking import WAITING_FOR_REPLICAS, Hold, ParkedEntry, Parking, Why
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.actions import Actions, Applied
from sweep_tasks.sweep.activity import written
from sweep_tasks.sweep.rules import Entry, Plan, TableView, parked, plan
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.commits import ABORTED

_PAGE = 1_000
_NEVER = -2
"""Below every commit timestamp, -1 for aborted included."""


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
        self._sweep_ts = summary.sweep_ts
        self._records = Tracker(ProtectionCatalog(store))
        self._actions = Actions(store, self._dry_run)

    def judge(self, entries: Collection[Entry], protections: Protections) -> None:
        """Entries of the queue: tombstones, then parking. The queue keeps the entry until both are durable."""
        decided = self._plan(entries, protections, self._view.tables)
        parking = [*decided.parked, *self._apply(decided)]
        self._park(parking)
        self._summary.parked += len(parking)
        self._counted.add_written(written(entries))

    def rejudge_parked(
        self, columns: Span = EVERYTHING, at_most: int = 0, after_page: Callable[[], None] = lambda: None
    ) -> None:
        """All parked entries whose hold is gone, in bounded steps: a page of entries, *then* the records. Of those that
        a protection, a retention or a pause has let go, about `at_most`, unless that is 0; the next run goes on with
        the rest.

        A list of records older than the page could lack the record that an entry was parked under in between, and we
        would judge as free what it protects.
        """
        after, taken_up = b"", 0
        size = min(_PAGE, at_most or _PAGE)
        while (page := self._parking.page(after, size, columns)).entries:
            protections = self._records.refresh().protections
            hold = page.entries[0].hold
            under = [entry for entry in page.entries if entry.hold == hold]
            due = [entry for entry in under if self._is_due(entry, protections)]
            left = self._rejudge(due, protections, self._tables_for(hold.why))
            if not self._dry_run:
                self._parking.remove(left, page.as_of)
            read_on = self._may_be_due(under[-1], protections)
            after = under[-1].column() if read_on else self._parking.behind(hold)
            taken_up += len(left) if hold.why in (Why.PROTECTED, Why.RETENTION, Why.PAUSED) else 0
            after_page()
            if at_most and taken_up >= at_most:
                return

    def due_holds(self) -> Iterator[ParkedEntry]:
        """The first entry under each hold that has some which are due, or may have: one look for each hold."""
        after = b""
        while found := self._parking.page(after, 1).entries:
            protections = self._records.refresh().protections
            first = found[0]
            if self._may_be_due(first, protections):
                yield first
            after = self._parking.behind(first.hold)

    def _rejudge(
        self, due: Collection[ParkedEntry], protections: Protections, tables: Mapping[TableRef, TableView]
    ) -> list[ParkedEntry]:
        """New parking, then tombstones, then the old parking goes: an entry is at any time in one place at least.
        Returned is what leaves the place it was in.

        Whether an entry must wait for replicas is known after the tombstones. One that waited for them before stays
        where it is.
        """
        aborted = Plan()
        judged: list[Entry] = []
        for held in due:
            table = self._view.name_of(held.table_id)
            if table is None or table not in tables:
                continue
            if held.commit == ABORTED and held.hold.why is Why.GRACE:
                aborted.exact.setdefault(table, []).append((held.cell, held.start))
            else:
                judged.append(Entry(table, held.table_id, held.cell, held.start, held.commit, held.delete))
        decided = self._plan(judged, protections, tables)
        self._park(decided.parked)
        waiting = set(self._apply(decided))
        self._apply(aborted)
        self._park(waiting.difference(due))
        self._summary.unparked += len(due) - len(decided.parked) - len(waiting)
        return [held for held in due if held not in waiting]

    def _is_due(self, entry: ParkedEntry, protections: Protections) -> bool:
        """What a paused table has waiting stays where it is, whatever it waits for: what waits for replicas must be
        tried again as such, and what waits for a slow writer has waited."""
        return not self._is_paused(entry.table_id) and entry.commit < self._reach(entry.hold, protections)

    def _may_be_due(self, entry: ParkedEntry, protections: Protections) -> bool:
        """Whether this one or another behind it, under the same hold and started later, is due."""
        return entry.start < self._reach(entry.hold, protections)

    def _reach(self, hold: Hold, protections: Protections) -> int:
        """Of what was parked under this hold, what committed below the answer may be judged here and now.

        Never beyond the threshold that this sweep published: whatever was parked by another that went further, its
        table may have been given a retention since we looked. Aborted writes are seen by nobody and may go whenever
        their time has come.
        """
        if hold.why is Why.GRACE:
            return MAX_TS if hold.until_ms <= self._clock.now_ms() else _NEVER
        if hold.why is Why.PROTECTED:
            return min(self._sweep_ts, protections.frees_below(hold.record, hold.record_ts))
        if hold.table_id and self._is_paused(hold.table_id):
            return _NEVER
        own = self._own_horizon(hold.table_id) if hold.why is Why.RETENTION else None
        return self._sweep_ts if own is None else min(own, self._sweep_ts)

    def _own_horizon(self, table_id: int) -> int | None:
        view = self._table(table_id)
        return view.horizon if view else None

    def _is_paused(self, table_id: int) -> bool:
        view = self._table(table_id)
        return view is not None and view.paused

    def _table(self, table_id: int) -> TableView | None:
        table: TableRef | None = self._view.name_of(table_id)
        return self._view.tables.get(table) if table else None

    def _tables_for(self, why: Why) -> Mapping[TableRef, TableView]:
        """What waits for replicas is tried again without a look: there was something to remove, and what only a missing
        copy has left of it a look would not show."""
        if why is not Why.REPLICAS:
            return self._view.tables
        return {table: view._replace(look_first=False, mark=0) for table, view in self._view.tables.items()}

    def _plan(self, entries: Collection[Entry], protections: Protections, tables: Mapping[TableRef, TableView]) -> Plan:
        until_ms = self._clock.now_ms() + self._grace_ms
        return plan(entries, self._strategy, tables, protections, until_ms)

    def _apply(self, decided: Plan) -> list[ParkedEntry]:
        """What must wait for replicas."""
        done: Applied = self._actions.apply(decided, self._view.tables)
        self._counted.ranged.add(done.ranged)
        self._counted.sentinels.add(done.sentinels)
        self._counted.deleted.merge(done.deleted)
        self._summary.aborted_deletes += done.aborted
        return [parked(entry, WAITING_FOR_REPLICAS) for entry in done.waiting]

    def _park(self, entries: Collection[ParkedEntry]) -> None:
        if not self._dry_run:
            self._parking.park(entries)
