"""Sweeping a table by scanning it: start, resume, pause and cancel a run.

    fresh timestamp → leases → horizon → ranges → publish → table → protections → scan, range by range

The order of steps is that of the targeted sweep, and so is the reason: the threshold is published before protections
and the first page are read. A transaction that could still commit below the threshold has written its values before, so
the scan sees them; a protection that is created later sees the threshold. A run that is resumed, after any time,
publishes and reads again and keeps the sweep timestamp that it started with. So it is resumed only if the table is
still swept as then.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import AlreadyExists, LegacySweepOutdated, NotFound, StoreError, UnknownTable
from sweep_tasks.journal.journal import Act, Detail, Journal
from sweep_tasks.journal.safeguards import record_lowered
from sweep_tasks.legacy.order import LegacyOrder, swept_table
from sweep_tasks.legacy.progress import (
    CANCELLED,
    FAILED,
    INTERRUPTED,
    TAKEN_OVER,
    Run,
    RunProgress,
    Runs,
    RunState,
    Undone,
)
from sweep_tasks.legacy.rules import ScanCounts, TableRules
from sweep_tasks.legacy.scan import MemoryLedger, ScanLedger, ScanLimits, Scanned, Scanner
from sweep_tasks.legacy.strategy_changes import complete_scan, lacked, queue_passed
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, horizon_now, in_table
from sweep_tasks.sweep.rules import TableView
from sweep_tasks.sweep.run import retention_s
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.activity import Activity
from sweep_tasks.tables.pauses import Pauses


@dataclass(slots=True)
class LegacySummary:
    """What a run has done so far. Between processes and in an XCom it is one JSON document."""

    run: str
    table: str
    strategy: SweepStrategy
    sweep_ts: int
    dry_run: bool
    ranges: int
    ranges_done: int
    counts: ScanCounts
    """Counts of the whole run, including earlier attempts."""
    this_time: ScanCounts
    """Counts of this attempt."""
    attempt: int = 1
    stopped: str | None = None
    """Why it stopped before the end of the table: cells, seconds, cancelled, interrupted, taken over, sweeping
    paused."""
    still_due: Undone | None = None
    """Why the scan that a change of strategy requires is still due."""
    workers: int = 0
    """The number of Spark processes that scanned; 0 if one process did everything."""
    seconds: dict[str, float] = field(default_factory=dict)
    engine: str | None = None
    """What carried out the scan. The document of a scan in this process has no such key."""

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON types. `parse` is the inverse."""
        plain = {
            "run": self.run,
            "table": self.table,
            "strategy": self.strategy.value,
            "sweep_ts": self.sweep_ts,
            "dry_run": self.dry_run,
            "ranges": self.ranges,
            "ranges_done": self.ranges_done,
            **self.counts._asdict(),
            "this_time": self.this_time._asdict(),
            "attempt": self.attempt,
            "stopped": self.stopped,
            "still_due": self.still_due.value if self.still_due else None,
            "workers": self.workers,
            "seconds": {phase: round(took, 3) for phase, took in self.seconds.items()},
        }
        return plain if self.engine is None else plain | {"engine": self.engine}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> LegacySummary:
        counts = {name: document[name] for name in ScanCounts._fields}
        return _validator().validate_python({**document, "counts": counts})


@cache
def _validator() -> TypeAdapter[LegacySummary]:
    return TypeAdapter(LegacySummary)


class LegacySweep:
    def __init__(self, store: Store, settings: Settings, clock: Clock, owner: str | None = None) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._runs = Runs(store)

    # --- starting and ending --------------------------------------------------------------------------------------

    def start(
        self,
        order: LegacyOrder,
        horizon: Horizon | None = None,
        take_over: bool = False,
        instead_of: Run | None = None,
        run_id: str | None = None,
    ) -> Run:
        """Start a new run at the beginning of the table or of the order's rows. An active run of the table is not
        interrupted unless `take_over` is set; a paused or cancelled one is dropped. `instead_of` names the run that was
        found to be cut off: the call is refused if another process has replaced it meanwhile."""
        if not order.dry_run:
            Pauses(self._store).check(order.table)
        found = swept_table(self._store, order.table)
        strategy = found.strategy
        if not order.dry_run:
            record_lowered(self._store, self._settings, self._clock)  # before the horizon stores a clock sample
        target = horizon or order.horizon(strategy, self._store, self._settings, self._clock)
        new = Run(
            run_id or new_run_id(),
            order.table,
            target,
            order.scan_ranges(self._store, self._settings),
            self.owner,
            self._clock.now_ms(),
            queue_passed=queue_passed(self._store),
            written=Activity(self._store).ever(order.table),
            strategy=strategy,
            retention_s=retention_s(self._settings, strategy),
            own_retention_s=found.retention_s,
        )
        if order.dry_run:
            return new
        dropped: list[Run] = []

        def start(current: Run | None) -> Run:
            dropped[:] = [current] if current else []
            if current and current.id == new.id:
                return current  # the answer to our earlier request was lost
            may_take_over = take_over and (instead_of is None or (current is not None and current.is_of(instead_of)))
            if current and current.state is RunState.RUNNING and not may_take_over:
                raise active_run(RunProgress(current, self._runs.ranges(current)))
            return replace(new, last=current.last_whole if current else None)

        started = self._runs.change(order.table, start)
        for run in dropped:
            if run.id != started.id:
                self._runs.forget_ranges(run)
        return started

    def resume(self, table: TableRef, known: Run | None = None) -> Run:
        """Resume the unfinished run of the table where it stopped: paused, cancelled or cut off. Refuse if another
        process has changed the run since `known` was read, or if the table may not be swept like that any more."""
        Pauses(self._store).check(table)
        found = swept_table(self._store, table)
        strategy = found.strategy
        record_lowered(self._store, self._settings, self._clock)  # before the horizon stores a clock sample
        sweep_ts = horizon_now(strategy, self._store, self._settings, self._clock).sweep_ts
        ours: Run | None = None

        def resume(current: Run | None) -> Run:
            nonlocal ours
            if current is None or not current.is_open:
                raise NotFound(f"run: {table} has no run to resume; start one", field="run")
            if current == ours:
                return current  # the answer to our earlier request was lost
            if known and not current.is_of(known):
                raise active_run(RunProgress(current, self._runs.ranges(current)))
            if not current.may_continue(strategy, sweep_ts):
                raise LegacySweepOutdated(table, current.id)
            ours = replace(
                current, owner=self.owner, attempt=current.attempt + 1, state=RunState.RUNNING, why=None,
                ended_ms=None, taken_up_ms=self._clock.now_ms(), own_retention_s=found.retention_s,
            )  # fmt: skip
            return ours

        return self._runs.change(table, resume)

    def release(self, table: TableRef) -> bool:
        """Pause the run of a process of the same owner that was killed, so that others need not wait until it counts as
        silent. If it is still alive, it stops after its current page. Return False if there was no such run."""
        done = False

        def pause(current: Run | None) -> Run:
            nonlocal done
            if current is None:
                raise NotFound(f"run: {table} has no run")
            done = current.owner == self.owner and current.state is RunState.RUNNING
            ended_ms = self._clock.now_ms()
            return replace(current, state=RunState.PAUSED, why=INTERRUPTED, ended_ms=ended_ms) if done else current

        with suppress(NotFound):
            self._runs.change(table, pause)
        return done

    def cancel(self, table: TableRef) -> Run:
        """Cancel the run. The process that works on it stops after its next page. The run can be resumed."""

        def cancel(current: Run | None) -> Run:
            if current is None or not current.is_open:
                raise NotFound(f"run: {table} has no run to cancel")
            return replace(current, state=RunState.CANCELLED, why=None, ended_ms=self._clock.now_ms())

        return self._runs.change(table, cancel)

    def progress(self, table: TableRef) -> RunProgress | None:
        return self._runs.progress(table)

    # --- the work -------------------------------------------------------------------------------------------------

    def sweep(self, order: LegacyOrder, horizon: Horizon | None = None, take_over: bool = False) -> LegacySummary:
        """Carry out a new run in this process."""
        return self.work(self.start(order, horizon, take_over), order)

    def work(
        self, run: Run, order: LegacyOrder, watched: Callable[[ScanLedger], ScanLedger] = lambda ledger: ledger
    ) -> LegacySummary:
        """Carry out as much of a run as the order allows, in this process. `watched` may wrap the ledger to follow
        it."""
        ledger: ScanLedger = MemoryLedger() if order.dry_run else self._runs
        with self.open_run(run, order) as (rules, summary):
            scanner = Scanner(self._store, rules, watched(ledger), self.limits(order), self._clock)
            self.add_up(run, summary, self._scan(scanner, run, order.dry_run))
        return summary

    def _scan(self, scanner: Scanner, run: Run, dry_run: bool) -> Iterator[Scanned]:
        for number in self.numbers_left(run, dry_run):
            scanned = scanner.scan(run, number)
            yield scanned
            if scanned.stopped:
                return

    def numbers_left(self, run: Run, dry_run: bool) -> list[int]:
        """Return the numbers of the ranges that are not done."""
        if dry_run:
            return list(range(len(run.scan_ranges)))
        return [number for number, state in enumerate(self._runs.ranges(run)) if not state.done]

    @contextmanager
    def open_run(self, run: Run, order: LegacyOrder) -> Iterator[tuple[TableRules, LegacySummary]]:
        """Surround the work of either engine: yield the rules to judge by and the summary to fill. At the end the run
        is finished, or paused with the reason. The journal has one entry before and one after."""
        began = time.perf_counter()
        try:
            with self._record(run, order.dry_run) as act:
                rules = self._publish(run, order.dry_run)
                summary = LegacySummary(
                    run.id, str(run.table), rules.view.strategy, run.horizon.sweep_ts, order.dry_run,
                    len(run.scan_ranges), 0, ScanCounts(), ScanCounts(), run.attempt,
                )  # fmt: skip
                summary.seconds["publish"] = time.perf_counter() - began
                yield rules, summary
                did = summary.this_time
                act.add(versions=did.versions, deleted=did.deleted, stopped=summary.stopped)
        except BaseException as error:
            if not order.dry_run:
                with suppress(StoreError, NotFound):
                    self._pause(run, INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)
            raise
        summary.seconds["scan"] = time.perf_counter() - began - summary.seconds["publish"]
        if not order.dry_run:
            self._end(run, summary, rules.view)

    def _record(self, run: Run, dry_run: bool) -> AbstractContextManager[Act]:
        if dry_run:
            return nullcontext(Act())
        record_lowered(self._store, self._settings, self._clock)
        standard_s = retention_s(self._settings, run.strategy) if run.retention_s is None else run.retention_s
        details: dict[str, Detail] = {
            "run": run.id,
            "attempt": run.attempt,
            "strategy": run.strategy,
            "sweep_ts": in_table(run.horizon, run.own_retention_s, ClockHistory(self._store)),
            "retention_s": max(standard_s, run.own_retention_s or 0),
        }
        return Journal(self._store, self._clock).record("legacy sweep", str(run.table), **details)

    def _publish(self, run: Run, dry_run: bool) -> TableRules:
        """Publish the threshold, then read the table, then the protections. What is read after the threshold was
        published holds for the whole run.

        The sweep timestamp was computed for the strategy that the table had then, and only the threshold of that
        strategy is raised: tables of another strategy may keep versions for longer. A table with another strategy by
        now is refused."""
        if run.strategy is not None and not dry_run:
            Thresholds(self._store).raise_strategy(run.strategy, run.horizon.sweep_ts)
        view = SweepView.publish(self._store, run.horizon, dry_run, [run.table]).tables.get(run.table)
        if view is None:
            raise UnknownTable(run.table)
        if view.strategy is not run.strategy:
            raise LegacySweepOutdated(run.table, run.id)
        protections = ProtectionCatalog(self._store).protections()
        cap = self._settings.max_tombstones_per_partition
        return TableRules(run.table, view, run.horizon.sweep_ts, protections, cap)

    def limits(self, order: LegacyOrder, workers: int = 1, ranges: int = 1) -> ScanLimits:
        """Return the limits of each worker, if this many workers and ranges share the work."""
        until_ms = self._clock.now_ms() + round(order.max_seconds * 1000) if order.max_seconds else None
        return ScanLimits(
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
            existing = RunProgress(run, self._runs.ranges(run))
            summary.counts, summary.ranges_done = existing.counts, existing.done

    def _end(self, run: Run, summary: LegacySummary, view: TableView) -> None:
        """Finish or pause the run. Its ranges are removed only if the run is still ours: a process that has resumed it
        needs them."""
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
            summary.still_due = complete_scan(self._store, stands)
        elif summary.stopped and summary.stopped not in (CANCELLED, TAKEN_OVER):
            self._pause(run, summary.stopped)

    def _pause(self, run: Run, why: str) -> None:
        self._runs.change_own(run, state=RunState.PAUSED, ended_ms=self._clock.now_ms(), why=why)


def new_run_id() -> str:
    return uuid.uuid4().hex[:12]


def active_run(existing: RunProgress) -> AlreadyExists:
    """The error for a table that another run is sweeping."""
    run = existing.run
    return AlreadyExists(
        f"table: {run.table} is being swept by run {run.id} of {run.owner} since {from_ms(run.started_ms)}, last "
        f"active at {from_ms(existing.heard_of_ms)}; wait for it, or cancel it ('sweepflow legacy-sweep {run.table} "
        "--cancel') and resume it manually; a run that stays inactive is resumed automatically (setting "
        "legacy_silent_s)",
        table=run.table,
        run=run.id,
        owner=run.owner,
    )
