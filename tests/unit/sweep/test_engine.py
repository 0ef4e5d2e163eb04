"""One shard's sweep on real stores: what is removed, what stays, and in which order."""

from __future__ import annotations

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import HoldReason
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.unit.queue.recording import Recorder
from tests.unit.sweep.world import (
    CONSERVATIVE,
    NOTHING,
    TABLE,
    THOROUGH,
    THOROUGH_TABLE,
    A,
    B,
    C,
    World,
    counts,
    outcome,
    sweep,
)

FINE = 50_000
MANY = [Cell(b"many", b"%03d" % number) for number in range(60)]


class TestRemoval:
    def test_older_versions_are_removed_and_the_newest_stays_with_a_sentinel(self, world: World) -> None:
        for start in (10, 20, 30):
            world.write(start, start + 1)
        summary = world.sweep(100)
        assert world.versions() == [-1, 30]
        assert (summary.entries, summary.range_deletes, summary.sentinels) == (3, 1, 1)
        assert (summary.progress_before, summary.progress, summary.stopped) == (-1, 99, None)

    def test_a_thorough_table_keeps_no_sentinel_and_no_delete(self, world: World) -> None:
        for start, delete in ((10, False), (20, True)):
            world.write(start, start + 1, [A], table=THOROUGH_TABLE, delete=delete)
        world.write(30, 31, [B], table=THOROUGH_TABLE)
        summary = world.sweep(100, THOROUGH)
        assert world.versions(A, THOROUGH_TABLE) == []
        assert world.versions(B, THOROUGH_TABLE) == [30]
        assert (summary.range_deletes, summary.sentinels) == (2, 0)

    def test_a_conservative_table_keeps_its_delete(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21, delete=True)
        world.sweep(100)
        assert world.versions() == [-1, 20]

    def test_the_other_strategy_is_left_alone(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        summary = world.sweep(100, THOROUGH)
        assert summary.entries == 0
        assert world.versions() == [10, 20]
        assert world.progress() == -1

    def test_it_removes_nothing_above_the_sweep_timestamp(self, world: World) -> None:
        for start in (10, 20, 30):
            world.write(start, start + 1)
        assert world.sweep(25).progress == 24
        assert world.versions() == [-1, 20, 30]
        assert world.sweep(25).entries == 0

    def test_a_lower_sweep_timestamp_moves_nothing_down(self, world: World) -> None:
        world.sweep(100)
        summary = world.sweep(50)
        assert summary.progress == world.progress() == 99
        assert Thresholds(world.store).of_strategy(CONSERVATIVE) == 100

    def test_nothing_to_sweep_moves_progress_all_the_same(self, world: World) -> None:
        summary = world.sweep(7)
        assert (summary.progress, summary.batches, world.progress()) == (6, 0, 6)
        assert world.sweep(0).progress == 6

    def test_queue_rows_are_removed_once_their_partition_is_past(self, world: World) -> None:
        world.write(10, 11)
        world.write(FINE + 10, FINE + 11)
        assert world.sweep(FINE).cleaned_partitions == 1
        assert not world.queue_is_empty()
        assert world.sweep(2 * FINE - 1).cleaned_partitions == 0
        assert world.sweep(2 * FINE).cleaned_partitions == 1
        assert world.queue_is_empty()

    def test_partitions_far_apart_are_swept_in_one_run(self, world: World) -> None:
        for start in (10, 40_000_000, 12_000_000_000):
            world.write(start, start + 1)
        assert world.sweep(13_000_000_000).cleaned_partitions == 3
        assert world.versions() == [-1, 12_000_000_000]
        assert world.queue_is_empty()

    def test_sweeping_in_batches_leaves_the_same_state(self, world: World) -> None:
        for start in range(10, 30):
            world.write(start, start + 50, [A, B] if start % 2 else [C])
        summary = world.sweep(FINE, batch=3)
        assert (summary.entries, summary.range_deletes, summary.sentinels) == (30, 3, 3)
        assert summary.batches > 5
        assert [world.versions(cell) for cell in (A, B, C)] == [[-1, 29], [-1, 29], [-1, 28]]


class TestUndecided:
    def test_a_transaction_that_never_finished_is_aborted_and_its_version_is_removed(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, None)
        summary = world.sweep(100)
        assert outcome(world, 20) == ABORTED
        assert world.versions() == [-1, 10]
        assert (summary.aborted_deletes, summary.parked) == (1, 1)

    def test_a_slow_writer_is_watched_for_a_while(self, world: World) -> None:
        world.write(20, None, store=False)
        world.sweep(100, grace_s=60)
        world.store.put(20, {TABLE: {A: b"late"}})
        world.clock.advance(59)
        assert world.sweep(100, grace_s=60).unparked == 0
        assert world.versions() == [20]
        world.clock.advance(1)
        summary = world.sweep(100, grace_s=60)
        assert (summary.unparked, summary.aborted_deletes) == (1, 1)
        assert world.versions() == []
        assert world.parked() == []

    def test_one_that_aborted_by_itself_is_watched_as_well(self, world: World) -> None:
        world.write(20, ABORTED)
        world.sweep(100)
        assert world.versions() == []
        assert [entry.hold.why for entry in world.parked()] == [HoldReason.GRACE]

    def test_a_transaction_that_commits_in_the_last_moment_is_not_aborted(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, None)

        def commits(_: StoreCall) -> None:
            CommitTable(world.store).decide(20, 25)

        store = FaultyStore(world.store, before=on("put_if_absent", 1, commits))
        assert sweep(store, world.clock, 100).aborted_deletes == 0
        assert world.versions() == [-1, 20]

    def test_one_that_committed_too_late_blocks_what_started_after_it(self, world: World) -> None:
        world.write(10, 11, [A])
        world.write(20, 150, [A, B])
        world.write(30, 31, [A, B])
        summary = world.sweep(100)
        assert (summary.stopped, summary.blocked, summary.progress) == ("blocked", 4, 19)
        assert (world.versions(A), world.versions(B)) == ([-1, 10, 20, 30], [20, 30])
        world.sweep(151)
        assert (world.versions(A), world.versions(B)) == ([-1, 30], [-1, 30])

    def test_everything_behind_the_block_is_counted(self, world: World) -> None:
        for start, commit in ((10, 200), (20, 21), (30, 31), (FINE + 5, FINE + 6)):
            world.write(start, commit)
        summary = world.sweep(100, batch=1)
        assert summary.blocked == 3, "those below the sweep timestamp"
        assert summary.progress == 9

    def test_a_commit_at_the_sweep_timestamp_blocks_and_one_below_does_not(self, world: World) -> None:
        world.write(10, 100)
        assert world.sweep(100).stopped == "blocked"
        assert world.sweep(101).stopped is None


class TestTables:
    def test_a_table_set_to_nothing_is_no_longer_swept_and_its_entries_are_removed(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        Catalog(world.store).change(TABLE, NOTHING, None)
        world.sweep(FINE)
        assert world.versions() == [10, 20]
        assert world.queue_is_empty()

    def test_entries_of_a_dropped_table_have_nothing_to_do(self, world: World) -> None:
        world.write(10, 11)
        world.protect("a", 5)
        world.write(20, 21)
        world.release("a")
        Catalog(world.store).drop(TABLE)
        summary = world.sweep(FINE)
        assert (summary.entries, summary.quarantined, summary.range_deletes) == (2, 0, 0)
        assert world.queue_is_empty()

    def test_parked_entries_of_a_dropped_table_leave(self, world: World) -> None:
        world.write(10, 11)
        world.write(40, 41)
        world.protect("a", 30)
        world.sweep(100)
        Catalog(world.store).drop(TABLE, force=True)
        world.release("a")
        assert world.sweep(100).unparked == 1
        assert world.parked() == []

    def test_checking_first_writes_no_tombstone_for_first_writes(self, world: World) -> None:
        checked = TableRef.parse("app.looked")
        world.store.create_table(checked, TableMetadata(look_before_delete=True))
        world.write(10, 11, [A, B], table=checked)
        world.write(20, 21, [B, C], table=checked)
        recorder = Recorder(world.store)
        summary = sweep(recorder.store, world.clock, 100)
        changes = [call for call in recorder.calls if call.arguments[0] == checked]
        assert [(call.name, len(call.arguments[1])) for call in changes] == [("add_sentinels", 1), ("delete_ranges", 1)]
        assert (summary.range_deletes, summary.sentinels, summary.entries) == (1, 1, 4)
        assert [world.versions(cell, checked) for cell in (A, B, C)] == [[10], [-1, 20], [20]]


class TestTruncation:
    def test_entries_older_than_a_truncation_leave_no_sentinel_behind(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        Catalog(world.store).truncate(TABLE)
        summary = world.sweep(100)
        assert world.versions() == []
        assert (summary.sentinels, summary.range_deletes) == (0, 0)

    def test_a_lone_sentinel_from_before_is_removed_too(self, world: World) -> None:
        world.write(10, 11)
        Catalog(world.store).truncate(TABLE)
        world.store.add_sentinels(TABLE, [A])
        world.sweep(100)
        assert world.versions() == []

    def test_what_was_written_after_it_stays(self, world: World) -> None:
        world.write(10, 11)
        Catalog(world.store).truncate(TABLE)
        start = TimestampService(world.store).fresh()
        world.write(start, start + 1)
        world.sweep(100)
        assert start in world.versions()

    @pytest.mark.parametrize("call", ["add_sentinels", "delete_ranges"])
    @pytest.mark.parametrize("after", [False, True])
    def test_a_truncation_while_it_is_swept_leaves_no_sentinel(self, world: World, call: str, after: bool) -> None:
        for start in (10, 20):
            world.write(start, start + 1, [A, B])
        truncates = on(call, 1, lambda _: Catalog(world.store).truncate(TABLE))
        store = FaultyStore(world.store, **{"after" if after else "before": truncates})
        sweep(store, world.clock, 100)
        assert world.store.scan_versions(TABLE).items == []


class TestOrder:
    def test_steps_run_in_the_order_publish_sentinels_tombstones_parking_cleaning_progress(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        world.write(30, None)
        TableIds(world.store).id_of(TABLE)
        recorder = Recorder(world.store)
        sweep(recorder.store, world.clock, FINE)
        assert recorder.steps == [
            ("update", "_thresholds"),
            ("put_if_absent", "_transactions"),
            ("add_sentinels", "app.items"),
            ("delete_ranges", "app.items"),
            ("delete_versions", "app.items"),
            ("update", "_timestamp"),
            ("put", "sweep.parked"),
            ("delete_rows", "sweep.sweepableCells"),
            ("delete_ranges", "sweep.sweepableTimestamps"),
            ("update", "sweep.sweepProgressPerShard"),
        ]

    def test_a_parked_entry_is_parked_again_before_anything_is_deleted(self, world: World) -> None:
        for start in (10, 40, 60):
            world.write(start, start + 1)
        world.protect("earlier", 20)
        world.protect("later", 50)
        world.sweep(100)
        world.release("later")
        recorder = Recorder(world.store)
        sweep(recorder.store, world.clock, 100)
        assert recorder.steps == [
            ("update", "_thresholds"),
            ("update", "_timestamp"),
            ("put", "sweep.parked"),
            ("delete_ranges", "app.items"),
            ("delete_ranges", "sweep.parked"),
        ]


class TestDryRun:
    def busy(self, world: World) -> None:
        for start in (10, 20, 40, 50):
            world.write(start, start + 1, [A, B])
        world.write(30, None, [B])
        world.write(60, ABORTED, [C])
        world.write(70, 71, MANY)
        world.enter(80, b"\x02")
        world.protect("a", 45)
        world.protect("gone", 15)
        world.sweep(35)
        world.release("gone")
        world.write(90, 500, [C])
        world.write(95, 96, [A])

    def test_it_changes_nothing(self, world: World) -> None:
        self.busy(world)
        before = world.state()
        recorder = Recorder(world.store)
        sweep(recorder.store, world.clock, 100, dry_run=True)
        assert recorder.steps == []
        assert world.state() == before

    def test_its_counts_are_those_of_the_run_that_follows(self, world: World) -> None:
        self.busy(world)
        foretold = counts(world.sweep(100, dry_run=True))
        done = counts(world.sweep(100))
        assert foretold == done
        assert done["stopped"] == "blocked"
        for name in ("entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "quarantined"):
            assert done[name] > 0, name

    def test_its_counts_are_right_where_whole_partitions_are_passed(self, world: World) -> None:
        """A dry run leaves them where they are, and must not treat them as late entries afterwards."""
        for start in (10, 20, FINE + 10, 2 * FINE + 10):
            world.write(start, start + 1)
        world.write(FINE + 20, None)
        foretold = counts(world.sweep(3 * FINE, dry_run=True))
        assert foretold == counts(world.sweep(3 * FINE))
        assert (foretold["entries"], foretold["cleaned_partitions"]) == (5, 3)
