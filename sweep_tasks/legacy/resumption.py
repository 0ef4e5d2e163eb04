"""Whether a scan starts a new run or resumes the one of the table.

A table has one run at a time. A run that another process works on is left alone, and the error names its owner. A
process reports with every page; a run that was silent for too long was cut off, and may be resumed like one that was
paused or cancelled. Resuming a run counts as a report. A run is resumed if it covers the rows of the order, so the same
order, given again and again, completes the scan. A run of other rows is dropped only by a restart, or by a scheduled
scan, which would otherwise never scan its table again. Scheduled scans skip a table whose run was cancelled. All this
only saves work: two processes that scan the same range do the work twice and no harm.

One rule is about safety: a run uses the strategy and the retention that the table had when the run started. If they
have changed, the run is not resumed but started from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import AlreadyExists
from sweep_tasks.journal.safeguards import record_lowered
from sweep_tasks.legacy.order import LegacyOrder, swept_table
from sweep_tasks.legacy.progress import RangeState, Run, RunProgress, Runs, RunState
from sweep_tasks.legacy.run import LegacySweep, active_run
from sweep_tasks.legacy.scan import ScanLedger
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import horizon_now


class Begin(StrEnum):
    START = "start"
    RESUME = "resume"
    TAKE_OVER = "take over"
    """Start from the beginning although there is an unfinished run: it is of no use for the order."""


class Now(NamedTuple):
    """The state of the table and the time when an order arrives."""

    begins_at: bytes
    """Where the order starts, as the store encodes it."""
    strategy: SweepStrategy
    sweep_ts: int
    """The greatest timestamp that the table may be swept to."""
    now_ms: int
    silent_ms: int


def how_to_begin(
    existing: RunProgress,
    order: LegacyOrder,
    now: Now,
    *,
    restart: bool = False,
    owner: str = "",
    scheduled: bool = False,
) -> Begin:
    """Decide how to start. Refuse with the owner's name if another process works on the run. A retry of the same owner
    does not wait until its earlier attempt counts as silent, and does not restart a second time."""
    run = existing.run
    if not run.is_open:
        return Begin.START
    ours = run.owner == owner
    if is_at_work(existing, now.now_ms, now.silent_ms) and not ours:
        raise active_run(existing)
    if scheduled and run.state is RunState.CANCELLED:
        raise AlreadyExists(
            f"table: run {run.id} of {run.table} was cancelled; scheduled sweeps skip the table until the run is "
            f"resumed ('sweepflow legacy-sweep {run.table}') or started from the beginning ('--restart')",
            run=run.id,
        )
    if not run.may_continue(now.strategy, now.sweep_ts):
        return Begin.TAKE_OVER
    same_rows = run.scan_ranges[0].first == now.begins_at
    wanted = same_rows and (order.stop_at is None or run.horizon.sweep_ts <= order.stop_at)
    if not (wanted or restart or scheduled or ours):
        raise AlreadyExists(
            f"table: run {run.id} of {run.table}, owned by {run.owner}, has finished {existing.done} of "
            f"{len(existing.ranges)} ranges; it covers other rows, or has a later sweep timestamp than requested. "
            f"Finish it first ('sweepflow legacy-sweep {run.table} --status' shows it), or discard it and start from "
            "the beginning ('--restart', Restart in the form of the DAG)",
            table=run.table,
            run=run.id,
            owner=run.owner,
            done=existing.done,
            ranges=len(existing.ranges),
        )
    return Begin.RESUME if wanted and (ours or not restart) else Begin.TAKE_OVER


def decide_start(
    store: Store,
    settings: Settings,
    clock: Clock,
    order: LegacyOrder,
    *,
    restart: bool,
    owner: str,
    scheduled: bool = False,
) -> tuple[Begin, RunProgress | None]:
    """Read the run of the table and decide how to start. Return the decision and the run that it is based on."""
    existing = None if order.dry_run else Runs(store).progress(order.table)
    if existing is None:
        return Begin.START, None
    strategy = swept_table(store, order.table).strategy
    record_lowered(store, settings, clock)  # the horizon stores a clock sample, which depends on the settings
    sweep_ts = horizon_now(strategy, store, settings, clock).sweep_ts
    now = Now(order.begins_at(store), strategy, sweep_ts, clock.now_ms(), settings.legacy_silent_s * 1000)
    return how_to_begin(existing, order, now, restart=restart, owner=owner, scheduled=scheduled), existing


def is_at_work(existing: RunProgress, now_ms: int, silent_ms: int) -> bool:
    return existing.run.state is RunState.RUNNING and now_ms - existing.heard_of_ms < silent_ms


def start_run(
    sweep: LegacySweep, order: LegacyOrder, how: Begin, existing: RunProgress | None = None, run_id: str | None = None
) -> Run:
    """Start or resume the run, unless another process has changed it since the decision."""
    known = existing.run if existing else None
    if how is Begin.RESUME:
        return sweep.resume(order.table, known)
    return sweep.start(order, take_over=how is Begin.TAKE_OVER, instead_of=known, run_id=run_id)


class Watched:
    """A ledger that also reports every change of a range."""

    def __init__(self, ledger: ScanLedger, report: Callable[[int, RangeState], None]) -> None:
        self._ledger = ledger
        self._report = report

    def range(self, run: Run, number: int) -> RangeState:
        return self._ledger.range(run, number)

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:
        existing = self._ledger.advance(run, number, known, new)
        self._report(number, existing)
        return existing

    def stop_reason(self, run: Run) -> str | None:
        return self._ledger.stop_reason(run)
