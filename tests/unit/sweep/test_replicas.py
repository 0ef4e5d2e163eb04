"""Delete markers of thorough tables while not every replica is available."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, TableMetadata, TableRef, VersionRange
from sweep_tasks.queue.parking import WAITING_FOR_REPLICAS, HoldReason, Parking
from sweep_tasks.store.faults import FaultyStore, miss_a_replica, on
from sweep_tasks.store.schema import PARKED
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary, SweepCounts
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.manager import TransactionManager
from tests.support.clock import ManualClock
from tests.support.replicas import Missing, ReplicatedStore
from tests.support.simulation import Process
from tests.support.tables import set_mark
from tests.unit.queue.recording import Recorder
from tests.unit.sweep.world import THOROUGH, A, B, C, World, sweep, sweeper
from tests.unit.sweep.world import THOROUGH_TABLE as TABLE

CHECKED = TableRef.parse("app.looked")


@pytest.fixture
def deleted(world: World) -> World:
    """A value with a delete over it in one cell, a value over a value in another."""
    world.write(10, 11, [A, B], table=TABLE)
    world.write(20, 21, [A], table=TABLE, delete=True)
    world.write(30, 31, [B], table=TABLE)
    return world


def swept_without_a_replica(world: World, sweep_ts: int = 100, reaches: bool = True, **options: Any) -> Summary:
    faulty = FaultyStore(world.store, before=miss_a_replica(reaches))
    return sweep(faulty, world.clock, sweep_ts, THOROUGH, **options)


def waiting(world: World) -> list[tuple[HoldReason, int]]:
    return [(entry.hold.why, entry.start) for entry in world.parked(THOROUGH)]


def read(world: World, table: TableRef = TABLE) -> bytes | None:
    TimestampService(world.store).move_past(1_000)
    return TransactionManager(world.store, clock=world.clock, renew_leases=False).read_at(1_000).get(table, *A)


class TestAReplicaIsMissing:
    @pytest.mark.parametrize(("reaches", "left"), [(True, [20]), (False, [10, 20])])
    def test_the_marker_stays_and_its_entry_waits_while_the_shard_continues(
        self, deleted: World, reaches: bool, left: list[int]
    ) -> None:
        summary = swept_without_a_replica(deleted, reaches=reaches)
        assert deleted.versions(A, TABLE) == left
        assert deleted.versions(B, TABLE) == [30], "where the newest version stays, not every replica is needed"
        assert read(deleted) is None
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        assert summary.progress == 99
        assert (summary.entries, summary.range_deletes, summary.parked, summary.unparked) == (4, 1, 1, 0)

    def test_a_marker_whose_removal_a_replica_did_not_confirm_waits_too(self, deleted: World) -> None:
        faulty = FaultyStore(deleted.store, before=on("delete_everywhere", 2, miss_a_replica(True)))
        summary = sweep(faulty, deleted.clock, 100, THOROUGH)
        assert deleted.versions(A, TABLE) == []
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        assert (summary.range_deletes, summary.parked) == (1, 1)

    def test_once_the_replica_is_back_the_next_sweep_removes_marker_and_entry(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        summary = deleted.sweep(101, THOROUGH)
        assert deleted.versions(A, TABLE) == []
        assert read(deleted) is None
        assert waiting(deleted) == []
        assert (summary.entries, summary.range_deletes, summary.parked, summary.unparked) == (0, 1, 0, 1)

    def test_still_unavailable_it_is_retried_and_continues_to_wait(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        for again in range(3):
            summary = swept_without_a_replica(deleted, 101 + again)
            assert (summary.range_deletes, summary.parked, summary.unparked) == (0, 0, 0)
            assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
            assert deleted.versions(A, TABLE) == [20]

    def test_a_dry_run_reports_what_would_be_attempted_and_does_nothing(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        before = deleted.state()
        recorder = Recorder(deleted.store)
        summary = sweep(recorder.store, deleted.clock, 101, THOROUGH, dry_run=True)
        assert recorder.steps == []
        assert deleted.state() == before
        assert (summary.range_deletes, summary.parked, summary.unparked) == (1, 0, 1)

    def test_the_later_of_two_markers_of_a_cell_covers_both(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        deleted.write(110, 111, [A], table=TABLE, delete=True)
        swept_without_a_replica(deleted, 200)
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20), (HoldReason.REPLICAS, 110)]
        assert swept_without_a_replica(deleted, 201).unparked == 1
        assert waiting(deleted) == [(HoldReason.REPLICAS, 110)]
        assert deleted.sweep(202, THOROUGH).unparked == 1
        assert deleted.versions(A, TABLE) == []

    def test_a_cell_written_again_meanwhile_keeps_its_new_value(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        deleted.write(110, 111, [A], table=TABLE)
        deleted.sweep(200, THOROUGH)
        assert deleted.versions(A, TABLE) == [110]
        assert waiting(deleted) == []

    def test_only_the_cells_that_were_not_confirmed_wait(self, deleted: World) -> None:
        deleted.write(40, 41, [B, C], table=TABLE, delete=True)
        inner = deleted.store

        class Lacking(FaultyStore):
            def delete_everywhere(self, table: TableRef, ranges: Any) -> list[VersionRange]:
                inner.delete_everywhere(table, ranges)
                return [each for each in ranges if each.cell == B]

        summary = sweep(Lacking(inner), deleted.clock, 100, THOROUGH)
        assert waiting(deleted) == [(HoldReason.REPLICAS, 40)]
        assert deleted.parked(THOROUGH)[0].cell == B
        assert [deleted.versions(cell, TABLE) for cell in (A, B, C)] == [[], [40], []]
        assert (summary.range_deletes, summary.parked) == (2, 1)


class TestOrder:
    def test_versions_are_removed_before_the_marker_before_parking_before_the_queue(self, deleted: World) -> None:
        recorder = Recorder(deleted.store)
        sweep(recorder.store, deleted.clock, 50_000, THOROUGH)
        ours = [call for call in recorder.calls if call.arguments[0] == TABLE]
        assert [(call.name, [tuple(each)[1:] for each in call.arguments[1]]) for call in ours] == [
            ("delete_ranges", [(-1, 30)]),
            ("delete_everywhere", [(-1, 20)]),
            ("delete_everywhere", [(20, 21)]),
        ]

    def test_the_entry_is_parked_before_the_queue_forgets_it(self, deleted: World) -> None:
        deleted.sweep(5, THOROUGH)
        recorder = Recorder(FaultyStore(deleted.store, before=miss_a_replica(True)))
        sweep(recorder.store, deleted.clock, 50_000, THOROUGH)
        steps = [step for step in recorder.steps if not step[1].startswith("_")]
        assert steps == [
            ("delete_ranges", "app.thorough"),
            ("delete_everywhere", "app.thorough"),
            ("put", "sweep.parked"),
            ("delete_rows", "sweep.sweepableCells"),
            ("delete_ranges", "sweep.sweepableTimestamps"),
            ("update", "sweep.sweepProgressPerShard"),
        ]

    def test_an_entry_from_another_hold_is_parked_here_before_it_leaves_there(self, deleted: World) -> None:
        deleted.protect("backup", 15, table=TABLE)
        deleted.sweep(100, THOROUGH)
        assert [entry.hold.record for entry in deleted.parked(THOROUGH)] == ["backup", "backup"]
        deleted.release("backup")
        recorder = Recorder(FaultyStore(deleted.store, before=miss_a_replica(True)))
        summary = sweep(recorder.store, deleted.clock, 100, THOROUGH)
        assert [step for step in recorder.steps if not step[1].startswith("_")] == [
            ("delete_ranges", "app.thorough"),
            ("delete_everywhere", "app.thorough"),
            ("put", "sweep.parked"),
            ("delete_ranges", "sweep.parked"),
        ]
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        assert (summary.parked, summary.unparked) == (0, 1), "one was removed, the other only moved"


class TestOtherHolds:
    def test_a_protection_that_covers_it_by_now_takes_it_over(self, deleted: World) -> None:
        """A record that will be refused: it is stored, so every sweep respects it."""
        swept_without_a_replica(deleted, reaches=False)
        protecting = Process(deleted.store, lambda store: World(store, deleted.clock).protect("late", 15, table=TABLE))
        protecting.step_to("compare_and_set")
        protecting.step()
        summary = deleted.sweep(101, THOROUGH)
        assert [(entry.hold.record, entry.start) for entry in deleted.parked(THOROUGH)] == [("late", 20)]
        assert deleted.versions(A, TABLE) == [10, 20]
        assert (summary.parked, summary.unparked) == (0, 0)
        protecting.finish()
        assert not protecting.result
        assert deleted.sweep(102, THOROUGH).unparked == 1
        assert deleted.versions(A, TABLE) == []

    def test_a_zombie_that_moves_it_does_not_take_away_what_waits_again(self, deleted: World) -> None:
        """It read the waiting entry, finds it protected and stops. By then the record is released and the entry waits
        again."""
        swept_without_a_replica(deleted, reaches=False)
        protecting = Process(deleted.store, lambda store: World(store, deleted.clock).protect("late", 15, table=TABLE))
        protecting.step_to("compare_and_set")
        protecting.step()
        zombie = Process(deleted.store, lambda store: sweep(store, deleted.clock, 101, THOROUGH))
        zombie.step_to("put")
        zombie.step()
        assert zombie.next_call == "delete_ranges"
        protecting.finish()
        swept_without_a_replica(deleted, 102, reaches=False)
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        zombie.finish()
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        deleted.sweep(103, THOROUGH)
        assert deleted.versions(A, TABLE) == []

    def test_a_table_dropped_meanwhile_has_nothing_to_wait_for(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        Catalog(deleted.store).drop(TABLE, force=True)
        assert deleted.sweep(101, THOROUGH).unparked == 1
        assert waiting(deleted) == []


class TestCheckingFirst:
    @pytest.fixture
    def checked(self, world: World) -> World:
        world.store.create_table(CHECKED, TableMetadata(THOROUGH, look_before_delete=True))
        world.write(10, 11, [A], table=CHECKED)
        world.write(20, 21, [A, B], table=CHECKED, delete=True)
        return world

    def test_what_is_stored_is_removed_in_the_same_order(self, checked: World) -> None:
        recorder = Recorder(checked.store)
        summary = sweep(recorder.store, checked.clock, 100, THOROUGH)
        ours = [call for call in recorder.calls if call.arguments[0] == CHECKED]
        assert [(call.name, len(call.arguments[1])) for call in ours] == [("delete_everywhere", 2)] * 2
        assert summary.range_deletes == 2
        assert checked.store.scan_versions(CHECKED).items == []

    def test_where_nothing_is_there_nothing_is_done(self, checked: World) -> None:
        checked.store.truncate(CHECKED, 100)
        recorder = Recorder(checked.store)
        summary = sweep(recorder.store, checked.clock, 100, THOROUGH)
        assert [call for call in recorder.calls if call.arguments[0] == CHECKED] == []
        assert (summary.range_deletes, summary.parked) == (0, 0)

    def test_what_a_read_does_not_show_any_more_is_removed_from_the_missing_replica_too(self, checked: World) -> None:
        marker_missed = FaultyStore(checked.store, before=on("delete_everywhere", 2, miss_a_replica(True)))
        assert sweep(marker_missed, checked.clock, 100, THOROUGH).parked == 2
        assert checked.store.scan_versions(CHECKED).items == []
        recorder = Recorder(checked.store)
        assert sweep(recorder.store, checked.clock, 101, THOROUGH).unparked == 2
        ours = [call for call in recorder.calls if call.arguments[0] == CHECKED]
        assert [(call.name, len(call.arguments[1])) for call in ours] == [("delete_everywhere", 2)] * 2

    def test_a_delete_older_than_a_truncation_that_died_before_it_emptied_anything_need_not_wait(
        self, deleted: World
    ) -> None:
        """What an unavailable replica brings back later started below the mark, so no reader sees it."""
        set_mark(deleted.store, TABLE, 500)
        assert swept_without_a_replica(deleted).parked == 0
        assert deleted.versions(A, TABLE) == []


class TestSpreadOverWorkers:
    def test_what_waits_is_one_hold_and_always_due(self, deleted: World) -> None:
        deleted.write(40, 41, [C], table=TABLE, delete=True)
        swept_without_a_replica(deleted)
        judge = judge_of(deleted)
        assert [(first.hold, first.start) for first in judge.due_holds()] == [(WAITING_FOR_REPLICAS, 20)]

    def test_by_ranges_of_start_timestamps_all_are_retried(self, deleted: World) -> None:
        deleted.write(40, 41, [C], table=TABLE, delete=True)
        swept_without_a_replica(deleted)
        judge_of(deleted).rejudge_parked(Parking.started(WAITING_FOR_REPLICAS, 21, 100))
        assert waiting(deleted) == [(HoldReason.REPLICAS, 20)]
        judge_of(deleted).rejudge_parked(Parking.started(WAITING_FOR_REPLICAS, 0, 21))
        assert waiting(deleted) == []

    def test_a_shard_where_something_waits_is_not_idle(self, deleted: World) -> None:
        swept_without_a_replica(deleted)
        sweep = ShardSweep(deleted.store, THOROUGH, 0, Horizon(101, deleted.clock.now_ms()), deleted.clock)
        assert sweep.run_if_idle() is None


def judge_of(world: World) -> Judge:
    summary = Summary(THOROUGH, 0, 101)
    view = SweepView.publish(world.store, Horizon(101, world.clock.now_ms()), dry_run=False)
    parking = Parking(world.store, TimestampService(world.store), THOROUGH, 0)
    return Judge(world.store, THOROUGH, view, parking, world.clock, 3_600, summary, SweepCounts())


# --- interrupted anywhere -------------------------------------------------------------------------------------------


def history(clock: ManualClock) -> ReplicatedStore:
    """One entry waits already, one is about to, and one was held by a record that is released."""
    shared = ReplicatedStore(clock)
    world = World(shared, clock)
    world.protect("gone", 15, table=TABLE)
    world.write(10, 11, [A, B, C], table=TABLE)
    world.write(12, 13, [A], table=TABLE, delete=True)
    world.write(20, 21, [B], table=TABLE, delete=True)
    shared.missing = Missing.KNOWN
    world.sweep(50, THOROUGH)
    world.release("gone")
    world.write(60, 61, [C], table=TABLE, delete=True)
    return shared


def seen(store: ReplicatedStore) -> list[tuple[TableRef, Cell]]:
    """Cells that a reader would find alive, if the missing replica is read and every tombstone is purged."""
    return [(table, cell) for table, cell, versions in store.brought_back() if versions[max(versions)]]


@pytest.mark.parametrize("missing", [None, *Missing])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_restores_no_version_and_leaves_no_garbage(missing: Missing | None, after: bool) -> None:
    calls = 0
    while True:
        calls += 1
        clock = ManualClock()
        shared = history(clock)
        shared.missing = missing
        process = Process(shared, sweeper(clock, 50_000, strategy=THOROUGH))
        for _ in range(calls):
            process.step()
        if process.ended:
            break
        at = process.next_call
        (process.crash_after_call if after else process.crash_here)()
        assert seen(shared) == [], f"crashed {'after' if after else 'before'} call {calls}, {at}"
        shared.come_back(repaired=False)
        sweep(shared, clock, 50_000, THOROUGH)
        assert seen(shared) == []
        assert shared.scan_versions(TABLE).items == []
        assert shared.scan_versions(PARKED).items == []
    assert calls > 20


def test_a_marker_removed_too_early_lets_the_missing_replica_restore_the_value(clock: ManualClock) -> None:
    """What all of this prevents."""
    shared = ReplicatedStore(clock)
    World(shared, clock).write(10, 11, [A], table=TABLE)
    World(shared, clock).write(20, 21, [A], table=TABLE, delete=True)
    shared.missing = Missing.SILENT
    shared.delete_ranges(TABLE, [VersionRange(A, -1, 20)])
    assert seen(shared) == []
    shared.delete_ranges(TABLE, [VersionRange(A, 20, 21)])
    assert seen(shared) == [(TABLE, A)]
