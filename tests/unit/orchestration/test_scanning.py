"""Which tables each worker slot scans, and how it divides its time among them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.orders import ScanJob, Start
from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.legacy.candidates import candidates
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.priority import ScanCause
from sweep_tasks.legacy.progress import RangeState, Run, RunProgress, Runs, RunState, Undone
from sweep_tasks.legacy.rules import ScanCounts
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.model import ScanDue, ScanReason, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.orchestration.scanning import (
    MANUAL,
    Planned,
    dropped,
    ends_ms,
    is_over,
    legacy_form,
    order_of,
    planned,
    readable,
    share_s,
    slot_of,
    slot_task,
    still_due,
    was_done_before,
)
from sweep_tasks.store import Store
from sweep_tasks.store.contract import EVERYWHERE
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.activity import Activity, WriteCounts
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import Pauses
from tests.support.clock import ManualClock
from tests.support.lines import values_in, words_in
from tests.support.simulation import Process

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
SETTINGS = Settings(retention_s=0, legacy_budget_s=1_000)
NAMES = [f"app.t{number}" for number in range(8)]
FORM = {name: field.value for name, field in legacy_form().items()}


def make(store: Store, *names: str, strategy: SweepStrategy = CONSERVATIVE) -> list[TableRef]:
    tables = [TableRef.parse(name) for name in names]
    for table in tables:
        Catalog(store).create(table, TableMetadata(strategy))
    return tables


def plan(store: Store, clock: ManualClock, settings: Settings = SETTINGS, **form: Any) -> dict[str, list[Planned]]:
    return planned(store, settings, clock, FORM | form)


class TestRotation:
    def test_every_table_belongs_to_one_slot_and_always_to_the_same(self, store: Store, clock: ManualClock) -> None:
        tables = make(store, *NAMES)
        settings = SETTINGS.model_copy(update={"legacy_tables_per_slot": len(NAMES)})
        found = plan(store, clock, settings)
        for table in tables:
            slots = [slot for slot, scans in found.items() if str(table) in {scan.table for scan in scans}]
            assert slots == [slot_task(slot_of(table, SETTINGS.legacy_slots))]
        assert plan(store, clock, settings) == found

    def test_the_time_of_a_slot_is_shared_by_its_scheduled_scans(self, store: Store, clock: ManualClock) -> None:
        make(store, *NAMES)
        for scans in plan(store, clock).values():
            assert sum(scan.seconds for scan in scans) == pytest.approx(1_000)
            assert {scan.why for scan in scans} == {ScanCause.NEVER_SCANNED.label}

    def test_a_requested_table_has_its_slot_for_itself(self, store: Store, clock: ManualClock) -> None:
        (table, *_) = make(store, *NAMES)
        slot = slot_task(slot_of(table, SETTINGS.legacy_slots))
        assert plan(store, clock, table=str(table), max_seconds=5) == {slot: [Planned(str(table), MANUAL, 5)]}

    def test_a_table_that_cannot_be_scanned_is_refused_before_anything_is_done(
        self, store: Store, clock: ManualClock
    ) -> None:
        make(store, "app.quiet", strategy=NOTHING)
        with pytest.raises(UnknownTable):
            plan(store, clock, table="app.nowhere")
        with pytest.raises(BadValue) as refused:
            plan(store, clock, table="app.quiet")
        assert (refused.value.field, refused.value.reason) == ("table", "never_swept")
        assert "app.quiet" in str(refused.value)
        with pytest.raises(BadValue) as refused:
            plan(store, clock, from_row="61")
        assert (refused.value.field, refused.value.reason) == ("from_row", "no_table")

    def test_without_a_budget_nothing_is_scanned_in_rotation(self, store: Store, clock: ManualClock) -> None:
        make(store, *NAMES)
        assert plan(store, clock, SETTINGS.model_copy(update={"legacy_budget_s": 0})) == {}


class TestStateOfATable:
    def of(self, store: Store, clock: ManualClock) -> Any:
        (found,) = candidates(store, SETTINGS, clock)
        return found

    def test_it_was_scanned_and_what_was_written_since(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        clock.advance(1)
        Activity(store).add(CONSERVATIVE, 0, {table: WriteCounts(9, 9)})
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(table))
        Activity(store).add(CONSERVATIVE, 0, {table: WriteCounts(5, 2)})
        found = self.of(store, clock)
        assert (found.last.ended_ms, found.written, found.running) == (clock.now_ms(), WriteCounts(5, 2), False)

    def test_writes_during_a_scan_count_as_new(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        clock.advance(1)
        Activity(store).add(CONSERVATIVE, 0, {table: WriteCounts(9, 9)})
        sweep = LegacySweep(store, SETTINGS, clock)
        run = sweep.start(LegacyOrder(table))
        Activity(store).add(CONSERVATIVE, 0, {table: WriteCounts(5, 2)})
        sweep.work(run, LegacyOrder(table))
        assert self.of(store, clock).written == WriteCounts(5, 2)

    def test_a_scheduled_scan_without_effect_counts(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        clock.advance(5)
        Runs(store).record_scheduled(table, clock.now_ms())
        assert self.of(store, clock).last_scheduled_ms == clock.now_ms()

    def test_part_of_it_does_not_count_as_scanned(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        clock.advance(1)
        Activity(store).add(CONSERVATIVE, 0, {table: WriteCounts(9, 9)})
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(table, from_row=b"x"))
        assert self.of(store, clock).last is None
        assert self.of(store, clock).written == WriteCounts(9, 9)
        LegacySweep(store, SETTINGS, clock).start(LegacyOrder(table))
        assert self.of(store, clock).last is None, "not even once another run has started"

    def test_a_run_is_active_until_its_heartbeat_is_too_old(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        LegacySweep(store, SETTINGS, clock).start(LegacyOrder(table))
        assert self.of(store, clock).running
        clock.advance(SETTINGS.legacy_silent_s)
        assert not self.of(store, clock).running

    def test_a_due_scan_without_a_timestamp_gets_one(self, memory: MemoryStore, clock: ManualClock) -> None:
        (table,) = make(memory, "app.t", strategy=NOTHING)
        dying = Process(memory, lambda store: Catalog(store).set_strategy(table, CONSERVATIVE))
        dying.step_to("update")
        dying.crash_here()
        due = self.of(memory, clock).due
        assert due.why is ScanReason.UNQUEUED
        assert due.since is not None
        assert due.since <= TimestampService(memory).greatest()

    def test_sentinels_wait_for_the_conservative_queue(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        Catalog(store).set_strategy(table, THOROUGH)
        clock.advance(1)
        found = self.of(store, clock)
        assert isinstance(found.due, ScanDue)
        assert (found.due.since <= found.sweep_ts, found.lacks) == (True, True), "no shard was swept yet"

    def test_a_table_that_is_changed_or_dropped_during_the_check_is_left_out(
        self, memory: MemoryStore, clock: ManualClock
    ) -> None:
        tables = make(memory, "app.changed", "app.dropped", "app.stays", strategy=NOTHING)
        for table in tables:
            Catalog(memory).set_strategy(table, CONSERVATIVE)

        def change(call: StoreCall) -> None:
            Catalog(memory).set_strategy(tables[0], NOTHING)
            Catalog(memory).drop(tables[1])

        found = candidates(FaultyStore(memory, after=on("tables", 1, change)), SETTINGS, clock)
        assert [each.table for each in found] == tables[2:]

    def test_it_is_not_scheduled_while_no_data_is_old_enough(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        settings = SETTINGS.model_copy(update={"retention_s": 3_600})
        assert plan(store, clock, settings) == {}, "the store knows the time only now"
        clock.advance(3_601)
        assert [scan.table for scans in plan(store, clock, settings).values() for scan in scans] == [str(table)]

    def test_a_scan_that_stopped_early_is_followed_by_another_one(self, store: Store, clock: ManualClock) -> None:
        (table,) = make(store, "app.t")
        for _ in range(9):
            clock.advance(86_400)
            assert plan(store, clock)  # which records a clock sample
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(table, stop_at=1))
        assert plan(store, clock)
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(table))
        assert plan(store, clock) == {}

    def test_a_table_with_a_cancelled_run_is_not_scheduled_until_an_operator_resumes_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        (table,) = make(store, "app.t")
        clock.advance(1)
        sweep = LegacySweep(store, SETTINGS, clock)
        sweep.start(LegacyOrder(table))
        sweep.cancel(table)
        clock.advance(30 * 86_400)
        assert plan(store, clock) == {}
        assert not still_due(store, SETTINGS, clock, table)
        sweep.resume(table)
        clock.advance(SETTINGS.legacy_silent_s)
        assert plan(store, clock)

    def test_a_scan_that_was_scheduled_long_ago_is_checked_again(self, store: Store, clock: ManualClock) -> None:
        tables = scanned, paused, removed, due = make(store, *NAMES[:4])
        clock.advance(1)
        assert all(still_due(store, SETTINGS, clock, table) for table in tables)
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(scanned))
        Pauses(store, clock).pause(paused, "ada", "a migration")
        Catalog(store).drop(removed)
        assert [still_due(store, SETTINGS, clock, table) for table in tables] == [False, False, False, True]
        assert still_due(store, SETTINGS, clock, due)


class TestScanSlot:
    def test_a_later_attempt_has_only_the_remaining_time_of_the_run(self) -> None:
        scans = [Planned("app.t", "written", 100, 500_000), Planned("app.u", "written", 100, 500_000)]
        assert ends_ms(scans, 0) == 200_000
        assert ends_ms(scans, 450_000) == 500_000
        assert not is_over(scans[0], 499_999)
        assert is_over(scans[0], 500_000)
        requested = Planned("app.t", MANUAL, 0)
        assert not is_over(requested, 10**15)

    def test_a_scheduled_scan_expires_some_time_after_it_was_planned(self, store: Store, clock: ManualClock) -> None:
        make(store, *NAMES)
        now_ms = clock.now_ms()
        for scans in plan(store, clock).values():
            assert {scan.until_ms for scan in scans} == {now_ms + 1_600_000}, "a budget of 1 000 s, and 600 s to wait"

    def test_time_left_by_earlier_scans_is_divided_among_the_rest(self) -> None:
        scan = Planned("app.t", "written", 100)
        assert share_s(scan, 300_000, 3) == 100
        assert share_s(scan, 280_000, 2) == 140
        assert share_s(scan, -5_000, 1) == 50, "earlier ones took longer"
        assert share_s(scan._replace(seconds=0), 0, 1) == 0

    @pytest.mark.parametrize(
        ("state", "why", "owner", "had"),
        [
            (RunState.FINISHED, None, "me", True), (RunState.PAUSED, "seconds", "me", True),
            (RunState.PAUSED, "failed", "me", False), (RunState.RUNNING, None, "me", False),
            (RunState.PAUSED, "interrupted", "me", False),
            (RunState.FINISHED, None, "another", False),
        ],
    )  # fmt: skip
    def test_a_later_attempt_does_not_repeat_the_work_of_an_earlier_one(
        self, state: RunState, why: str | None, owner: str, had: bool
    ) -> None:
        ended_ms = None if state is RunState.RUNNING else 5
        run = Run("r", TableRef("a", "b"), Horizon(1, 1), (EVERYWHERE,), owner, 1, state, why=why, ended_ms=ended_ms)
        assert was_done_before(RunProgress(run, []), "me") is had
        assert not was_done_before(None, "me")

    def test_the_form_reaches_the_spark_job(self) -> None:
        order = order_of(FORM | {"from_row": "61ff", "batch": 7, "dry_run": True}, Planned("app.t", MANUAL, 9))
        job = ScanJob(**vars(order), start=Start.RESTART, owner="who it is", run_id="r1")
        assert json.loads(job.document()).items() >= {
            "table": "app.t", "owner": "who it is", "run_id": "r1", "from_row": "61ff", "max_seconds": 9,
            "batch": 7, "start": "restart", "scheduled": False, "dry_run": True,
        }.items()  # fmt: skip
        assert ScanJob.parse(job.document()) == job

    def test_a_replaced_run_is_reported_with_its_progress(self) -> None:
        run = Run("r", TableRef("a", "b"), Horizon(1, 1), (EVERYWHERE,) * 2, "ada", 1, RunState.PAUSED)
        output = dropped(RunProgress(run, [RangeState(done=True), RangeState()]))
        assert {"a.b", "r", "ada"} <= set(words_in(output))
        assert values_in(output) == ["1", "2"]

    def test_the_result_is_shown_as_one_line(self) -> None:
        counts = ScanCounts(deleted=2, versions=5, cells=3)
        summary = LegacySummary("r1", "app.t", THOROUGH, 9, False, 4, 1, counts, counts, stopped="seconds")
        line = readable(summary)
        assert line.startswith("app.t ")
        assert values_in(line) == ["r1", "2", "5", "3", "1", "4"]
        assert "seconds" in words_in(line)
        settled_nothing = readable(replace(summary, stopped=None, still_due=Undone.HELD))
        assert settled_nothing.endswith(Undone.HELD.sentence)
        assert Undone.HELD.sentence not in line
        assert "seconds" not in words_in(settled_nothing)
