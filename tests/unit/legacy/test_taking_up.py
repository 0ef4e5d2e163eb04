"""Begin a run, or go on with the one that is there: cases, and two processes on one store."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.errors import LegacySweepCancelled, LegacySweepOfOtherRows, LegacySweepRunning
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunState, Standing
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.legacy.taking_up import Begin, Now, Watched, begun, how_to_begin, is_at_work, looked_at
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Stretch
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock

T = TableRef.parse("app.items")
SILENT_MS = 600_000
NOW_MS = 10_000_000
SETTINGS = Settings(retention_s=0)
CONSERVATIVE, THOROUGH, _ = SweepStrategy


def standing(
    state: RunState, silent_for_ms: int = 0, first: bytes = b"", strategy: SweepStrategy | None = CONSERVATIVE
) -> Standing:
    run = Run("r1", T, Horizon(10, 0), (Stretch(first),), "somebody", 0, state, strategy=strategy)
    return Standing(run, [RangeState(at_ms=NOW_MS - silent_for_ms)])


def how(
    found: Standing,
    *,
    anew: bool = False,
    from_row: bytes = b"",
    owner: str = "me",
    by_turns: bool = False,
    reach: int = 10,
    **order: Any,
) -> Begin:
    asked = LegacyOrder(T, from_row=from_row, **order)
    now = Now(from_row, CONSERVATIVE, reach, NOW_MS, SILENT_MS)
    return how_to_begin(found, asked, now, anew=anew, owner=owner, by_turns=by_turns)


def test_behind_a_finished_run_a_new_one_begins() -> None:
    assert how(standing(RunState.FINISHED)) is Begin.START


@pytest.mark.parametrize("begun_by", [THOROUGH, None])
def test_a_run_of_another_strategy_is_of_no_use(begun_by: SweepStrategy | None) -> None:
    for by_turns in (False, True):
        assert how(standing(RunState.PAUSED, strategy=begun_by), by_turns=by_turns) is Begin.TAKE_OVER


def test_nor_is_one_that_goes_further_than_the_table_may_be_swept_now() -> None:
    assert how(standing(RunState.PAUSED), reach=9) is Begin.TAKE_OVER


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.CANCELLED])
def test_one_that_nobody_works_on_is_gone_on_with_unless_asked_otherwise(state: RunState) -> None:
    assert how(standing(state)) is Begin.RESUME
    assert how(standing(state), anew=True) is Begin.TAKE_OVER


def test_a_run_of_the_same_rows_is_gone_on_with() -> None:
    assert how(standing(RunState.PAUSED, first=b"x"), from_row=b"x", stop_at=10) is Begin.RESUME


@pytest.mark.parametrize(
    ("first", "order"),
    [(b"", {"from_row": b"x"}), (b"x", {}), (b"x", {"from_row": b"y"}), (b"", {"stop_at": 9})],
    ids=["part", "all", "another-part", "less-far"],
)
def test_one_of_other_rows_or_that_goes_further_is_dropped_only_by_who_says_so_or_by_turns(
    first: bytes, order: dict[str, Any]
) -> None:
    found = standing(RunState.PAUSED, first=first)
    with pytest.raises(LegacySweepOfOtherRows) as refused:
        how(found, **order)
    error = refused.value
    assert (error.table, error.run, error.owner, error.done, error.ranges) == (T, "r1", "somebody", 0, 1)
    assert how(found, anew=True, **order) is how(found, by_turns=True, **order) is Begin.TAKE_OVER


def test_turns_leave_a_cancelled_run_alone() -> None:
    with pytest.raises(LegacySweepCancelled) as refused:
        how(standing(RunState.CANCELLED), by_turns=True)
    assert refused.value.run == "r1"
    assert how(standing(RunState.CANCELLED)) is Begin.RESUME


def test_who_works_is_named_and_left_alone() -> None:
    for anew in (False, True):
        with pytest.raises(LegacySweepRunning) as refused:
            how(standing(RunState.RUNNING, SILENT_MS - 1), anew=anew)
        assert (refused.value.table, refused.value.run, refused.value.owner) == (T, "r1", "somebody")


def test_who_was_silent_for_too_long_was_cut_off() -> None:
    assert how(standing(RunState.RUNNING, SILENT_MS)) is Begin.RESUME
    assert how(standing(RunState.RUNNING, SILENT_MS), anew=True) is Begin.TAKE_OVER


def test_who_tries_again_what_was_cut_off_under_its_own_name_does_not_wait() -> None:
    assert how(standing(RunState.RUNNING), owner="somebody") is Begin.RESUME


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED])
def test_who_tries_again_what_it_was_asked_to_begin_anew_does_not_begin_anew_again(state: RunState) -> None:
    assert how(standing(state), owner="somebody", anew=True) is Begin.RESUME


def written(
    store: Store, clock: ManualClock, rows: int = 40, strategy: SweepStrategy = SweepStrategy.CONSERVATIVE
) -> None:
    store.create_table(T, TableMetadata(strategy))
    manager = TransactionManager(store, SETTINGS, clock=clock, enqueue=False, renew_leases=False)
    for _ in range(2):
        with manager.transaction() as tx:
            for row in range(rows):
                tx.put(T, b"%02d" % row, b"c", b"v")
    clock.advance(1)


def test_without_a_run_a_new_one_begins_and_a_dry_run_is_in_nobodys_way(store: Store, clock: ManualClock) -> None:
    written(store, clock)
    assert looked_at(store, SETTINGS, clock, LegacyOrder(T), anew=False, owner="me") == (Begin.START, None)
    LegacySweep(store, SETTINGS, clock, "somebody").start(LegacyOrder(T))
    dry = LegacyOrder(T, dry_run=True)
    assert looked_at(store, SETTINGS, clock, dry, anew=False, owner="me") == (Begin.START, None)


def test_behind_a_change_of_strategy_the_same_order_begins_anew(store: Store, clock: ManualClock) -> None:
    written(store, clock, strategy=THOROUGH)
    order = LegacyOrder(T, max_cells=4)
    first = LegacySweep(store, SETTINGS, clock).sweep(order)
    Catalog(store).set_strategy(T, CONSERVATIVE)
    clock.advance(1)
    sweep = LegacySweep(store, SETTINGS, clock, "me")
    way, found = looked_at(store, SETTINGS, clock, order, anew=False, owner="me")
    assert way is Begin.TAKE_OVER
    run = begun(sweep, order, way, found)
    assert (run.id == first.run, run.strategy) == (False, CONSERVATIVE)


def test_the_same_order_from_a_row_on_gets_to_the_end_however_little_it_does_at_a_time(
    store: Store, clock: ManualClock
) -> None:
    written(store, clock)
    order = LegacyOrder(T, from_row=b"20", ranges=3, max_cells=4)
    ways, examined = [], 0
    for number in range(6):
        sweep = LegacySweep(store, SETTINGS, clock, f"command {number}")
        way, found = looked_at(store, SETTINGS, clock, order, anew=False, owner=sweep.owner)
        summary = sweep.work(begun(sweep, order, way, found), order)
        ways.append(way)
        assert summary.this_time.cells <= 4
        examined += summary.this_time.cells
        if summary.stopped is None:
            break
    assert ways == [Begin.START, *[Begin.RESUME] * 4]
    assert (examined, summary.counts.cells, summary.counts.deleted) == (20, 20, 20)


def test_of_two_that_want_to_go_on_with_the_same_run_the_second_is_told_of_the_first(
    store: Store, clock: ManualClock
) -> None:
    written(store, clock)
    order = LegacyOrder(T, max_cells=4)
    LegacySweep(store, SETTINGS, clock).sweep(order)
    clock.advance(3_600)
    one, two = (LegacySweep(store, SETTINGS, clock, name) for name in ("one", "two"))
    seen = [looked_at(store, SETTINGS, clock, order, anew=anew, owner="?") for anew in (False, False, True)]
    taken = begun(one, order, *seen[0])
    for way, found in seen[1:]:
        with pytest.raises(LegacySweepRunning) as refused:
            begun(two, order, way, found)
        assert refused.value.owner == "one"
    standing = one.standing(T)
    assert standing
    assert standing.run == taken
    assert is_at_work(standing, clock.now_ms(), SILENT_MS), "who takes it up is heard of before its first page"
    with pytest.raises(LegacySweepRunning) as refused:
        looked_at(store, SETTINGS, clock, order, anew=False, owner="two")
    assert refused.value.owner == "one"


def test_who_was_ended_from_outside_is_let_go_of_and_stops_if_it_is_still_alive(
    store: Store, clock: ManualClock
) -> None:
    written(store, clock)
    order = LegacyOrder(T, ranges=4)
    sweep = LegacySweep(store, SETTINGS, clock, "a task")
    run = sweep.start(order)
    assert not LegacySweep(store, SETTINGS, clock, "another").let_go(T), "it is not its own"
    assert LegacySweep(store, SETTINGS, clock, "a task").let_go(T)
    assert sweep.work(run, order).stopped == "interrupted"
    way, found = looked_at(store, SETTINGS, clock, order, anew=False, owner="another")
    assert way is Begin.RESUME
    assert found
    assert (found.run.state, found.run.why) == (RunState.PAUSED, "interrupted")
    assert not LegacySweep(store, SETTINGS, clock, "a task").let_go(TableRef.parse("app.nowhere"))


def test_a_run_that_was_cut_off_goes_on_where_it_was_and_tells_how_far_it_is(store: Store, clock: ManualClock) -> None:
    written(store, clock)
    first = LegacySweep(store, SETTINGS, clock, "first")
    order = LegacyOrder(T, ranges=4, max_cells=10)
    first.work(begun(first, order, Begin.START), order)
    clock.advance(1)
    second = LegacySweep(store, SETTINGS, clock, "second")
    found = second.standing(T)
    assert found
    assert found.run.state is RunState.PAUSED
    rest = LegacyOrder(T)
    way, found = looked_at(store, SETTINGS, clock, rest, anew=False, owner="second")
    assert found
    told: list[tuple[int, bool]] = []
    summary = second.work(
        begun(second, rest, way),
        rest,
        lambda ledger: Watched(ledger, lambda number, state: told.append((number, state.done))),
    )
    assert (summary.attempt, summary.counts.cells, summary.counts.deleted) == (2, 40, 40)
    assert summary.this_time.cells < 40, "what was done before is not examined again"
    assert {number for number, done in told if done} == set(range(found.done, 4))
