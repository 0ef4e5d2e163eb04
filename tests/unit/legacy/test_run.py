"""A run over a table: started, interrupted, resumed, cancelled, and what others see of it."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import AlreadyExists, BadValue, NotFound, StoreUnavailable, UnknownTable
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Run, Runs, RunState
from sweep_tasks.legacy.resumption import Watched
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Change
from sweep_tasks.store.faults import (
    FaultyStore,
    ProcessCrashed,
    StoreCall,
    crash,
    fail,
    lose_answer,
    miss_a_replica,
    on,
)
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import LEGACY_SWEEPS, PARKED, THRESHOLDS, TRANSACTIONS
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import CommitTable
from tests.support.clock import ManualClock
from tests.support.deep_cell import deep_cell
from tests.unit.legacy.scan_fixture import (
    CONSERVATIVE,
    NOTHING,
    ROWS,
    SETTINGS,
    SWEPT,
    TABLE,
    THOROUGH,
    S,
    begin,
    cell,
    filled,
    sweep,
    versions,
    write,
)


def test_every_range_is_swept_and_the_run_reports_what_it_found(store: Store, clock: ManualClock) -> None:
    filled(store)
    summary = sweep(store, clock)
    assert versions(store) == SWEPT
    assert summary.document()["deleted"] == summary.counts.deleted == 2 * ROWS
    assert (summary.counts.cells, summary.counts.versions, summary.counts.sentinels) == (ROWS, 3 * ROWS, ROWS)
    assert (summary.ranges, summary.ranges_done, summary.stopped) == (4, 4, None)
    existing = LegacySweep(store, SETTINGS, clock).progress(TABLE)
    assert existing
    assert (existing.run.state, existing.counts, existing.done) == (RunState.FINISHED, summary.counts, 4)
    assert Thresholds(store).of_strategy(CONSERVATIVE) == S


def test_the_next_run_remembers_the_last(store: Store, clock: ManualClock) -> None:
    filled(store)
    first = sweep(store, clock)
    clock.advance(60)
    sweep(store, clock)
    run = Runs(store).of_all([TABLE, TableRef.parse("app.other")])[TABLE]
    assert run.last
    assert (run.last.id, run.last.sweep_ts, run.last.counts) == (first.run, S, first.counts)


def test_a_budget_ends_a_run_between_pages_and_the_next_run_resumes(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=2, max_cells=5)
    summary = legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order)
    examined = summary.this_time.versions
    assert (summary.stopped, summary.ranges_done, summary.this_time.cells) == ("cells", 1, 5)
    while summary.stopped:
        run = legacy.resume(TABLE)
        summary = legacy.work(run, order)
        assert summary.this_time.cells <= 5
        examined += summary.this_time.versions
    assert versions(store) == SWEPT
    examined_once = 3 * ROWS + summary.counts.sentinels  # those that a page wrote come with the next
    assert examined == summary.counts.versions == examined_once, "nothing is examined twice, nor within a range"
    assert summary.attempt > 2


def test_time_is_a_budget_too(store: Store, clock: ManualClock) -> None:
    filled(store)
    late = FaultyStore(store, before=lambda call: clock.sleep(1) if call.name == "scan_versions" else None)
    legacy, order = begin(late, clock, batch=3, max_seconds=2)
    summary = legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order)
    assert (summary.stopped, summary.this_time.batches) == ("seconds", 2)
    existing = legacy.progress(TABLE)
    assert existing
    assert (existing.run.state, existing.run.why) == (RunState.PAUSED, "seconds")


TABLES = {"add_sentinels": TABLE, "delete_ranges": TABLE, "compare_and_set": LEGACY_SWEEPS}


@pytest.mark.parametrize("call", TABLES)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interruption_at_any_step_is_resumed_and_no_finished_range_is_scanned_again(
    store: Store, clock: ManualClock, call: str, moment: str
) -> None:
    filled(store)
    dying = FaultyStore(store, **{moment: on(call, 3, crash, TABLES[call])})
    legacy, order = begin(dying, clock)
    with pytest.raises(ProcessCrashed):
        legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order)
    cut_off = Runs(store).progress(TABLE)
    assert cut_off
    assert cut_off.run.state is RunState.RUNNING
    scans = Scans(store)
    legacy = LegacySweep(store, SETTINGS, clock)
    summary = legacy.work(legacy.resume(TABLE), order)
    done = [scan_range for scan_range, state in zip(cut_off.run.scan_ranges, cut_off.ranges, strict=True) if state.done]
    assert done
    assert scans.scan_ranges == set(cut_off.run.scan_ranges) - set(done)
    assert versions(store) == SWEPT
    assert summary.counts.cells == ROWS


class Scans:
    """What scans have read."""

    def __init__(self, store: Store) -> None:
        self.scan_ranges: set[Any] = set()
        self.limits: list[int] = []
        inner = store.scan_versions

        def scan_versions(*given: Any, **named: Any) -> Any:
            self.scan_ranges.add(named["scan_range"])
            self.limits.append(named["limit"])
            return inner(*given, **named)

        store.scan_versions = scan_versions  # type: ignore[method-assign]


def test_a_second_start_is_refused_with_the_owner_of_the_first_and_changes_nothing(
    store: Store, clock: ManualClock
) -> None:
    filled(store)
    legacy, order = begin(store, clock)
    first = legacy.start(order, Horizon(S, clock.now_ms()))
    with pytest.raises(AlreadyExists) as reported:
        LegacySweep(store, SETTINGS, clock, "another").start(order, Horizon(S, clock.now_ms()))
    assert (reported.value.details["run"], reported.value.details["owner"], reported.value.code) == (
        first.id,
        "worker",
        "exists",
    )
    assert Runs(store).of(TABLE) == first
    legacy.work(first, order)
    assert versions(store) == SWEPT


def test_a_worker_that_was_considered_dead_stops_when_another_resumes_its_run(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=3)
    zombie = legacy.start(order, Horizon(S, clock.now_ms()))
    other = LegacySweep(store, SETTINGS, clock, "another")
    taken = other.resume(TABLE)
    assert legacy.work(zombie, order).stopped == "taken over"
    assert other.work(taken, order).stopped is None
    assert versions(store) == SWEPT


def test_a_worker_that_lost_its_run_leaves_the_ranges_to_the_new_owner(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock)
    zombie = legacy.start(order, Horizon(S, clock.now_ms()))
    other = LegacySweep(store, SETTINGS, clock, "another")
    taken: list[Run] = []

    def take(call: StoreCall) -> None:
        """When the zombie has finished its last range."""
        if call.name == "update" and call.arguments[0] == LEGACY_SWEEPS and not taken:
            taken.append(other.resume(TABLE))

    summary = LegacySweep(FaultyStore(store, before=take), SETTINGS, clock, "worker").work(zombie, order)
    assert summary.stopped == "taken over"
    existing = Runs(store).progress(TABLE)
    assert existing
    assert (existing.run, existing.done) == (taken[0], 4), "its ranges are still known to be done"
    scans = Scans(store)
    assert other.work(taken[0], order).stopped is None
    assert scans.scan_ranges == set()


def test_a_range_recorded_by_a_version_with_fewer_counts_is_resumed(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=2, max_cells=2)
    legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order)
    for register, value in store.scan_registers(LEGACY_SWEEPS).items:
        if register.row.startswith(b"range:"):
            plain = json.loads(value)
            del plain["counts"]["left"]
            store.compare_and_set(
                LEGACY_SWEEPS, register.row, {register.column: Change(value, json.dumps(plain).encode())}
            )
    legacy, order = begin(store, clock, batch=2)
    scans = Scans(store)
    assert legacy.work(legacy.resume(TABLE), order).stopped is None
    assert len(scans.limits) < 4 * ROWS, "no page is read over and over"
    assert versions(store) == SWEPT


def test_an_interrupted_run_is_recorded_as_such(store: Store, clock: ManualClock) -> None:
    filled(store)

    def interrupt(_: StoreCall) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(FaultyStore(store, before=on("scan_versions", 2, interrupt)), clock)
    run = Runs(store).of(TABLE)
    assert run
    assert (run.state, run.why) == (RunState.PAUSED, "interrupted")


def test_the_progress_of_a_run_advances_with_its_pages(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=3)
    passed: list[float] = []

    def tell(*_: object) -> None:
        existing = legacy.progress(TABLE)
        assert existing
        passed.append(existing.passed(store))

    legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order, lambda ledger: Watched(ledger, tell))
    assert passed == sorted(passed)
    assert passed[-1] == 4
    assert len(set(passed)) > 6, "and not with each range that is done alone"


def test_a_cancelled_run_stops_after_its_page_and_can_be_resumed(store: Store, clock: ManualClock) -> None:
    filled(store)

    def cancel(_: StoreCall) -> None:
        begin(store, clock)[0].cancel(TABLE)

    cancelling = FaultyStore(store, after=on("scan_versions", 2, cancel))
    legacy, order = begin(cancelling, clock, batch=3)
    summary = legacy.work(legacy.start(order, Horizon(S, clock.now_ms())), order)
    assert (summary.stopped, summary.this_time.batches) == ("cancelled", 2)
    legacy, order = begin(store, clock)
    assert legacy.work(legacy.resume(TABLE), order).stopped is None
    assert versions(store) == SWEPT
    for impossible in (legacy.cancel, legacy.resume):
        with pytest.raises(NotFound):
            impossible(TABLE)


def test_a_dry_run_counts_the_same_and_leaves_everything_as_it_is(store: Store, clock: ManualClock) -> None:
    filled(store)
    store.put(40, {TABLE: {cell(0): b"v"}})  # never ended
    before = versions(store)
    counted = sweep(store, clock, dry_run=True)
    assert versions(store) == before
    for table in (LEGACY_SWEEPS, THRESHOLDS):
        assert store.scan_registers(table).items == []
    assert CommitTable(store).outcomes([40]) == {}
    assert sweep(store, clock).counts == counted.counts


def test_a_table_that_grows_at_its_end_as_fast_as_it_is_scanned_is_swept_to_the_end(
    store: Store, clock: ManualClock
) -> None:
    filled(store)
    rows = iter(range(ROWS, 100_000))

    def grow(call: StoreCall) -> None:
        if call.name == "scan_versions":
            write(store, 200 + next(rows), [cell(next(rows)) for _ in range(5)])

    growing = FaultyStore(store, before=grow)
    summary = sweep(growing, clock, batch=2)
    assert summary.counts.cells == ROWS
    assert next(rows) > 5 * ROWS


def test_a_scan_may_begin_at_a_row(store: Store, clock: ManualClock) -> None:
    filled(store)
    assert sweep(store, clock, from_row=cell(9).row, ranges=2).counts.cells == 3
    assert [starts for starts in versions(store).values() if starts == [30, 20, 10]] == [[30, 20, 10]] * 9
    assert sweep(store, clock, from_row=b"z").counts.cells == 0


def test_where_the_store_can_not_keep_up_less_is_done_at_a_time_and_then_more_again(
    store: Store, clock: ManualClock
) -> None:
    filled(store)
    scans = Scans(store)
    busy = FaultyStore(
        store, before=lambda call: fail(call) if call.name == "delete_ranges" and scans.limits[-1] > 100 else None
    )
    assert sweep(busy, clock, batch=800, ranges=6).stopped is None
    assert versions(store) == SWEPT
    assert scans.limits[:7] == [800, 400, 200, 100, 125, 62, 77]


@pytest.mark.parametrize("call", TABLES)
def test_a_lost_answer_is_work_to_repeat(store: Store, clock: ManualClock, call: str) -> None:
    filled(store)
    summary = sweep(FaultyStore(store, after=on(call, 2, lose_answer, TABLES[call])), clock)
    assert summary.stopped is None
    assert versions(store) == SWEPT


def test_a_store_that_stays_away_ends_the_run_which_is_paused(store: Store, clock: ManualClock) -> None:
    filled(store)
    away = FaultyStore(store, before=lambda call: fail(call) if call.name == "scan_versions" else None)
    with pytest.raises(StoreUnavailable):
        sweep(away, clock)
    existing = Runs(store).progress(TABLE)
    assert existing
    assert (existing.run.state, existing.run.why) == (RunState.PAUSED, "failed")


def test_the_pace_is_kept(store: Store, clock: ManualClock) -> None:
    filled(store)
    began = clock.now_ms()
    settings = SETTINGS.model_copy(update={"legacy_versions_per_s": 2})
    LegacySweep(store, settings, clock).sweep(LegacyOrder(TABLE), Horizon(S, clock.now_ms()))
    assert clock.now_ms() - began == 3 * ROWS / 2 * 1000


def test_a_marker_that_a_replica_has_not_confirmed_stays_and_the_next_run_removes_it(
    memory: MemoryStore, clock: ManualClock
) -> None:
    filled(memory, THOROUGH)
    write(memory, 40, [cell(0)], value=b"")
    summary = sweep(FaultyStore(memory, before=miss_a_replica(reaches_the_others=True)), clock)
    assert (summary.counts.waiting, summary.counts.deleted) == (1, 2 * (ROWS - 1))
    assert versions(memory)[cell(0)] == [40]
    assert sweep(memory, clock).counts.waiting == 0
    assert cell(0) not in versions(memory)
    assert memory.scan(PARKED, S).items == []


def test_what_is_not_swept_is_refused(store: Store, clock: ManualClock) -> None:
    filled(store, NOTHING)
    with pytest.raises(BadValue) as refused:
        sweep(store, clock)
    assert (refused.value.field, refused.value.reason) == ("table", "never_swept")
    for table in (TableRef.parse("app.none"), TRANSACTIONS):
        with pytest.raises(UnknownTable):
            LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(table))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_at", -1),
        ("max_cells", -1),
        ("max_seconds", -0.5),
        ("max_seconds", float("nan")),
        ("max_seconds", float("inf")),
        ("batch", -1),
        ("batch", 100_001),
        ("ranges", 10_001),
        ("from_row", b"x" * 1501),
    ],
)
def test_a_bad_order_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(BadValue) as refused:
        LegacyOrder(TABLE, **{field: value})
    assert refused.value.field == field


def test_a_given_sweep_timestamp_can_only_lower_the_horizon(store: Store, clock: ManualClock) -> None:
    filled(store, THOROUGH)
    legacy = LegacySweep(store, SETTINGS, clock)
    assert legacy.start(LegacyOrder(TABLE, stop_at=15)).horizon.sweep_ts == 15
    found = legacy.start(LegacyOrder(TABLE, stop_at=10_000), take_over=True).horizon.sweep_ts
    assert S < found < 10_000


def test_a_table_truncated_while_it_is_scanned_gets_no_sentinels_back(store: Store, clock: ManualClock) -> None:
    filled(store)
    emptying = FaultyStore(store, before=on("add_sentinels", 1, lambda _: Catalog(store).truncate(TABLE)))
    sweep(emptying, clock)
    assert versions(store) == {}


def test_a_cell_with_very_many_versions_takes_no_more_memory_than_a_page(
    sqlite: SQLiteStore, clock: ManualClock
) -> None:
    sqlite.create_table(TABLE, TableMetadata(THOROUGH))
    many, batch = 20_000, 500
    deep_cell(sqlite, TABLE, cell(0), many, b"v" * 500)
    tracemalloc.start()
    legacy, order = begin(sqlite, clock, batch=batch, ranges=2)  # the first of them is empty
    summary = legacy.sweep(order, Horizon(2 * many, clock.now_ms()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (summary.counts.deleted, summary.counts.batches) == (many, many // batch + 1)
    assert sqlite.scan_versions(TABLE).items == []
    assert most < 8 * 1024 * 1024, f"{most} bytes"
