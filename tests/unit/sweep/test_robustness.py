"""What once stopped a shard, or could have stopped it."""

from __future__ import annotations

import pytest

from sweep_tasks.encoding import sized, var_long
from sweep_tasks.model import MAX_TS, Cell, TableMetadata, TableRef
from sweep_tasks.queue import writer as writer_module
from sweep_tasks.queue.encoding import (
    COARSE,
    FINE,
    cells_column,
    coarse,
    fine,
    hash_prefix,
    read_cells_row,
    read_timestamps_row,
    timestamps_row,
)
from sweep_tasks.store.faults import FaultyStore, on
from sweep_tasks.store.schema import ID_TO_NAME, NAME_TO_ID, QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.order import Budget
from sweep_tasks.tables.catalog import Catalog
from tests.unit.sweep.test_budget import ROW, runs_until_done
from tests.unit.sweep.world import CONSERVATIVE, NOTHING, TABLE, THOROUGH, THOROUGH_TABLE, A, World, sweep

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
def test_json_that_no_version_wrote_is_quarantined(world: World, value: bytes) -> None:
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
def test_a_thorough_table_dropped_while_its_delete_markers_are_removed_stops_nothing(world: World, nth: int) -> None:
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


ATLASDB_NAMES = ["ns.a__b", "ns.x-y", "n-s.a", "ns__a.b", "_.a", "plain", "a__b"]


@pytest.mark.parametrize("name", ATLASDB_NAMES)
@pytest.mark.parametrize("form", ["id", "name", "json"])
def test_a_table_is_swept_whatever_atlasdb_allows_it_to_be_called(world: World, name: str, form: str) -> None:
    table = TableRef.stored(name)
    world.store.create_table(table, TableMetadata())
    world.write(5, 6, table=table)
    world.write(10, 11, table=table)
    if form != "id":
        row, column = (sized(part) for part in A)
        named = b"\x00" + sized(name.encode()) + row + column + b"\x00"
        json = NAMED.replace(b'"app"', b'"%s"' % table.namespace.encode()) % table.name.encode()
        world.enter(10, named if form == "name" else json)
    summary = world.sweep(100)
    assert (summary.quarantined, summary.progress) == (0, 99)
    assert world.versions(table=table) == [-1, 10]


@pytest.mark.parametrize("name", ["_transactions", "sweep.parked", "", "a.b.c", "a b.c", "a.", "x" * 200])
def test_an_entry_of_what_is_no_user_table_is_quarantined(world: World, name: str) -> None:
    world.write(10, 11)
    row, column = (sized(part) for part in A)
    world.enter(12, b"\x00" + sized(name.encode()) + row + column + b"\x00")
    summary = world.sweep(100)
    assert (summary.quarantined, summary.progress) == (1, 99)


def test_the_queue_that_atlasdb_keeps_of_unswept_tables_is_left_alone(world: World) -> None:
    """A queue of transactions that wrote to no other table. Far apart, marks are found by reading all rows."""
    far = 1_500 * COARSE + 10
    for start in (5, 10, far, far + 5):
        world.write(start, start + 1)
        mark = Cell(timestamps_row(0, coarse(start), CONSERVATIVE)[:-1] + b"\x02", var_long(fine(start)))
        components = var_long(fine(start)) + bytes.fromhex("80008000")
        entry = Cell(hash_prefix(components) + components, cells_column(start % FINE, 0))
        world.store.put(start, {QUEUE_TIMESTAMPS: {mark: b""}, QUEUE_CELLS: {entry: b""}})
    summary = world.sweep(far + FINE)
    assert (summary.entries, summary.quarantined, summary.progress) == (4, 0, far + FINE - 1)
    assert world.versions() == [-1, far + 5]
    left = {read_timestamps_row(cell.row)[2] for cell, _ in world.store.scan(QUEUE_TIMESTAMPS, MAX_TS).items}
    assert left == {NOTHING}
    cells = [read_cells_row(cell.row)[1].strategy for cell, _ in world.store.scan(QUEUE_CELLS, MAX_TS).items]
    assert cells == [NOTHING] * 4


def test_an_undecided_entry_below_the_progress_of_the_current_partition_is_found(world: World) -> None:
    world.write(10, 11)
    world.sweep(100)
    world.write(50, None, [A])
    summary = world.sweep(200)
    assert (summary.entries, summary.aborted_deletes, summary.parked) == (1, 1, 1)
    assert world.versions() == [-1, 10]
