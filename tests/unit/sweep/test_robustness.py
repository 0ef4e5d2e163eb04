"""What once stopped a shard, or could have."""

from __future__ import annotations

import pytest

from sweep_tasks.catalog import Catalog
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.queue import writer as writer_module
from sweep_tasks.queue.encoding import timestamps_row
from sweep_tasks.store.faults import FaultyStore, on
from sweep_tasks.store.system import ID_TO_NAME, NAME_TO_ID, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.budget import Budget
from tests.unit.sweep.test_budget import ROW, runs_until_done
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, A, World, sweep

NAMED = b'{"t":{"namespace":{"name":"app"},"tablename":"%s"},"c":{"rowName":"cm93LWE=","columnName":"Y29s"},"d":false}'


@pytest.mark.parametrize("entries", [1, 3, 10])
def test_a_budget_smaller_than_a_dedicated_row_gets_through(
    world: World, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
    world.write(5, 6, ROW)
    world.write(10, 11, ROW)
    runs = runs_until_done(world, 50_000, Budget(entries=entries))
    assert runs[-1].progress == 49_999
    assert all(world.versions(cell) == [-1, 10] for cell in ROW)
    assert world.queue_is_empty()


def test_a_large_transaction_over_several_batches_is_not_stopped_by_the_cap_for_ever(world: World) -> None:
    world.write(10, 11, ROW)
    world.write(20, 21, ROW[:1])
    runs = [world.sweep(100, batch=10, budget=Budget(tombstones_per_partition=30)) for _ in range(2)]
    assert [run.progress for run in runs] == [19, 99]


@pytest.mark.parametrize(
    "value", [NAMED % rb"\ud800", b'{"a":' * 100_000, b'{"t":{"namespace":{"name":5},"tablename":{}}}']
)
def test_json_that_no_version_wrote_is_set_aside(world: World, value: bytes) -> None:
    world.write(10, 11)
    world.enter(12, value)
    summary = world.sweep(100)
    assert (summary.quarantined, summary.progress) == (1, 99)


@pytest.mark.parametrize("column", [b"\x80", b"\x00\x01", b""])
def test_a_mark_that_cannot_be_read_does_not_stop_the_shard(world: World, column: bytes) -> None:
    world.write(5, 6)
    world.write(10, 11)
    world.store.put(1, {QUEUE_TIMESTAMPS: {Cell(timestamps_row(0, 0, CONSERVATIVE), column): b""}})
    summary = world.sweep(100)
    assert (summary.entries, summary.progress) == (2, 99)
    assert world.versions() == [-1, 10]


@pytest.mark.parametrize("call", ["add_sentinels", "delete_ranges"])
def test_a_table_dropped_while_it_is_swept_stops_nothing(world: World, call: str) -> None:
    world.write(5, 6)
    world.write(10, 11)
    faulty = FaultyStore(world.store, before=on(call, 1, lambda _: Catalog(world.store).drop(TABLE)))
    assert sweep(faulty, world.clock, 100).progress == 99


@pytest.mark.parametrize("nth", [1, 2])
def test_a_thorough_table_dropped_while_its_delete_markers_go_stops_nothing(world: World, nth: int) -> None:
    world.write(5, 6, table=THOROUGH_TABLE)
    world.write(10, 11, table=THOROUGH_TABLE, delete=True)
    dropped = on("delete_everywhere", nth, lambda _: Catalog(world.store).drop(THOROUGH_TABLE))
    summary = sweep(FaultyStore(world.store, before=dropped), world.clock, 100, THOROUGH)
    assert (summary.progress, summary.parked) == (99, 0)


def test_a_dry_run_gives_out_no_table_ids(world: World) -> None:
    world.store.create_table(TableRef.parse("app.old"), world.store.tables([TABLE])[TABLE])
    world.write(10, 11)
    world.enter(12, NAMED % b"old")
    before = [world.store.scan_registers(table).items for table in (NAME_TO_ID, ID_TO_NAME)]
    world.sweep(100, dry_run=True)
    assert [world.store.scan_registers(table).items for table in (NAME_TO_ID, ID_TO_NAME)] == before


def test_an_undecided_entry_below_the_progress_of_the_partition_under_way_is_found(world: World) -> None:
    world.write(10, 11)
    world.sweep(100)
    world.write(50, None, [A])
    summary = world.sweep(200)
    assert (summary.entries, summary.aborted_deletes, summary.parked) == (1, 1, 1)
    assert world.versions() == [-1, 10]
