"""Begin a new run on a table, or go on with the one that is there?

A table has one run at a time. One that somebody works on is left alone, and who asks is told whose it is. Whoever works
is heard of with every page; one that was silent for too long was cut off, and may be taken up like one that was paused
or cancelled. This only saves work: two who scan the same range do it twice and no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunState, Standing
from sweep_tasks.legacy.run import LegacySweep, under_way
from sweep_tasks.legacy.scan import Ledger


class Begin(StrEnum):
    START = "start"
    RESUME = "resume"
    TAKE_OVER = "take over"
    """Begin anew although a run is recorded as under way: it was cut off."""


def how_to_begin(
    standing: Standing | None, order: LegacyOrder, *, anew: bool, now_ms: int, silent_ms: int, owner: str = ""
) -> Begin:
    """Refused with the name of who is at work, if somebody is. Who tries again what was cut off under its own name need
    not wait until that counts as silent."""
    if order.dry_run or standing is None or not standing.run.is_open:
        return Begin.START
    if is_at_work(standing, now_ms, silent_ms) and standing.run.owner != owner:
        raise under_way(standing)
    if not anew and not order.from_row:
        return Begin.RESUME
    return Begin.TAKE_OVER


def is_at_work(standing: Standing, now_ms: int, silent_ms: int) -> bool:
    return standing.run.state is RunState.RUNNING and now_ms - standing.heard_of_ms < silent_ms


def begun(sweep: LegacySweep, order: LegacyOrder, how: Begin) -> Run:
    if how is Begin.RESUME:
        return sweep.resume(order.table)
    return sweep.start(order, take_over=how is Begin.TAKE_OVER)


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
