"""Pausing a table or everything: nothing is removed, nothing is lost, and other tables do not wait."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import AlreadyExists, NotFound, SweepflowError, UnknownTable
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.queue.parking import HoldReason
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.sweep.run import retry_quarantined
from sweep_tasks.tables.pauses import EVERYTHING, Pauses
from tests.support.errors import having
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, A, B, World, sweep

OTHER = TableRef.parse("app.other")
FINE = 50_000
WHY = "looking into something"


def pause(world: World, table: TableRef | None = TABLE) -> None:
    Pauses(world.store, world.clock).pause(table, "ada", WHY)


def resume(world: World, table: TableRef | None = TABLE) -> None:
    Pauses(world.store, world.clock).resume(table)


def waiting(world: World) -> list[tuple[HoldReason, int]]:
    return [(entry.hold.why, entry.start) for entry in world.parked()]


class TestEverything:
    def test_a_sweep_does_nothing_and_says_so(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1)
        pause(world, None)
        before = world.state()
        summary = world.sweep(100)
        assert world.state() == before
        assert (summary.stopped, summary.progress, summary.entries) == ("paused", -1, 0)
        assert Thresholds(world.store).of_strategy(CONSERVATIVE) == 0, "no threshold was published for readers"

    def test_resumed_the_next_sweep_does_what_was_left(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1)
        pause(world, None)
        world.sweep(100)
        resume(world, None)
        assert world.sweep(100).stopped is None
        assert (world.versions(), world.progress()) == ([-1, 20], 99)

    def test_a_dry_run_still_reads(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1)
        pause(world, None)
        summary = world.sweep(100, dry_run=True)
        assert (summary.entries, summary.range_deletes, summary.stopped) == (2, 1, None)
        assert world.versions() == [10, 20]

    def test_a_running_sweep_ends_before_its_next_batch(self, world: World) -> None:
        for start in (10, 20, 30):
            world.write(start, start + 1)

        def pause_after_the_first(call: StoreCall) -> None:
            if call.name == "delete_ranges" and not Pauses(world.store).current().everything:
                pause(world, None)

        summary = sweep(FaultyStore(world.store, before=pause_after_the_first), world.clock, 100, batch=2)
        assert (summary.stopped, summary.entries, summary.progress) == ("paused", 2, 20)
        assert world.versions() == [-1, 20, 30]

    def test_no_quarantined_entry_is_judged_again(self, world: World) -> None:
        pause(world, None)
        with pytest.raises(SweepflowError, check=having(code="paused")) as refused:
            retry_quarantined(world.store, Settings(), world.clock)
        assert (refused.value.details["what"], refused.value.details["by"], refused.value.details["why"]) == (
            EVERYTHING,
            "ada",
            WHY,
        )


class TestOneTable:
    def test_its_versions_stay_and_its_entries_wait_while_others_are_swept(self, world: World) -> None:
        world.store.create_table(OTHER, TableMetadata(CONSERVATIVE))
        for start in (10, 20):
            world.write(start, start + 1)
            world.write(start + 100, start + 101, table=OTHER)
        pause(world)
        summary = world.sweep(2 * FINE)
        assert (world.versions(), world.versions(table=OTHER)) == ([10, 20], [-1, 120])
        assert (waiting(world), summary.parked) == ([(HoldReason.PAUSED, 20)], 1)
        assert (world.progress(), world.queue_is_empty()) == (2 * FINE - 1, True)

    def test_resumed_it_is_swept_as_if_nothing_had_been(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1)
        pause(world)
        world.sweep(100)
        resume(world)
        summary = world.sweep(100)
        assert (world.versions(), waiting(world), summary.unparked) == ([-1, 20], [], 1)

    def test_what_waits_is_not_judged_while_it_is_paused(self, world: World) -> None:
        world.write(10, 11)
        world.write(20, 21)
        pause(world)
        world.sweep(100)
        assert world.sweep(200).unparked == 0
        assert (world.versions(), waiting(world)) == ([10, 20], [(HoldReason.PAUSED, 20)])

    def test_an_aborted_write_is_deleted_after_the_resume_and_once_more_after_the_grace_period(
        self, world: World
    ) -> None:
        world.write(10, -1)
        pause(world)
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([10], [(HoldReason.PAUSED, 10)])
        resume(world)
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([], [(HoldReason.GRACE, 10)])
        world.store.put(10, {TABLE: {A: b"late"}})
        world.clock.advance(4_000)
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([], [])

    def test_what_waits_for_something_else_continues_to_wait_for_it(self, world: World) -> None:
        world.write(10, 11)
        world.protect("kept", 15)
        world.write(20, 21)
        world.sweep(100)
        assert waiting(world) == [(HoldReason.PROTECTED, 20)]
        pause(world)
        world.release("kept")
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([-1, 10, 20], [(HoldReason.PROTECTED, 20)])
        resume(world)
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([-1, 20], [])

    def test_a_protection_created_before_the_pause_holds_after_it(self, world: World) -> None:
        world.write(10, 11)
        world.protect("kept", 15)
        world.write(20, 21)
        pause(world)
        world.sweep(100)
        resume(world)
        world.sweep(100)
        assert (world.versions(), waiting(world)) == ([-1, 10, 20], [(HoldReason.PROTECTED, 20)])

    def test_what_was_rolled_back_in_a_completed_partition_is_not_forgotten(self, world: World) -> None:
        world.write(10, 11, [B])
        world.sweep(100)
        world.write(50, -1)  # below the progress, decided by another process
        pause(world)
        world.sweep(2 * FINE)
        assert (world.versions(), world.queue_is_empty()) == ([50], True)
        resume(world)
        world.sweep(2 * FINE)
        assert world.versions() == []

    def test_one_paused_while_it_is_swept_is_left_alone_from_the_next_batch_on(self, world: World) -> None:
        for start in (10, 20, 30):
            world.write(start, start + 1, [A if start < 30 else B])
        world.write(40, 41, [B])

        def pause_after_the_first(call: StoreCall) -> None:
            if call.name == "delete_ranges" and not Pauses(world.store).current().tables:
                pause(world)

        summary = sweep(FaultyStore(world.store, before=pause_after_the_first), world.clock, 100, batch=2)
        assert (summary.stopped, summary.progress, waiting(world)) == (None, 99, [(HoldReason.PAUSED, 40)])
        assert (world.versions(A), world.versions(B)) == ([-1, 20], [30, 40])

    def test_a_delete_marker_of_a_thorough_table_waits_too(self, world: World) -> None:
        world.write(10, 11, table=THOROUGH_TABLE)
        world.write(20, 21, table=THOROUGH_TABLE, delete=True)
        pause(world, THOROUGH_TABLE)
        world.sweep(100, THOROUGH)
        assert world.versions(table=THOROUGH_TABLE) == [10, 20]
        resume(world, THOROUGH_TABLE)
        world.sweep(100, THOROUGH)
        assert world.versions(table=THOROUGH_TABLE) == []


class TestPauseCommands:
    def test_a_second_pause_is_refused_and_says_whose_the_first_is(self, world: World) -> None:
        pause(world)
        with pytest.raises(AlreadyExists) as refused:
            Pauses(world.store).pause(TABLE, "bob", "so am I")
        assert (refused.value.details["what"], refused.value.details["by"]) == (str(TABLE), "ada")
        assert Pauses(world.store).current().tables[TABLE].by == "ada"

    def test_only_a_table_that_exists_can_be_paused(self, world: World) -> None:
        with pytest.raises(UnknownTable):
            pause(world, OTHER)

    def test_only_what_is_paused_can_be_resumed(self, world: World) -> None:
        pause(world)
        with pytest.raises(NotFound) as refused:
            resume(world, None)
        assert EVERYTHING in str(refused.value)

    def test_a_pause_of_one_table_or_of_everything_can_be_read(self, world: World) -> None:
        pauses = Pauses(world.store)
        pauses.check(TABLE)
        pause(world)
        pauses.check(THOROUGH_TABLE)
        with pytest.raises(SweepflowError, check=having(code="paused")) as refused:
            pauses.check(TABLE)
        assert (refused.value.details["what"], refused.value.details["by"]) == (str(TABLE), "ada")
