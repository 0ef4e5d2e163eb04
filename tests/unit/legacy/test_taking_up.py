"""Begin a run, or go on with the one that is there: cases, and two processes on one store."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import LegacySweepRunning
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunState, Standing
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.legacy.taking_up import Begin, Watched, begun, how_to_begin
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.contract import EVERYWHERE
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock

T = TableRef.parse("app.items")
SILENT_MS = 600_000
NOW_MS = 10_000_000
SETTINGS = Settings(retention_s=0)


def standing(state: RunState, silent_for_ms: int = 0) -> Standing:
    run = Run("r1", T, Horizon(10, 0), (EVERYWHERE,), "somebody", 0, state)
    return Standing(run, [RangeState(at_ms=NOW_MS - silent_for_ms)])


def how(
    found: Standing | None, *, anew: bool = False, from_row: bytes = b"", dry_run: bool = False, owner: str = "me"
) -> Begin:
    order = LegacyOrder(T, from_row=from_row, dry_run=dry_run)
    return how_to_begin(found, order, anew=anew, now_ms=NOW_MS, silent_ms=SILENT_MS, owner=owner)


def test_without_a_run_or_behind_a_finished_one_a_new_one_begins() -> None:
    assert how(None) is Begin.START
    assert how(standing(RunState.FINISHED)) is Begin.START


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.CANCELLED])
def test_one_that_nobody_works_on_is_gone_on_with_unless_asked_otherwise(state: RunState) -> None:
    assert how(standing(state)) is Begin.RESUME
    assert how(standing(state), anew=True) is Begin.TAKE_OVER
    assert how(standing(state), from_row=b"x") is Begin.TAKE_OVER, "the run that is there began elsewhere"


def test_who_works_is_named_and_left_alone() -> None:
    for anew in (False, True):
        with pytest.raises(LegacySweepRunning, match=r"app\.items .* run r1 of somebody"):
            how(standing(RunState.RUNNING, SILENT_MS - 1), anew=anew)


def test_who_was_silent_for_too_long_was_cut_off() -> None:
    assert how(standing(RunState.RUNNING, SILENT_MS)) is Begin.RESUME
    assert how(standing(RunState.RUNNING, SILENT_MS), anew=True) is Begin.TAKE_OVER


def test_who_tries_again_what_was_cut_off_under_its_own_name_does_not_wait() -> None:
    assert how(standing(RunState.RUNNING), owner="somebody") is Begin.RESUME


def test_a_dry_run_is_in_nobodys_way() -> None:
    assert how(standing(RunState.RUNNING), dry_run=True) is Begin.START


def test_a_run_that_was_cut_off_goes_on_where_it_was_and_tells_how_far_it_is(store: Store, clock: ManualClock) -> None:
    store.create_table(T, TableMetadata())
    manager = TransactionManager(store, SETTINGS, clock=clock, enqueue=False, renew_leases=False)
    for _ in range(2):
        with manager.transaction() as tx:
            for row in range(40):
                tx.put(T, b"%02d" % row, b"c", b"v")
    clock.advance(1)
    first = LegacySweep(store, SETTINGS, clock, "first")
    order = LegacyOrder(T, ranges=4, max_cells=10)
    first.work(begun(first, order, Begin.START), order)
    clock.advance(1)
    second = LegacySweep(store, SETTINGS, clock, "second")
    found = second.standing(T)
    assert found
    assert found.run.state is RunState.PAUSED
    rest = LegacyOrder(T)
    way = how_to_begin(found, rest, anew=False, now_ms=clock.now_ms(), silent_ms=SILENT_MS)
    told: list[tuple[int, bool]] = []
    summary = second.work(
        begun(second, rest, way),
        rest,
        lambda ledger: Watched(ledger, lambda number, state: told.append((number, state.done))),
    )
    assert (summary.attempt, summary.counts.cells, summary.counts.deleted) == (2, 40, 40)
    assert summary.this_time.cells < 40, "what was done before is not examined again"
    assert {number for number, done in told if done} == set(range(found.done, 4))
