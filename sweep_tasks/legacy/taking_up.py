"""Begin a new run on a table, or go on with the one that is there?

A table has one run at a time. One that somebody works on is left alone, and who asks is told whose it is. Whoever works
is heard of with every page; one that was silent for too long was cut off, and may be taken up like one that was paused
or cancelled. Whoever takes one up is heard of by that. A run is gone on with if it is one of the rows that are asked
for: so the same order, given again and again, gets to the end. This only saves work: two who scan the same range do it
twice and no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, Runs, RunState, Standing
from sweep_tasks.legacy.run import LegacySweep, under_way
from sweep_tasks.legacy.scan import Ledger
from sweep_tasks.store.contract import Store


class Begin(StrEnum):
    START = "start"
    RESUME = "resume"
    TAKE_OVER = "take over"
    """Begin anew although there is a run that could be gone on with: it is of no use for the order."""


def how_to_begin(
    standing: Standing | None,
    order: LegacyOrder,
    *,
    begins_at: bytes,
    anew: bool,
    now_ms: int,
    silent_ms: int,
    owner: str = "",
) -> Begin:
    """Refused with the name of who is at work, if somebody is. Who tries again what was cut off under its own name need
    not wait until that counts as silent, nor does it begin anew a second time what it was asked to begin anew.

    `begins_at` is where the order begins, as its store tells."""
    if order.dry_run or standing is None or not standing.run.is_open:
        return Begin.START
    run = standing.run
    ours = run.owner == owner
    if is_at_work(standing, now_ms, silent_ms) and not ours:
        raise under_way(standing)
    wanted = run.stretches[0].first == begins_at and (order.stop_at is None or run.horizon.sweep_ts <= order.stop_at)
    return Begin.RESUME if wanted and (ours or not anew) else Begin.TAKE_OVER


def looked_at(
    store: Store, settings: Settings, clock: Clock, order: LegacyOrder, *, anew: bool, owner: str
) -> tuple[Begin, Standing | None]:
    """How to begin, and what was found on record when that was decided."""
    standing = None if order.dry_run else Runs(store).standing(order.table)
    how = how_to_begin(
        standing, order, begins_at=order.begins_at(store), anew=anew, now_ms=clock.now_ms(),
        silent_ms=settings.legacy_silent_s * 1000, owner=owner,
    )  # fmt: skip
    return how, standing


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
