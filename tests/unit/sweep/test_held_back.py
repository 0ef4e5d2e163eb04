"""What a record holds back is what a sweep would remove if the record were released."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.diagnosis import held_back as held_module
from sweep_tasks.diagnosis.held_back import HeldBack, HeldByRecord
from sweep_tasks.model import Cell, Span, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.parking import ParkedPage, Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.tables.catalog import Catalog
from tests.unit.sweep.world import CONSERVATIVE, NOTHING, TABLE, THOROUGH, THOROUGH_TABLE, A, B, C, World

OF_A = len(A.row) + len(A.column) + len(b"v")
"""The bytes of one version, as the world writes them."""


def held(world: World, name: str, most: int = 10_000) -> HeldByRecord:
    records = ProtectionCatalog(world.store).records()
    wanted = [record for record in records if record.id == name]
    return HeldBack(world.store, most, world.clock).per_record(wanted, records)[name]


def stored(store: Store, table: TableRef) -> set[tuple[Cell, int]]:
    return {(cell, ts) for cell, found in store.timestamps(table, [A, B, C]).items() for ts in found}


def test_a_record_above_which_nothing_was_written_blocks_nothing(world: World) -> None:
    world.write(10, 11)
    world.protect("snap", 20)
    world.sweep(60)
    assert held(world, "snap") == HeldByRecord()
    assert not held(world, "snap").blocking


def test_what_was_not_swept_yet_is_not_held(world: World) -> None:
    world.write(10, 11)
    world.protect("snap", 20)
    world.write(30, 31)
    assert not held(world, "snap").blocking


@pytest.mark.parametrize("strategy", [CONSERVATIVE, THOROUGH])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("delete", [False, True])
def test_the_figures_are_what_is_removed_after_the_release(
    world: World, strategy: SweepStrategy, mode: Mode, delete: bool
) -> None:
    table = TABLE if strategy is CONSERVATIVE else THOROUGH_TABLE
    world.write(10, 11, [A, B], table=table)
    world.write(24, 35, [B], table=table)
    world.protect("snap", 30, mode, table)
    world.write(40, 41, [A, B, C], table=table)
    world.write(50, 51, [A, B], table=table, delete=delete)
    world.sweep(60, strategy)
    before = stored(world.store, table)
    found = held(world, "snap")
    assert (found.entries, found.blocking, found.at_least) == (len(world.parked(strategy)), True, False)
    world.release("snap")
    world.sweep(60, strategy)
    gone = before - stored(world.store, table)
    assert found.versions == len(gone) > 0
    deletes = sum(1 for _, ts in gone if delete and ts == 50)
    assert found.bytes == found.versions * OF_A - deletes, "of a delete only the name counts"


def test_a_version_that_two_records_hold_is_held_by_neither_alone(world: World) -> None:
    world.write(10, 11)
    world.protect("low", 20)
    world.protect("high", 40)
    world.write(50, 51)
    world.sweep(60)
    assert held(world, "high") == HeldByRecord(entries=1)
    assert held(world, "low") == HeldByRecord()
    world.release("high")
    assert held(world, "low") == HeldByRecord(), "its entry is not parked under it before the next sweep"
    world.sweep(60)
    assert held(world, "low") == HeldByRecord(1, 1, OF_A)


def test_each_of_two_records_holds_its_own(world: World) -> None:
    world.write(10, 11)
    world.protect("low", 20)
    world.write(30, 31)
    world.protect("high", 40)
    world.write(50, 51)
    world.sweep(60)
    records = ProtectionCatalog(world.store).records()
    both = HeldBack(world.store, clock=world.clock).per_record(records, records)
    assert both == {"low": HeldByRecord(1, 1, OF_A), "high": HeldByRecord(1, 1, OF_A)}
    assert HeldBack(world.store).per_record([], records) == {}


def test_a_record_that_moved_holds_what_lies_above_it_and_no_more(world: World) -> None:
    """Entries stay where they were parked until a sweep judges them again."""
    world.protect("tail", 5, Mode.AFTER)
    for start in (10, 30, 50):
        world.write(start, start + 1)
        world.sweep(start + 5)
    assert held(world, "tail") == HeldByRecord(3, 2, 2 * OF_A)
    ProtectionCatalog(world.store).move("tail", 40)
    assert held(world, "tail") == HeldByRecord(1, 1, OF_A), "30 is what a reader at 40 sees, 10 is free"
    world.sweep(60)
    assert world.versions() == [-1, 30, 50]
    assert held(world, "tail") == HeldByRecord(1, 1, OF_A)


def test_only_rows_that_it_covers_are_held(world: World) -> None:
    world.write(10, 11, [A, B])
    rows = Target(TABLE, Span(A.row, B.row))
    ProtectionCatalog(world.store).protect(Record("a", 20, Mode.AT, (rows,)))
    world.write(30, 31, [A, B])
    world.sweep(60)
    assert held(world, "a") == HeldByRecord(1, 1, OF_A)


def test_it_is_counted_over_all_shards_and_strategies(world: World) -> None:
    Progress(world.store).raise_shards(3)
    cells = [Cell(b"row-%d" % number, b"col") for number in range(8)]  # as long as A
    for table in (TABLE, THOROUGH_TABLE):
        world.write(10 + (table is TABLE), 13, cells, table=table)
    everything = Target(TableRef("app", "*"))
    ProtectionCatalog(world.store).protect(Record("all", 20, Mode.AT, (everything,)))
    for table in (TABLE, THOROUGH_TABLE):
        world.write(30 + (table is TABLE), 33, cells, table=table)
    for strategy in (CONSERVATIVE, THOROUGH):
        for shard in range(3):
            ShardSweep(world.store, strategy, shard, Horizon(60, world.clock.now_ms()), world.clock).run()
    assert held(world, "all") == HeldByRecord(16, 16, 16 * OF_A)


def test_a_cell_of_a_table_that_is_swept_no_more_or_not_yet_would_stay_anyway(world: World) -> None:
    world.write(10, 11)
    world.protect("snap", 20)
    world.write(30, 31)
    world.sweep(60)
    Catalog(world.store).change(TABLE, CONSERVATIVE, 3_600)
    assert held(world, "snap") == HeldByRecord(entries=1)
    Catalog(world.store).change(TABLE, NOTHING, None)
    assert held(world, "snap") == HeldByRecord(entries=1)


def test_a_table_dropped_by_force_holds_nothing_any_more(world: World) -> None:
    world.write(10, 11)
    world.protect("snap", 20)
    world.write(30, 31)
    world.sweep(60)
    Catalog(world.store).drop(TABLE, force=True)
    assert held(world, "snap") == HeldByRecord(entries=1)


class TestBounds:
    @pytest.fixture
    def crowd(self, world: World) -> World:
        """Twelve cells under one record, and one under another, whose name comes later."""
        cells = [Cell(b"row-%02d" % number, b"c") for number in range(12)]
        world.write(10, 11, [*cells, A], table=TABLE)
        catalog = ProtectionCatalog(world.store)
        catalog.protect(Record("many", 20, Mode.AT, (Target(TABLE, Span(b"row-0", b"row-a")),)))
        catalog.protect(Record("none", 20, Mode.AT, (Target(TABLE, Span(b"z")),)))
        catalog.protect(Record("one_more", 20, Mode.AT, (Target(TABLE, Span(b"row-a")),)))
        world.write(30, 31, [*cells, A], table=TABLE)
        world.sweep(60)
        return world

    def test_the_number_of_checked_entries_is_limited_and_the_figure_says_so(self, crowd: World) -> None:
        all_of_it = held(crowd, "many")
        assert (all_of_it.entries, all_of_it.versions, all_of_it.at_least) == (12, 12, False)
        assert held(crowd, "many", most=12) == all_of_it
        some = held(crowd, "many", most=5)
        assert (some.entries, some.versions, some.bytes, some.at_least) == (5, 5, all_of_it.bytes // 12 * 5, True)

    def test_the_bound_is_each_record_s_own(self, crowd: World) -> None:
        records = ProtectionCatalog(crowd.store).records()
        found = HeldBack(crowd.store, 5, crowd.clock).per_record(records, records)
        assert {name: (each.entries, each.at_least) for name, each in found.items()} == {
            "many": (5, True),
            "none": (0, False),
            "one_more": (1, False),
        }

    def test_a_cell_with_many_versions_is_not_read_to_the_end(self, world: World) -> None:
        world.protect("tail", 5, Mode.AFTER)
        for start in range(10, 30, 2):
            world.write(start, start + 1)
        world.sweep(60)
        assert held(world, "tail", most=4) == HeldByRecord(1, 4, 4 * OF_A, at_least=True)
        assert held(world, "tail") == HeldByRecord(1, 9, 9 * OF_A)

    def test_what_waits_for_something_else_is_passed_over(self, crowd: World, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[int] = []
        page: Callable[..., ParkedPage] = Parking.page

        def noted(*arguments: object) -> ParkedPage:
            found = page(*arguments)
            read.append(len(found.entries))
            return found

        monkeypatch.setattr(Parking, "page", noted)
        assert held(crowd, "one_more").entries == 1
        assert sum(read) == 1
        read.clear()
        monkeypatch.setattr(held_module, "_PAGE", 2)
        records = ProtectionCatalog(crowd.store).records()
        wanted = [record for record in records if record.id != "many"]
        assert HeldBack(crowd.store, clock=crowd.clock).per_record(wanted, records)["one_more"].entries == 1
        assert sum(read) == 3, "two of the twelve, to see whose they are"


def test_with_a_limit_the_figure_says_that_there_may_be_more(world: World) -> None:
    world.write(10, 11)
    world.protect("snap", 20)
    world.write(30, 31)
    world.sweep(60)
    records = ProtectionCatalog(world.store).records()
    assert HeldBack(world.store, 10, world.clock, longest_s=-1).per_record(records, records)["snap"] == HeldByRecord(
        at_least=True
    )
