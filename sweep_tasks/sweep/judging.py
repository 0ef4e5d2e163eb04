"""Judges entries: plans what they remove, applies the plan and parks what has to wait.

Used for entries of the queue and for entries that were parked before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from sweep_tasks.clock import Clock
from sweep_tasks.model import EVERYTHING, MAX_TS, Span, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, Tracker
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import WAITING_FOR_REPLICAS, Hold, HoldReason, ParkedEntry, Parking
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.actions import Actions, Applied
from sweep_tasks.sweep.rules import Entry, Plan, TableView, parked, plan
from sweep_tasks.sweep.summary import Summary, SweepCounts, written
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.outcomes import ABORTED

_PAGE = 1_000
_PROBE = 50
"""Entries in a page that only shows whether a large hold is due."""
_LIMITED = (HoldReason.PROTECTED, HoldReason.RETENTION, HoldReason.PAUSED)
"""The holds whose end may make any number of entries due at once."""
_NEVER = -2
"""Below every commit timestamp, -1 for aborted included."""


class Judge:
    """Judges the entries of one strategy and shard during one sweep."""

    def __init__(
        self,
        store: Store,
        strategy: SweepStrategy,
        view: SweepView,
        parking: Parking,
        clock: Clock,
        grace_s: int,
        summary: Summary,
        counted: SweepCounts,
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
        """Judge entries of the queue: plan what they remove, and carry it out."""
        self.carry_out(self.plan(entries, protections))
        self._counted.add_written(written(entries))

    def plan(self, entries: Iterable[Entry], protections: Protections) -> Plan:
        return self._plan(entries, protections, self._view.tables)

    def carry_out(self, decided: Plan) -> None:
        """Write tombstones, then park. The queue keeps an entry until both are durable."""
        parking = [*decided.parked, *self._apply(decided)]
        self._park(parking)
        self._summary.parked += len(parking)

    def rejudge_parked(
        self, columns: Span = EVERYTHING, at_most: int = 0, after_page: Callable[[], None] = lambda: None
    ) -> None:
        """Judge all parked entries that are due, page by page: first a page of entries, *then* the protection records.

        `at_most` limits how many entries are judged after a protection, a retention or a pause has ended (0 means no
        limit); the next run judges the rest. The records must be newer than the page: an older list could lack the
        record that an entry was parked under meanwhile, and its versions would be removed.

        Entries of a paused table are not moved to another hold: one that waits for replicas must be retried as such,
        and one that waits for a slow writer keeps its time.
        """
        after, judged = b"", 0
        most = size = min(_PAGE, at_most or _PAGE)
        while (page := self._parking.page(after, size, columns)).entries:
            protections = self._records.refresh().protections
            below = {hold: self._due_below(hold, protections) for hold in page.holds}
            due = [
                entry
                for entry in page.entries
                if entry.commit < below[entry.hold] and not self._is_paused(entry.table_id)
            ]
            for entries, tables in self._by_tables(due):
                finished = self._rejudge(entries, protections, tables)
                if not self._dry_run:
                    self._parking.remove(finished, page.as_of)
                judged += sum(entry.hold.why in _LIMITED for entry in finished)
            last = page.entries[-1]
            read_on = last.start < below[last.hold]
            after = last.column() if read_on else self._parking.behind(last.hold)
            size = most if read_on or len(below) > 1 else min(_PROBE, most)
            after_page()
            if at_most and judged >= at_most:
                return

    def due_holds(self) -> Iterator[ParkedEntry]:
        """Yield the first entry of each hold that has or may have entries that are due."""
        after = b""
        while (page := self._parking.page(after, _PROBE)).entries:
            protections = self._records.refresh().protections
            for hold, first in page.holds.items():
                if first.start < self._due_below(hold, protections):
                    yield first
            after = self._parking.behind(page.entries[-1].hold)

    def _rejudge(
        self, due: Collection[ParkedEntry], protections: Protections, tables: Mapping[TableRef, TableView]
    ) -> list[ParkedEntry]:
        """Judge parked entries and return those to remove from where they were parked.

        The order is: park under the new hold, write tombstones, then the caller removes the old parking. So an entry is
        always stored in at least one place. Only writing the tombstones shows if an entry must wait for replicas. One
        that already waited for them stays parked as it is.
        """
        aborted = Plan()
        judged: list[Entry] = []
        for held in due:
            table = self._view.name_of(held.table_id)
            if table is None or table not in tables:
                continue
            if held.commit == ABORTED and held.hold.why is HoldReason.GRACE:
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

    def _due_below(self, hold: Hold, protections: Protections) -> int:
        """Return the timestamp below which entries under this hold can be judged now, by their commit timestamp. Once
        an entry has started at or above it, no later one under the hold has committed below it.

        It is never above the threshold that this sweep published. Another sweep with a higher one may have parked an
        entry, and its table may have been given a retention after this sweep read the tables. Aborted writes are
        invisible to every reader, so they are due as soon as their grace period is over.
        """
        if hold.why is HoldReason.GRACE:
            return MAX_TS if hold.until_ms <= self._clock.now_ms() else _NEVER
        if hold.why is HoldReason.PROTECTED:
            return min(self._sweep_ts, protections.frees_below(hold.record, hold.record_ts))
        if hold.table_id and self._is_paused(hold.table_id):
            return _NEVER
        own = self._own_horizon(hold.table_id) if hold.why is HoldReason.RETENTION else None
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

    def _by_tables(
        self, due: Collection[ParkedEntry]
    ) -> Iterator[tuple[list[ParkedEntry], Mapping[TableRef, TableView]]]:
        """Yield the entries with the tables to judge them with. Entries that wait for replicas are retried without a
        check of the stored versions: a read would not show versions that only an unavailable replica still holds."""
        retried = [entry for entry in due if entry.hold.why is HoldReason.REPLICAS]
        others = [entry for entry in due if entry.hold.why is not HoldReason.REPLICAS]
        if retried:
            unchecked = {t: view._replace(check_first=False, mark=0) for t, view in self._view.tables.items()}
            yield retried, unchecked
        if others:
            yield others, self._view.tables

    def _plan(self, entries: Iterable[Entry], protections: Protections, tables: Mapping[TableRef, TableView]) -> Plan:
        until_ms = self._clock.now_ms() + self._grace_ms
        return plan(entries, self._strategy, tables, protections, until_ms)

    def _apply(self, decided: Plan) -> list[ParkedEntry]:
        """Apply a plan, and return the entries that must wait for replicas."""
        done: Applied = self._actions.apply(decided, self._view.tables)
        self._counted.ranged.add(done.ranged)
        self._counted.sentinels.add(done.sentinels)
        self._counted.deleted.merge(done.deleted)
        self._summary.aborted_deletes += done.aborted
        return [parked(entry, WAITING_FOR_REPLICAS) for entry in done.waiting]

    def _park(self, entries: Collection[ParkedEntry]) -> None:
        if not self._dry_run:
            self._parking.park(entries)
