"""One shard's sweep on real stores: what goes, what stays, what is parked, and in which order."""

from __future__ import annotations

import pytest

import sweep_tasks.queue.writer as writer_module
from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.encoding import sized
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode
from sweep_tasks.queue.encoding import dedicated_rows, shared_row, write_bytes
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import ParkedEntry, Parking, Why
from sweep_tasks.queue.quarantine import Quarantine
from sweep_tasks.store.faults import Call, FaultyStore, on
from sweep_tasks.store.system import QUEUE_CELLS
from sweep_tasks.sweep.budget import Budget
from sweep_tasks.sweep.run import Retried, retry_quarantined
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED, CommitTable
from tests.support.simulation import Process
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
    sweep,
    sweeper,
)

FINE = 50_000
SETTINGS = Settings()
MANY = [Cell(b"many", b"%03d" % number) for number in range(60)]


def parked_entries(world: World) -> list[ParkedEntry]:
    return list(Parking(world.store, TimestampService(world.store), CONSERVATIVE, 0).all())


def outcome(world: World, start: int) -> int | None:
    return CommitTable(world.store).outcomes([start]).get(start)


class TestWhatGoes:
    def test_older_versions_go_and_the_newest_stays_behind_a_sentinel(self, world: World) -> None:
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

    def test_it_goes_no_further_than_the_sweep_timestamp(self, world: World) -> None:
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

    def test_queue_rows_go_once_their_partition_is_past(self, world: World) -> None:
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

    def test_batches_end_in_the_same_state_as_one_sweep(self, world: World) -> None:
        for start in range(10, 30):
            world.write(start, start + 50, [A, B] if start % 2 else [C])
        summary = world.sweep(FINE, batch=3)
        assert (summary.entries, summary.range_deletes, summary.sentinels) == (30, 3, 3)
        assert summary.batches > 5
        assert [world.versions(cell) for cell in (A, B, C)] == [[-1, 29], [-1, 29], [-1, 28]]


class TestUndecided:
    def test_a_transaction_that_never_finished_is_aborted_and_its_version_goes(self, world: World) -> None:
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
        assert [entry.hold.why for entry in world.parked()] == [Why.GRACE]

    def test_a_transaction_that_commits_in_the_last_moment_is_not_aborted(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, None)

        def commits(_: Call) -> None:
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


class TestProtections:
    def test_what_a_reader_at_the_protection_sees_stays_until_it_is_released(self, world: World) -> None:
        for start in (10, 20, 40, 50):
            world.write(start, start + 1)
        assert world.protect("a", 30)
        summary = world.sweep(100)
        assert world.versions() == [-1, 20, 50]
        assert (summary.parked, summary.progress) == (1, 99)
        world.release("a")
        summary = world.sweep(100)
        assert world.versions() == [-1, 50]
        assert (summary.unparked, summary.parked, summary.entries) == (1, 0, 0)
        assert world.parked() == []

    def test_everything_after_a_protection_of_that_kind_stays(self, world: World) -> None:
        for start in (10, 20, 40, 50):
            world.write(start, start + 1)
        world.protect("a", 30, Mode.AFTER)
        world.sweep(100)
        assert world.versions() == [-1, 20, 40, 50]
        world.release("a")
        world.sweep(100)
        assert world.versions() == [-1, 50]

    def test_a_delete_over_a_protected_version_stays_and_goes_with_it(self, world: World) -> None:
        world.write(10, 11, table=THOROUGH_TABLE)
        world.write(40, 41, table=THOROUGH_TABLE, delete=True)
        world.protect("a", 30, table=THOROUGH_TABLE)
        world.sweep(100, THOROUGH)
        assert world.versions(A, THOROUGH_TABLE) == [10, 40]
        world.release("a")
        world.sweep(100, THOROUGH)
        assert world.versions(A, THOROUGH_TABLE) == []

    def test_released_into_the_next_protection(self, world: World) -> None:
        for start in (10, 40, 60):
            world.write(start, start + 1)
        world.protect("later", 50)
        world.protect("earlier", 20)
        world.sweep(100)
        assert world.versions() == [-1, 10, 40, 60]
        world.release("later")
        summary = world.sweep(100)
        assert world.versions() == [-1, 10, 60], "it is held by the earlier one now"
        assert (summary.unparked, summary.parked) == (0, 0)
        assert [entry.hold.record for entry in world.parked()] == ["earlier", "earlier"]
        world.release("earlier")
        world.sweep(100)
        assert (world.versions(), world.parked()) == ([-1, 60], [])

    def test_a_protection_is_read_after_the_threshold_is_published(self, world: World) -> None:
        calls: list[str] = []
        watched = FaultyStore(
            world.store, before=lambda call: calls.append(" ".join((call.name, *map(str, call.arguments[:1]))))
        )
        world.write(10, 11)
        sweep(watched, world.clock, 100)
        published = calls.index("update _thresholds")
        assert calls[:published] == ["read_rows _pauses"]
        first_look = calls.index("read_rows _protections")
        assert published < first_look < next(number for number, call in enumerate(calls) if "sweepableCells" in call)


class TestRetention:
    @pytest.fixture
    def kept_longer(self, world: World) -> World:
        Puncher(world.store).record(Punch(1_000_000, 50))
        world.clock.advance(100)
        Puncher(world.store).record(Punch(world.clock.now_ms(), 90))
        Catalog(world.store).change(TABLE, CONSERVATIVE, 100)
        return world

    def test_what_is_too_young_waits_until_it_is_old_enough(self, kept_longer: World) -> None:
        world = kept_longer
        for start in (10, 20, 60, 70):
            world.write(start, start + 1)
        summary = world.sweep(100)
        assert world.versions() == [-1, 20, 60, 70]
        assert (summary.parked, summary.progress) == (2, 99)
        assert world.sweep(100).unparked == 0
        world.clock.advance(100)
        assert world.sweep(100).unparked == 2
        assert (world.versions(), world.parked()) == ([-1, 70], [])

    def test_its_threshold_is_its_own(self, kept_longer: World) -> None:
        world = kept_longer
        world.sweep(100)
        assert Thresholds(world.store).of_tables([TABLE])[TABLE].for_readers == 50
        world.clock.advance(100)
        world.sweep(100)
        assert Thresholds(world.store).of_tables([TABLE])[TABLE].for_readers == 90

    def test_a_retention_that_is_taken_away_lets_go_of_what_it_held(self, kept_longer: World) -> None:
        world = kept_longer
        world.write(60, 61)
        world.write(70, 71)
        world.sweep(100)
        Catalog(world.store).change(TABLE, CONSERVATIVE, None)
        world.sweep(100)
        assert (world.versions(), world.parked()) == ([-1, 70], [])

    def test_a_sweep_that_looked_before_the_retention_came_lets_nothing_go_that_it_did_not_publish(
        self, world: World
    ) -> None:
        slow = Process(world.store, sweeper(world.clock, 50))
        slow.step_to("scan")
        Catalog(world.store).change(TABLE, CONSERVATIVE, 100)
        world.write(60, 61)
        world.write(70, 71)
        world.sweep(100)
        assert (world.versions(), len(world.parked())) == ([60, 70], 2)
        slow.finish()
        assert (world.versions(), len(world.parked())) == ([60, 70], 2)


class TestLettingGo:
    @pytest.fixture
    def held(self, world: World) -> World:
        """Twenty cells with something below a protection each."""
        cells = [Cell(b"row-%02d" % number, b"c") for number in range(20)]
        world.write(10, 11, cells)
        world.protect("backup", 50, Mode.AFTER)
        for number, cell in enumerate(cells):
            world.write(60 + 2 * number, 61 + 2 * number, [cell])
        world.sweep(200)
        assert len(world.parked()) == 20
        return world

    def test_a_release_is_taken_up_in_bounded_steps(self, held: World) -> None:
        held.release("backup")
        budget = Budget(parked=8)
        runs = [held.sweep(200, budget=budget).unparked for _ in range(4)]
        assert runs == [8, 8, 4, 0]
        assert held.parked() == []

    def test_the_queue_does_not_wait_for_it(self, held: World) -> None:
        held.release("backup")
        held.write(300, 301)
        summary = held.sweep(400, budget=Budget(parked=1))
        assert (summary.unparked, summary.progress) == (1, 399)

    def test_a_record_that_moves_forward_frees_what_it_has_moved_past_and_no_more_is_judged(self, held: World) -> None:
        left = [entry.start for entry in parked_entries(held) if entry.start >= 80]
        assert ProtectionCatalog(held.store).move("backup", 80).accepted
        recorder = Recorder(held.store)
        assert sweep(recorder.store, held.clock, 200).unparked == 10
        assert [entry.start for entry in parked_entries(held)] == left
        puts = [call for call in recorder.calls if call.name == "put"]
        assert puts == [], "nothing was parked anew"

    def test_what_is_left_goes_when_it_moves_on_or_is_released(self, held: World) -> None:
        catalog = ProtectionCatalog(held.store)
        catalog.move("backup", 80)
        held.sweep(200)
        catalog.move("backup", 90)
        assert held.sweep(200).unparked == 5
        held.release("backup")
        assert held.sweep(200).unparked == 5
        assert held.parked() == []


class TestTables:
    def test_a_table_set_to_nothing_is_no_longer_swept_and_its_entries_go(self, world: World) -> None:
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

    def test_looking_first_writes_no_tombstone_for_first_writes(self, world: World) -> None:
        looked = TableRef.parse("app.looked")
        world.store.create_table(looked, TableMetadata(look_before_delete=True))
        world.write(10, 11, [A, B], table=looked)
        world.write(20, 21, [B, C], table=looked)
        recorder = Recorder(world.store)
        summary = sweep(recorder.store, world.clock, 100)
        changes = [call for call in recorder.calls if call.arguments[0] == looked]
        assert [(call.name, len(call.arguments[1])) for call in changes] == [("add_sentinels", 1), ("delete_ranges", 1)]
        assert (summary.range_deletes, summary.sentinels, summary.entries) == (1, 1, 4)
        assert [world.versions(cell, looked) for cell in (A, B, C)] == [[10], [-1, 20], [20]]


class TestTruncation:
    def test_entries_older_than_a_truncation_leave_no_sentinel_behind(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        Catalog(world.store).truncate(TABLE)
        summary = world.sweep(100)
        assert world.versions() == []
        assert (summary.sentinels, summary.range_deletes) == (0, 0)

    def test_a_lone_sentinel_from_before_goes_too(self, world: World) -> None:
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


class TestLargeTransactions:
    def test_sixty_writes(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1, MANY)
        summary = world.sweep(FINE)
        assert (summary.entries, summary.range_deletes) == (120, 60)
        assert all(world.versions(cell) == [-1, 20] for cell in MANY)
        assert world.queue_is_empty()

    @pytest.mark.parametrize("batch", [7, 20, 1_000])
    def test_several_dedicated_rows(self, world: World, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
        for start in (10, 20):
            world.write(start, start + 1, MANY)
        world.write(15, None, MANY[:55])
        summary = world.sweep(FINE, batch=batch)
        assert (summary.entries, summary.range_deletes, summary.aborted_deletes) == (175, 60, 55)
        assert all(world.versions(cell) == [-1, 20] for cell in MANY)
        assert world.queue_is_empty()

    def test_dedicated_rows_of_an_aborted_transaction_go_as_well(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
        world.write(10, ABORTED, MANY)
        world.sweep(11)
        rows = {cell.row for cell, _, _ in world.store.scan_versions(QUEUE_CELLS).items}
        assert rows.isdisjoint(dedicated_rows(10, CONSERVATIVE, 0, 3))

    def test_progress_waits_below_a_large_transaction_that_is_blocked(self, world: World) -> None:
        world.write(5, 6, MANY)
        world.write(10, 150, MANY)
        summary = world.sweep(100, batch=25)
        assert (summary.progress, summary.blocked) == (9, 60)
        assert all(world.versions(cell) == [-1, 5, 10] for cell in MANY)


class TestWhatCannotBeRead:
    def reasons(self, world: World) -> list[str]:
        return [entry.reason for entry in Quarantine(world.store, TimestampService(world.store)).all()]

    def test_it_is_set_aside_with_the_reason_and_the_shard_goes_on(self, world: World) -> None:
        world.write(10, 11)
        for index, value in enumerate([b"", b"\x02what", b"{}", write_bytes(77, A, False)]):
            world.enter(20, value, index)
        row = shared_row(0, CONSERVATIVE, 0)
        world.store.put(20, {QUEUE_CELLS: {Cell(row, b"\x15"): b"?"}})
        world.enter(30, b"\x00" + sized(b"app.nowhere") + sized(b"r") + sized(b"c") + b"\x00")
        world.write(40, 41)
        summary = world.sweep(FINE)
        assert (summary.quarantined, summary.entries, summary.progress) == (6, 2, FINE - 1)
        assert sorted(self.reasons(world)) == [
            "bytes: a queued write in JSON lacks or garbles a field (KeyError)",
            "bytes: no queued write starts with 02",
            "bytes: no queued write starts with nothing",
            "column: can't be read",
            "table: app.nowhere does not exist and was never dropped",
            "table: no table has the id 77",
        ]
        assert world.versions() == [-1, 40]
        assert world.queue_is_empty()

    def test_its_transaction_is_settled_like_any_other(self, world: World) -> None:
        world.write(10, None)
        world.enter(10, b"\x02", 1)
        world.sweep(100)
        assert outcome(world, 10) == ABORTED

    def test_it_is_set_aside_before_its_row_is_cleaned(self, world: World) -> None:
        world.write(10, 11)
        world.enter(20, b"\x02")
        recorder = Recorder(world.store)
        sweep(recorder.store, world.clock, FINE)
        assert recorder.steps.index(("put", "sweep.quarantine")) < recorder.steps.index(
            ("delete_rows", str(QUEUE_CELLS))
        )

    def test_above_a_block_it_waits_with_the_rest(self, world: World) -> None:
        world.write(10, 150)
        world.enter(20, b"\x02")
        CommitTable(world.store).decide(20, 21)
        assert world.sweep(100).quarantined == 0
        assert world.sweep(FINE).quarantined == 1
        assert world.queue_is_empty()

    def test_once_the_cause_is_gone_a_retry_judges_it(self, world: World) -> None:
        restored = TableRef.parse("app.restored")
        world.write(10, 11)
        for start in (20, 30):
            world.enter(start, b"\x00" + sized(b"app.restored") + sized(A.row) + sized(A.column) + b"\x00")
            CommitTable(world.store).decide(start, start + 1)
        world.enter(40, b"\x02")
        world.sweep(FINE)
        assert len(self.reasons(world)) == 3
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(0, 3)
        world.store.create_table(restored, TableMetadata())
        for start in (15, 20, 30):
            world.store.put(start, {restored: {A: b"v"}})
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(2, 1)
        assert world.versions(A, restored) == [-1, 30]
        assert self.reasons(world) == ["bytes: no queued write starts with 02"]

    def test_a_retry_honours_protections(self, world: World) -> None:
        restored = TableRef.parse("app.restored")
        world.write(10, 11)
        world.enter(30, b"\x00" + sized(b"app.restored") + sized(A.row) + sized(A.column) + b"\x00")
        CommitTable(world.store).decide(30, 31)
        world.store.create_table(restored, TableMetadata())
        world.protect("a", 20, table=restored)
        world.store.drop_table(restored)
        world.sweep(100)
        world.store.create_table(restored, TableMetadata())
        for start in (15, 30):
            world.store.put(start, {restored: {A: b"v"}})
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(1, 0)
        assert world.versions(A, restored) == [15, 30]
        assert [entry.hold.record for entry in world.parked()] == ["a"]

    def test_with_nothing_set_aside_a_retry_does_nothing(self, world: World) -> None:
        before = world.state()
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(0, 0)
        assert world.state() == before

    def test_older_forms_are_swept_like_the_present_one(self, world: World) -> None:
        world.write(10, 11)
        world.enter(20, b"\x00" + sized(b"app.items") + sized(A.row) + sized(A.column) + b"\x00")
        world.enter(
            30,
            b'{"t":{"namespace":{"name":"app"},"tablename":"items"},"c":{"rowName":"cm93LWE=","columnName":"Y29s"},'
            b'"d":false}',
        )
        for start in (20, 30):
            world.store.put(start, {TABLE: {A: b"v"}})
            CommitTable(world.store).decide(start, start + 1)
        assert world.sweep(100).quarantined == 0
        assert world.versions() == [-1, 30]


class TestLateEntries:
    def test_an_entry_below_the_progress_is_found_and_cleaned(self, world: World) -> None:
        world.sweep(3 * FINE)
        world.write(FINE + 10, None)
        summary = world.sweep(3 * FINE)
        assert (summary.entries, summary.aborted_deletes) == (1, 1)
        assert outcome(world, FINE + 10) == ABORTED
        assert world.versions() == []
        assert world.queue_is_empty()

    def test_how_far_back_it_looks_is_bounded_by_the_grace_period(self, world: World) -> None:
        Puncher(world.store).record(Punch(1_000, 2 * FINE))
        world.sweep(4 * FINE)
        world.write(FINE + 10, None)
        world.write(3 * FINE + 10, None)
        assert world.sweep(4 * FINE, grace_s=60).entries == 1
        assert world.versions() == [FINE + 10]


class TestOrder:
    def test_publish_sentinels_tombstones_parking_cleaning_progress(self, world: World) -> None:
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

    def test_a_parked_entry_is_parked_anew_before_anything_is_deleted(self, world: World) -> None:
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
        """A dry run leaves them where they are, and must not take them for late entries afterwards."""
        for start in (10, 20, FINE + 10, 2 * FINE + 10):
            world.write(start, start + 1)
        world.write(FINE + 20, None)
        foretold = counts(world.sweep(3 * FINE, dry_run=True))
        assert foretold == counts(world.sweep(3 * FINE))
        assert (foretold["entries"], foretold["cleaned_partitions"]) == (5, 3)
