"""Begin a new run on a table, or go on with the one that is there?

A table has one run at a time. One that somebody works on is left alone, and who asks is told whose it is. Whoever works
is heard of with every page; one that was silent for too long was cut off, and may be taken up like one that was paused
or cancelled. Whoever takes one up is heard of by that. A run is gone on with if it is one of the rows that are asked
for: so the same order, given again and again, gets to the end. One of other rows is dropped only by whoever says so, or
by turns, which would never come to their table again otherwise; and turns leave a table alone whose run was cancelled.
This only saves work: two who scan the same range do it twice and no harm.

One thing is about safety: a run goes by the strategy and the retention that the table was swept by when it began. If
they have changed it is not gone on with but begun anew.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import LegacySweepCancelled, LegacySweepOfOtherRows
from sweep_tasks.legacy.order import LegacyOrder, swept_strategy
from sweep_tasks.legacy.progress import RangeState, Run, Runs, RunState, Standing
from sweep_tasks.legacy.run import LegacySweep, under_way
from sweep_tasks.legacy.scan import Ledger
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import horizon_now


class Begin(StrEnum):
    START = "start"
    RESUME = "resume"
    TAKE_OVER = "take over"
    """Begin anew although there is a run that could be gone on with: it is of no use for the order."""


class Now(NamedTuple):
    """What an order meets."""

    begins_at: bytes
    """Where the order begins, as its store tells."""
    strategy: SweepStrategy
    reach: int
    """How far the table may be swept."""
    now_ms: int
    silent_ms: int


def how_to_begin(
    standing: Standing, order: LegacyOrder, now: Now, *, anew: bool = False, owner: str = "", by_turns: bool = False
) -> Begin:
    """Refused with the name of who is at work, if somebody is. Who tries again what was cut off under its own name need
    not wait until that counts as silent, nor does it begin anew a second time what it was asked to begin anew."""
    run = standing.run
    if not run.is_open:
        return Begin.START
    ours = run.owner == owner
    if is_at_work(standing, now.now_ms, now.silent_ms) and not ours:
        raise under_way(standing)
    if by_turns and run.state is RunState.CANCELLED:
        raise LegacySweepCancelled(run.table, run.id)
    if not run.may_go_on(now.strategy, now.reach):
        return Begin.TAKE_OVER
    same_rows = run.stretches[0].first == now.begins_at
    wanted = same_rows and (order.stop_at is None or run.horizon.sweep_ts <= order.stop_at)
    if not (wanted or anew or by_turns or ours):
        raise LegacySweepOfOtherRows(run.table, run.id, run.owner, standing.done, len(standing.ranges))
    return Begin.RESUME if wanted and (ours or not anew) else Begin.TAKE_OVER


def looked_at(
    store: Store,
    settings: Settings,
    clock: Clock,
    order: LegacyOrder,
    *,
    anew: bool,
    owner: str,
    by_turns: bool = False,
) -> tuple[Begin, Standing | None]:
    """How to begin, and what was found on record when that was decided."""
    standing = None if order.dry_run else Runs(store).standing(order.table)
    if standing is None:
        return Begin.START, None
    strategy = swept_strategy(store, order.table)
    reach = horizon_now(strategy, store, settings, clock).sweep_ts
    now = Now(order.begins_at(store), strategy, reach, clock.now_ms(), settings.legacy_silent_s * 1000)
    return how_to_begin(standing, order, now, anew=anew, owner=owner, by_turns=by_turns), standing


def is_at_work(standing: Standing, now_ms: int, silent_ms: int) -> bool:
    return standing.run.state is RunState.RUNNING and now_ms - standing.heard_of_ms < silent_ms


def begun(
    sweep: LegacySweep, order: LegacyOrder, how: Begin, standing: Standing | None = None, run_id: str | None = None
) -> Run:
    """By what was known when that was decided: who was quicker is left alone."""
    known = standing.run if standing else None
    if how is Begin.RESUME:
        return sweep.resume(order.table, known)
    return sweep.start(order, take_over=how is Begin.TAKE_OVER, instead_of=known, run_id=run_id)


class Watched:
    """A ledger that also tells somebody how far a run is."""

    def __init__(self, ledger: Ledger, tell: Callable[[int, RangeState], None]) -> None:
        self._ledger = ledger
        self._tell = tell

    def range(self, run: Run, number: int) -> RangeState:
        return self._ledger.range(run, number)

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:
        standing = self._ledger.advance(run, number, known, new)
        self._tell(number, standing)
        return standing

    def stopped(self, run: Run) -> str | None:
        return self._ledger.stopped(run)
