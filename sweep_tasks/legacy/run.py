"""Sweeping a table by scanning it: begin, go on, stop, and tell how far it is.

    fresh timestamp → leases → how far → ranges → publish → table → protections → scan, range by range

The order is that of the targeted sweep, and so is the argument: the threshold is published before protections are read
and before the first page is. Whoever could still commit below it had written its values before, so the scan meets them;
whoever protects later sees the threshold. A run that is taken up again, after whatever time, publishes and reads again
and goes on with the sweep timestamp it began with; so it goes on only if the table is still swept as it was then.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.errors import LegacySweepOutdated, LegacySweepRunning, NotFound, StoreError, UnknownTable
from sweep_tasks.legacy.counts import Counts
from sweep_tasks.legacy.due import Undone
from sweep_tasks.legacy.order import LegacyOrder, swept_strategy
from sweep_tasks.legacy.progress import (
    CANCELLED,
    FAILED,
    INTERRUPTED,
    TAKEN_OVER,
    Run,
    Runs,
    RunState,
    Standing,
)
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.legacy.scan import Ledger, Limits, Passing, Scanned, Scanner
from sweep_tasks.legacy.settling import lacked, queue_passed, settle
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Activity
from sweep_tasks.sweep.horizon import Horizon, horizon_now
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.rules import TableView
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.thresholds import Thresholds


@dataclass(slots=True)
class LegacySummary:
    """What a run has done by now, as a document that a person or a program reads."""

    run: str
    table: str
    strategy: SweepStrategy
    sweep_ts: int
    dry_run: bool
    ranges: int
    ranges_done: int
    counts: Counts
    """Of the whole run, earlier attempts included."""
    this_time: Counts
    """Of this attempt."""
    attempt: int = 1
    stopped: str | None = None
    """Why it ended before the end of the table: cells, seconds, cancelled, interrupted, taken over, sweeping paused."""
    still_due: Undone | None = None
    """Why what a change of strategy has left was not done by it."""
    workers: int = 0
    """Processes of Spark that scanned; none where one process did everything."""
    seconds: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "table": self.table,
            "strategy": self.strategy,
            "sweep_ts": self.sweep_ts,
            "dry_run": self.dry_run,
            "ranges": self.ranges,
            "ranges_done": self.ranges_done,
            **self.counts._asdict(),
            "this_time": self.this_time._asdict(),
            "attempt": self.attempt,
            "stopped": self.stopped,
            "still_due": self.still_due,
            "workers": self.workers,
            "seconds": {phase: round(took, 3) for phase, took in self.seconds.items()},
        }


class LegacySweep:
    def __init__(self, store: Store, settings: Settings, clock: Clock, owner: str | None = None) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._runs = Runs(store)

    # --- beginning and ending -------------------------------------------------------------------------------------

    def start(
        self,
        order: LegacyOrder,
        horizon: Horizon | None = None,
        take_over: bool = False,
        instead_of: Run | None = None,
        run_id: str | None = None,
    ) -> Run:
        """A new run, from the start of the table or of the order's rows. One that is under way on the table is not
        interrupted, unless asked for; one that is paused or cancelled is dropped. Who takes over what it knows to be
        cut off names it: another may have been quicker."""
        if not order.dry_run:
            Pauses(self._store).check(order.table)
        strategy = swept_strategy(self._store, order.table)
        target = horizon or order.horizon(strategy, self._store, self._settings, self._clock)
        new = Run(
            run_id or new_run_id(),
            order.table,
            target,
            order.stretches(self._store, self._settings),
            self.owner,
            self._clock.now_ms(),
            queue_passed=queue_passed(self._store),
            written=Activity(self._store).ever(order.table),
            strategy=strategy,
        )
        if order.dry_run:
            return new
        dropped: list[Run] = []

        def begun(current: Run | None) -> Run:
            dropped[:] = [current] if current else []
            if current and current.id == new.id:
                return current  # our answer was lost
            may_take_over = take_over and (instead_of is None or (current is not None and current.is_of(instead_of)))
            if current and current.state is RunState.RUNNING and not may_take_over:
                raise under_way(Standing(current, self._runs.ranges(current)))
            return replace(new, last=current.last_whole if current else None)

        started = self._runs.change(order.table, begun)
        for run in dropped:
            if run.id != started.id:
                self._runs.forget_ranges(run)
        return started

    def resume(self, table: TableRef, known: Run | None = None) -> Run:
        """The run of the table that is not finished, taken up where it stands: paused, cancelled, or cut off. Whoever
        decided that by what it knew of the run is refused if somebody else was quicker, and everybody if the table may
        not be swept like that any more."""
        Pauses(self._store).check(table)
        strategy = swept_strategy(self._store, table)
        reach = horizon_now(strategy, self._store, self._settings, self._clock).sweep_ts
        ours: Run | None = None

        def taken_up(current: Run | None) -> Run:
            nonlocal ours
            if current is None or not current.is_open:
                raise NotFound(f"run: {table} has none to go on with; start one", field="run")
            if current == ours:
                return current  # our answer was lost
            if known and not current.is_of(known):
                raise under_way(Standing(current, self._runs.ranges(current)))
            if not current.may_go_on(strategy, reach):
                raise LegacySweepOutdated(table, current.id)
            ours = replace(
                current, owner=self.owner, attempt=current.attempt + 1, state=RunState.RUNNING, why=None,
                ended_ms=None, taken_up_ms=self._clock.now_ms(),
            )  # fmt: skip
            return ours

        return self._runs.change(table, taken_up)

    def let_go(self, table: TableRef) -> bool:
        """Whoever was at work under our name was ended from outside. Others need not wait until that counts as silent,
        and if it should still be alive it stops behind its page. False if there was nothing to let go of."""
        done = False

        def paused(current: Run | None) -> Run:
            nonlocal done
            if current is None:
                raise NotFound(f"run: {table} has none")
            done = current.owner == self.owner and current.state is RunState.RUNNING
            ended_ms = self._clock.now_ms()
            return replace(current, state=RunState.PAUSED, why=INTERRUPTED, ended_ms=ended_ms) if done else current

        with suppress(NotFound):
            self._runs.change(table, paused)
        return done

    def cancel(self, table: TableRef) -> Run:
        """Whoever works on it stops behind its next page. It can be taken up again."""

        def cancelled(current: Run | None) -> Run:
            if current is None or not current.is_open:
                raise NotFound(f"run: {table} has none that could be cancelled")
            return replace(current, state=RunState.CANCELLED, why=None, ended_ms=self._clock.now_ms())

        return self._runs.change(table, cancelled)

    def standing(self, table: TableRef) -> Standing | None:
        return self._runs.standing(table)

    # --- the work -------------------------------------------------------------------------------------------------

    def sweep(self, order: LegacyOrder, horizon: Horizon | None = None, take_over: bool = False) -> LegacySummary:
        """All of a new run, in this process."""
        return self.work(self.start(order, horizon, take_over), order)

    def work(
        self, run: Run, order: LegacyOrder, watched: Callable[[Ledger], Ledger] = lambda ledger: ledger
    ) -> LegacySummary:
        """As much of a run as the order allows, in this process. Who wants to watch stands in for the ledger."""
        ledger: Ledger = Passing() if order.dry_run else self._runs
        with self.working(run, order) as (rules, summary):
            scanner = Scanner(self._store, rules, watched(ledger), self.limits(order), self._clock)
            self.add_up(run, summary, self._scanned(scanner, run, order.dry_run))
        return summary

    def _scanned(self, scanner: Scanner, run: Run, dry_run: bool) -> Iterator[Scanned]:
        for number in self.numbers_left(run, dry_run):
            scanned = scanner.scan(run, number)
            yield scanned
            if scanned.stopped:
                return

    def numbers_left(self, run: Run, dry_run: bool) -> list[int]:
        """Of the ranges that are not done."""
        if dry_run:
            return list(range(len(run.stretches)))
        return [number for number, state in enumerate(self._runs.ranges(run)) if not state.done]

    @contextmanager
    def working(self, run: Run, order: LegacyOrder) -> Iterator[tuple[TableRules, LegacySummary]]:
        """Around the work, whoever does it: what it is decided by, and a summary to be added up. In the end the run is
        finished, or paused with the reason."""
        began = time.perf_counter()
        try:
            rules = self._published(run, order.dry_run)
            summary = LegacySummary(
                run.id, str(run.table), rules.view.strategy, run.horizon.sweep_ts, order.dry_run, len(run.stretches),
                0, Counts(), Counts(), run.attempt,
            )  # fmt: skip
            summary.seconds["publish"] = time.perf_counter() - began
            yield rules, summary
        except BaseException as error:
            if not order.dry_run:
                with suppress(StoreError, NotFound):
                    self._pause(run, INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)
            raise
        summary.seconds["scan"] = time.perf_counter() - began - summary.seconds["publish"]
        if not order.dry_run:
            self._end(run, summary, rules.view)

    def _published(self, run: Run, dry_run: bool) -> TableRules:
        """The threshold, then the table, then the protections. What is read after the threshold was published holds for
        all of the run.

        The sweep timestamp was found for the strategy that the table had then, and only that one's threshold is raised
        to it: the tables of another may keep for longer. A table that has another strategy by now is left alone."""
        if run.strategy is not None and not dry_run:
            Thresholds(self._store).raise_strategy(run.strategy, run.horizon.sweep_ts)
        view = SweepView.published(self._store, run.horizon, dry_run, [run.table]).tables.get(run.table)
        if view is None:
            raise UnknownTable(run.table)
        if view.strategy is not run.strategy:
            raise LegacySweepOutdated(run.table, run.id)
        protections = ProtectionCatalog(self._store).protections()
        cap = self._settings.max_tombstones_per_partition
        return TableRules(run.table, view, run.horizon.sweep_ts, protections, cap)

    def limits(self, order: LegacyOrder, workers: int = 1, ranges: int = 1) -> Limits:
        """For each of so many who share the work."""
        until_ms = self._clock.now_ms() + round(order.max_seconds * 1000) if order.max_seconds else None
        return Limits(
            order.batch or self._settings.legacy_batch_versions,
            self._settings.legacy_versions_per_s / workers,
            max(1, order.max_cells // ranges) if order.max_cells else 0,
            until_ms,
            order.dry_run,
        )

    def add_up(self, run: Run, summary: LegacySummary, scanned: Iterable[Scanned]) -> None:
        for each in scanned:
            summary.this_time = summary.this_time.plus(each.counts)
            summary.ranges_done += each.state.done
            summary.stopped = each.stopped or summary.stopped
        summary.counts = summary.this_time
        if not summary.dry_run:
            standing = Standing(run, self._runs.ranges(run))
            summary.counts, summary.ranges_done = standing.counts, standing.done

    def _end(self, run: Run, summary: LegacySummary, view: TableView) -> None:
        """Only who still has the run forgets its ranges: whoever took it up goes by them."""
        if summary.ranges_done == summary.ranges:
            sweep_ts = run.horizon.sweep_ts
            went_up_to = sweep_ts if view.horizon is None else min(view.horizon, sweep_ts)
            stands = self._runs.change_own(
                run, state=RunState.FINISHED, ended_ms=self._clock.now_ms(), counts=summary.counts, why=None,
                went_up_to=went_up_to, lacked=lacked(self._store, run, went_up_to),
            )  # fmt: skip
            if not stands.is_of(run):
                summary.stopped = summary.stopped or TAKEN_OVER
                return
            self._runs.forget_ranges(run)
            summary.still_due = settle(self._store, stands)
        elif summary.stopped and summary.stopped not in (CANCELLED, TAKEN_OVER):
            self._pause(run, summary.stopped)

    def _pause(self, run: Run, why: str) -> None:
        self._runs.change_own(run, state=RunState.PAUSED, ended_ms=self._clock.now_ms(), why=why)


def new_run_id() -> str:
    return uuid.uuid4().hex[:12]


def under_way(standing: Standing) -> LegacySweepRunning:
    run = standing.run
    return LegacySweepRunning(
        run.table, run.id, run.owner, str(from_ms(run.started_ms)), str(from_ms(standing.heard_of_ms))
    )
