"""What protections and retentions hold back on real stores is parked, and judged again when they end."""

from __future__ import annotations

import pytest

from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.store.schema import PARKED
from sweep_tasks.sweep.order import Budget
from sweep_tasks.tables.catalog import Catalog
from tests.support.simulation import Process
from tests.unit.queue.recording import Recorder
from tests.unit.sweep.world import (
    CONSERVATIVE,
    TABLE,
    THOROUGH,
    THOROUGH_TABLE,
    A,
    World,
    parked_entries,
    sweep,
    sweeper,
)


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

    def test_a_delete_over_a_protected_version_stays_and_is_removed_with_it(self, world: World) -> None:
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
        first_check = calls.index("read_rows _protections")
        assert published < first_check < next(number for number, call in enumerate(calls) if "sweepableCells" in call)


class TestRetention:
    @pytest.fixture
    def kept_longer(self, world: World) -> World:
        ClockHistory(world.store).record(ClockSample(1_000_000, 50))
        world.clock.advance(100)
        ClockHistory(world.store).record(ClockSample(world.clock.now_ms(), 90))
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

    def test_a_retention_that_is_removed_releases_what_it_held(self, kept_longer: World) -> None:
        world = kept_longer
        world.write(60, 61)
        world.write(70, 71)
        world.sweep(100)
        Catalog(world.store).change(TABLE, CONSERVATIVE, None)
        world.sweep(100)
        assert (world.versions(), world.parked()) == ([-1, 70], [])

    def test_a_sweep_that_read_the_tables_before_the_retention_was_set_removes_nothing_above_its_threshold(
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


class TestReleasing:
    @pytest.fixture
    def held(self, world: World) -> World:
        """Twenty cells, each with a version below a protection."""
        cells = [Cell(b"row-%02d" % number, b"c") for number in range(20)]
        world.write(10, 11, cells)
        world.protect("backup", 50, Mode.AFTER)
        for number, cell in enumerate(cells):
            world.write(60 + 2 * number, 61 + 2 * number, [cell])
        world.sweep(200)
        assert len(world.parked()) == 20
        return world

    def test_a_release_is_processed_in_bounded_steps(self, held: World) -> None:
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
        assert puts == [], "nothing was parked again"

    def test_what_is_left_is_removed_when_it_moves_or_is_released(self, held: World) -> None:
        catalog = ProtectionCatalog(held.store)
        catalog.move("backup", 80)
        held.sweep(200)
        catalog.move("backup", 90)
        assert held.sweep(200).unparked == 5
        held.release("backup")
        assert held.sweep(200).unparked == 5
        assert held.parked() == []


class TestManyRecords:
    RECORDS = 60

    @pytest.fixture
    def held(self, world: World) -> World:
        """Each record holds three entries of cells of its own."""
        world.write(1, 2, [Cell(b"%02d-%d" % (number, n), b"c") for number in range(self.RECORDS) for n in range(3)])
        catalog = ProtectionCatalog(world.store)
        for number in range(self.RECORDS):
            rows = Span(b"%02d" % number, b"%02d" % number + b"\xff")
            catalog.begin(Record(f"r{number:02}", 50, Mode.AT, (Target(TABLE, rows),)))
        for number in range(self.RECORDS):
            world.write(60 + number, 61 + number, [Cell(b"%02d-%d" % (number, n), b"c") for n in range(3)])
        world.sweep(200)
        assert len(world.parked()) == 3 * self.RECORDS
        return world

    @staticmethod
    def calls(world: World, name: str, table: TableRef) -> tuple[list[StoreCall], int]:
        """Sweep, and return these calls for the table, and how many entries left the parking."""
        calls: list[StoreCall] = []
        unparked = sweep(FaultyStore(world.store, before=calls.append), world.clock, 200).unparked
        return [call for call in calls if call.name == name and call.arguments[0] == table], unparked

    def test_entries_under_many_records_are_read_in_few_pages(self, held: World) -> None:
        pages, unparked = self.calls(held, "scan", PARKED)
        assert (len(pages), unparked) == (2, 0), "a page, and the end"

    def test_the_entries_of_all_released_records_are_judged_together(self, held: World) -> None:
        for number in range(0, self.RECORDS, 2):
            held.release(f"r{number:02}")
        deletes, unparked = self.calls(held, "delete_ranges", TABLE)
        assert (len(deletes), unparked) == (1, 3 * self.RECORDS // 2)
        assert {entry.hold.record for entry in parked_entries(held)} == {
            f"r{number:02}" for number in range(1, self.RECORDS, 2)
        }

    def test_a_large_hold_that_is_not_due_is_passed_by_with_a_short_page(self, world: World) -> None:
        """Each of two records holds more entries than fit into a page."""
        cells = [Cell(b"%04d" % number, b"c") for number in range(1_100)]
        world.protect("a", 50, Mode.AFTER)
        world.protect("b", 100, Mode.AFTER)
        world.write(60, 61, cells)
        world.write(160, 161, cells)
        world.sweep(200)
        pages, unparked = self.calls(world, "scan", PARKED)
        assert ([call.arguments[4] for call in pages], unparked) == ([1_000, 50, 50], 0)
