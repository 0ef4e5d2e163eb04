"""Starting a run, or resuming the existing one: cases, and two processes on one store."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import AlreadyExists
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunProgress, RunState
from sweep_tasks.legacy.resumption import Begin, Now, Watched, decide_start, how_to_begin, is_at_work, start_run
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.contract import ScanRange
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock

T = TableRef.parse("app.items")
SILENT_MS = 600_000
NOW_MS = 10_000_000
SETTINGS = Settings(retention_s=0)
CONSERVATIVE, THOROUGH, _ = SweepStrategy


def existing(
    state: RunState, silent_for_ms: int = 0, first: bytes = b"", strategy: SweepStrategy | None = CONSERVATIVE
) -> RunProgress:
    run = Run("r1", T, Horizon(10, 0), (ScanRange(first),), "worker", 0, state, strategy=strategy)
    return RunProgress(run, [RangeState(at_ms=NOW_MS - silent_for_ms)])


def how(
    found: RunProgress,
    *,
    restart: bool = False,
    from_row: bytes = b"",
    owner: str = "me",
    scheduled: bool = False,
    sweep_ts: int = 10,
    **order: Any,
) -> Begin:
    asked = LegacyOrder(T, from_row=from_row, **order)
    now = Now(from_row, CONSERVATIVE, sweep_ts, NOW_MS, SILENT_MS)
    return how_to_begin(found, asked, now, restart=restart, owner=owner, scheduled=scheduled)


def test_behind_a_finished_run_a_new_one_begins() -> None:
    assert how(existing(RunState.FINISHED)) is Begin.START


@pytest.mark.parametrize("started_by", [THOROUGH, None])
def test_a_run_of_another_strategy_is_of_no_use(started_by: SweepStrategy | None) -> None:
    for scheduled in (False, True):
        assert how(existing(RunState.PAUSED, strategy=started_by), scheduled=scheduled) is Begin.TAKE_OVER


def test_a_run_above_the_current_horizon_is_not_resumed() -> None:
    assert how(existing(RunState.PAUSED), sweep_ts=9) is Begin.TAKE_OVER


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.CANCELLED])
def test_a_run_without_a_worker_is_resumed_unless_requested_otherwise(state: RunState) -> None:
    assert how(existing(state)) is Begin.RESUME
    assert how(existing(state), restart=True) is Begin.TAKE_OVER


def test_a_run_of_the_same_rows_is_resumed() -> None:
    assert how(existing(RunState.PAUSED, first=b"x"), from_row=b"x", stop_at=10) is Begin.RESUME


@pytest.mark.parametrize(
    ("first", "order"),
    [(b"", {"from_row": b"x"}), (b"x", {}), (b"x", {"from_row": b"y"}), (b"", {"stop_at": 9})],
    ids=["part", "all", "another-part", "less-far"],
)
def test_one_of_other_rows_or_with_a_higher_timestamp_is_dropped_only_on_request_or_by_the_schedule(
    first: bytes, order: dict[str, Any]
) -> None:
    found = existing(RunState.PAUSED, first=first)
    with pytest.raises(AlreadyExists) as refused:
        how(found, **order)
    error = refused.value
    assert (
        error.details["table"],
        error.details["run"],
        error.details["owner"],
        error.details["done"],
        error.details["ranges"],
    ) == (T, "r1", "worker", 0, 1)
    assert how(found, restart=True, **order) is how(found, scheduled=True, **order) is Begin.TAKE_OVER


def test_scheduled_scans_leave_a_cancelled_run_alone() -> None:
    with pytest.raises(AlreadyExists) as refused:
        how(existing(RunState.CANCELLED), scheduled=True)
    assert refused.value.details["run"] == "r1"
    assert how(existing(RunState.CANCELLED)) is Begin.RESUME


def test_a_working_owner_is_reported_and_not_disturbed() -> None:
    for restart in (False, True):
        with pytest.raises(AlreadyExists) as refused:
            how(existing(RunState.RUNNING, SILENT_MS - 1), restart=restart)
        assert (refused.value.details["table"], refused.value.details["run"], refused.value.details["owner"]) == (
            T,
            "r1",
            "worker",
        )


def test_an_owner_without_a_heartbeat_counts_as_interrupted() -> None:
    assert how(existing(RunState.RUNNING, SILENT_MS)) is Begin.RESUME
    assert how(existing(RunState.RUNNING, SILENT_MS), restart=True) is Begin.TAKE_OVER


def test_a_retry_of_an_interrupted_run_by_its_owner_does_not_wait() -> None:
    assert how(existing(RunState.RUNNING), owner="worker") is Begin.RESUME


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED])
def test_a_retry_of_a_restart_does_not_restart_again(state: RunState) -> None:
    assert how(existing(state), owner="worker", restart=True) is Begin.RESUME


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


def test_without_a_run_a_new_one_begins_and_a_dry_run_disturbs_none(store: Store, clock: ManualClock) -> None:
    written(store, clock)
    assert decide_start(store, SETTINGS, clock, LegacyOrder(T), restart=False, owner="me") == (Begin.START, None)
    LegacySweep(store, SETTINGS, clock, "worker").start(LegacyOrder(T))
    dry = LegacyOrder(T, dry_run=True)
    assert decide_start(store, SETTINGS, clock, dry, restart=False, owner="me") == (Begin.START, None)


def test_after_a_change_of_strategy_the_same_order_starts_from_the_beginning(store: Store, clock: ManualClock) -> None:
    written(store, clock, strategy=THOROUGH)
    order = LegacyOrder(T, max_cells=4)
    first = LegacySweep(store, SETTINGS, clock).sweep(order)
    Catalog(store).set_strategy(T, CONSERVATIVE)
    clock.advance(1)
    sweep = LegacySweep(store, SETTINGS, clock, "me")
    way, found = decide_start(store, SETTINGS, clock, order, restart=False, owner="me")
    assert way is Begin.TAKE_OVER
    run = start_run(sweep, order, way, found)
    assert (run.id == first.run, run.strategy) == (False, CONSERVATIVE)


def test_the_same_order_from_a_row_on_gets_to_the_end_however_little_it_does_at_a_time(
    store: Store, clock: ManualClock
) -> None:
    written(store, clock)
    order = LegacyOrder(T, from_row=b"20", ranges=3, max_cells=4)
    ways, examined = [], 0
    for number in range(6):
        sweep = LegacySweep(store, SETTINGS, clock, f"command {number}")
        way, found = decide_start(store, SETTINGS, clock, order, restart=False, owner=sweep.owner)
        summary = sweep.work(start_run(sweep, order, way, found), order)
        ways.append(way)
        assert summary.this_time.cells <= 4
        examined += summary.this_time.cells
        if summary.stopped is None:
            break
    assert ways == [Begin.START, *[Begin.RESUME] * 4]
    assert (examined, summary.counts.cells, summary.counts.deleted) == (20, 20, 20)


def test_of_two_that_resume_the_same_run_the_second_is_refused_with_the_owner_of_the_first(
    store: Store, clock: ManualClock
) -> None:
    written(store, clock)
    order = LegacyOrder(T, max_cells=4)
    LegacySweep(store, SETTINGS, clock).sweep(order)
    clock.advance(3_600)
    one, two = (LegacySweep(store, SETTINGS, clock, name) for name in ("one", "two"))
    seen = [decide_start(store, SETTINGS, clock, order, restart=restart, owner="?") for restart in (False, False, True)]
    taken = start_run(one, order, *seen[0])
    for way, found in seen[1:]:
        with pytest.raises(AlreadyExists) as refused:
            start_run(two, order, way, found)
        assert refused.value.details["owner"] == "one"
    existing = one.progress(T)
    assert existing
    assert existing.run == taken
    assert is_at_work(existing, clock.now_ms(), SILENT_MS), "who takes it up is heard of before its first page"
    with pytest.raises(AlreadyExists) as refused:
        decide_start(store, SETTINGS, clock, order, restart=False, owner="two")
    assert refused.value.details["owner"] == "one"


def test_an_owner_that_was_killed_is_released_and_stops_if_it_is_still_alive(store: Store, clock: ManualClock) -> None:
    written(store, clock)
    order = LegacyOrder(T, ranges=4)
    sweep = LegacySweep(store, SETTINGS, clock, "a task")
    run = sweep.start(order)
    assert not LegacySweep(store, SETTINGS, clock, "another").release(T), "it is not its own"
    assert LegacySweep(store, SETTINGS, clock, "a task").release(T)
    assert sweep.work(run, order).stopped == "interrupted"
    way, found = decide_start(store, SETTINGS, clock, order, restart=False, owner="another")
    assert way is Begin.RESUME
    assert found
    assert (found.run.state, found.run.why) == (RunState.PAUSED, "interrupted")
    assert not LegacySweep(store, SETTINGS, clock, "a task").release(TableRef.parse("app.nowhere"))


def test_an_interrupted_run_resumes_at_its_position_and_reports_its_progress(store: Store, clock: ManualClock) -> None:
    written(store, clock)
    first = LegacySweep(store, SETTINGS, clock, "first")
    order = LegacyOrder(T, ranges=4, max_cells=10)
    first.work(start_run(first, order, Begin.START), order)
    clock.advance(1)
    second = LegacySweep(store, SETTINGS, clock, "second")
    found = second.progress(T)
    assert found
    assert found.run.state is RunState.PAUSED
    rest = LegacyOrder(T)
    way, found = decide_start(store, SETTINGS, clock, rest, restart=False, owner="second")
    assert found
    reported: list[tuple[int, bool]] = []
    summary = second.work(
        start_run(second, rest, way),
        rest,
        lambda ledger: Watched(ledger, lambda number, state: reported.append((number, state.done))),
    )
    assert (summary.attempt, summary.counts.cells, summary.counts.deleted) == (2, 40, 40)
    assert summary.this_time.cells < 40, "what was done before is not examined again"
    assert {number for number, done in reported if done} == set(range(found.done, 4))
