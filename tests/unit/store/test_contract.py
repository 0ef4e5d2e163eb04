"""The conformance suite of the store contract, on every store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import (
    Cell,
    ConflictHandling,
    Span,
    StoredVersion,
    SweepStrategy,
    TableMetadata,
    TableRef,
    TableState,
    Version,
    VersionRange,
)
from sweep_tasks.store import Change, Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.schema import LEASES, SYSTEM_TABLES
from tests.support.clock import ManualClock

A = Cell(b"row-a", b"one")
B = Cell(b"row-b", b"one")
C = Cell(b"row-b", b"two")
MISSING = Cell(b"row-z", b"one")


def put(store: Store, table: TableRef, *versions: tuple[Cell, int, bytes]) -> None:
    for cell, ts, value in versions:
        store.put(ts, {table: {cell: value}})


def stored(store: Store, table: TableRef) -> list[tuple[Cell, int]]:
    return [(cell, ts) for cell, ts, _ in store.scan_versions(table).items]


def drop(store: Store, table: TableRef, mark: int) -> TableMetadata:
    """Its row afterwards. What it held is still there."""
    active = store.tables([table])[table]
    gone = active.announced(TableState.DROPPING, "me").decided(mark)
    assert store.alter_table(table, active, gone)
    return gone


class TestCapabilities:
    def test_a_store_implements_the_capabilities_that_it_declares(self, store: Store) -> None:
        table = TableRef.parse("app.orders")
        store.create_table(table, TableMetadata())
        tombstones, vacuum = store.capabilities.tombstones, store.capabilities.vacuum
        if tombstones:
            assert tombstones.physical_tables()[table].table == table
        if vacuum:
            assert vacuum.size() == store.size()
            assert vacuum.how_to_vacuum() in ("vacuum", "incremental_vacuum")

    def test_a_wrapped_store_has_the_capabilities_of_the_inner_one(self, store: Store) -> None:
        assert FaultyStore(store).capabilities == store.capabilities


class TestTables:
    def test_a_table_is_read_back_with_its_metadata(self, store: Store) -> None:
        table = TableRef.parse("app.orders")
        metadata = TableMetadata(
            SweepStrategy.THOROUGH, ConflictHandling.NONE, 7200, True, frozenset({SweepStrategy.CONSERVATIVE})
        )
        assert store.create_table(table, metadata)
        assert store.tables([table]) == {table: metadata}

    def test_the_system_tables_are_there_from_the_start(self, store: Store) -> None:
        assert store.tables() == SYSTEM_TABLES

    def test_creating_a_table_again_changes_nothing(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        assert not store.create_table(table, TableMetadata(SweepStrategy.THOROUGH))
        assert store.tables([table])[table].strategy is SweepStrategy.CONSERVATIVE
        assert stored(store, table) == [(A, 5)]

    def test_names_that_differ_in_case_are_different_tables(self, store: Store, table: TableRef) -> None:
        shouting = TableRef.parse("app.ITEMS")
        store.create_table(shouting, TableMetadata())
        put(store, shouting, (A, 5, b"v"))
        assert stored(store, table) == []

    def test_metadata_changes_only_from_what_was_expected(self, store: Store, table: TableRef) -> None:
        before = store.tables([table])[table]
        after = before.with_strategy(SweepStrategy.THOROUGH)
        assert store.alter_table(table, before, after)
        assert not store.alter_table(table, before, before)
        assert store.tables([table]) == {table: after}

    def test_a_dropped_table_keeps_its_row_and_nothing_else(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        incarnation = store.tables([table])[table].incarnation
        gone = drop(store, table, 7)
        assert store.tables([table]) == {}
        assert store.tables() == SYSTEM_TABLES
        assert store.catalog_rows([table]) == {table: gone}
        assert (gone.mark, gone.owner, gone.incarnation) == (7, None, incarnation)
        with pytest.raises(UnknownTable):
            store.scan_versions(table)
        assert store.remove_table(table, incarnation)
        assert not store.remove_table(table, incarnation)

    def test_a_dropped_table_stays_dropped(self, store: Store, table: TableRef) -> None:
        gone = drop(store, table, 7)
        with pytest.raises(UnknownTable):
            store.alter_table(table, gone, gone.rolled_back())
        assert not store.create_table(table, TableMetadata()), "it takes the place of none, and one is there"
        assert store.catalog_rows([table]) == {table: gone}

    def test_a_table_created_again_is_empty(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        gone = drop(store, table, 7)
        new = TableMetadata(SweepStrategy.THOROUGH, mark=8, incarnation=gone.incarnation + 1)
        assert store.create_table(table, new, gone)
        assert not store.create_table(table, new, gone)
        assert store.tables([table]) == {table: new}
        assert stored(store, table) == []

    def test_a_late_removal_does_not_affect_the_new_table_of_the_name(self, store: Store, table: TableRef) -> None:
        gone = drop(store, table, 7)
        store.create_table(table, TableMetadata(mark=8, incarnation=gone.incarnation + 1), gone)
        put(store, table, (A, 9, b"v"))
        store.remove_table(table, gone.incarnation)
        assert stored(store, table) == [(A, 9)]

    def test_an_existing_table_cannot_be_removed_or_replaced(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        existing = store.tables([table])[table]
        assert not store.remove_table(table, existing.incarnation)
        assert not store.create_table(table, TableMetadata(incarnation=existing.incarnation + 1), existing)
        assert stored(store, table) == [(A, 5)]

    def test_an_announcement_changes_no_data(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        active = store.tables([table])[table]
        announced = active.announced(TableState.TRUNCATING, "me")
        assert store.alter_table(table, active, announced)
        assert store.tables([table]) == {table: announced}
        assert stored(store, table) == [(A, 5)]
        assert not store.alter_table(table, active.announced(TableState.TRUNCATING, "other"), active)
        assert store.alter_table(table, announced, announced.rolled_back())
        assert store.tables([table]) == {table: active}

    def test_a_truncated_table_is_empty_and_still_there(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (B, 6, b"v"))
        store.add_sentinels(table, [A])
        store.truncate(table, 7)
        assert stored(store, table) == []
        assert table in store.tables()

    def test_truncating_leaves_what_was_written_at_or_above_the_timestamp(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (A, 7, b"v"), (B, 6, b"v"), (C, 8, b"v"))
        store.truncate(table, 7)
        assert sorted(stored(store, table)) == [(A, 7), (C, 8)]

    def test_every_call_on_an_unknown_table_names_it(self, store: Store) -> None:
        nowhere = TableRef.parse("app.nowhere")
        calls: list[Callable[[], object]] = [
            lambda: store.get(nowhere, {A: 5}),
            lambda: store.newest(nowhere, {A: 5}),
            lambda: store.timestamps(nowhere, [A]),
            lambda: store.scan(nowhere, 5),
            lambda: store.scan_versions(nowhere),
            lambda: store.scan_ranges(nowhere, 2),
            lambda: store.put(5, {nowhere: {A: b"v"}}),
            lambda: store.add_sentinels(nowhere, [A]),
            lambda: store.delete_versions(nowhere, [(A, 5)]),
            lambda: store.delete_ranges(nowhere, [VersionRange(A, 0, 5)]),
            lambda: store.delete_everywhere(nowhere, [VersionRange(A, 0, 5)]),
            lambda: store.delete_rows(nowhere, [b"r"]),
            lambda: store.truncate(nowhere, 5),
            lambda: store.alter_table(nowhere, TableMetadata(), TableMetadata()),
            lambda: store.read(nowhere, [A]),
            lambda: store.put_if_absent(nowhere, {A: b"v"}),
            lambda: store.compare_and_set(nowhere, b"r", {b"c": Change(None, b"v")}),
            lambda: store.update(nowhere, A, lambda _: b"v"),
        ]
        for call in calls:
            with pytest.raises(UnknownTable) as unknown:
                call()
            assert unknown.value.table == nowhere

    def test_a_put_to_a_known_and_an_unknown_table_changes_neither(self, store: Store, table: TableRef) -> None:
        with pytest.raises(UnknownTable):
            store.put(5, {table: {A: b"v"}, TableRef.parse("app.nowhere"): {A: b"v"}})
        assert stored(store, table) == []


class TestReadingCells:
    def test_get_finds_the_newest_version_below_each_cells_own_timestamp(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"a5"), (A, 9, b"a9"), (B, 7, b"b7"))
        assert store.get(table, {A: 9, B: 8, MISSING: 99}) == {A: Version(5, b"a5"), B: Version(7, b"b7")}
        assert store.get(table, {A: 10, B: 7}) == {A: Version(9, b"a9")}

    def test_get_shows_delete_markers_and_sentinels_as_empty_values(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b""))
        store.add_sentinels(table, [B])
        assert store.get(table, {A: 6, B: 6}) == {A: Version(5, b""), B: Version(-1, b"")}

    def test_newest_is_get_without_the_values(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"a5"), (A, 9, b"a9"), (B, 7, b""))
        assert store.newest(table, {A: 9, B: 8, MISSING: 99}) == {A: 5, B: 7}

    def test_timestamps_are_all_of_them_newest_first(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (A, 11, b"v"), (A, 7, b""), (B, 3, b"v"))
        store.add_sentinels(table, [A])
        assert store.timestamps(table, [A, MISSING]) == {A: [11, 7, 5, -1]}

    def test_many_cells_are_found_in_one_call(self, store: Store, table: TableRef) -> None:
        cells = {Cell(b"%05d" % n, b"c"): b"v%d" % n for n in range(2_500)}
        store.put(7, {table: cells})
        assert store.get(table, dict.fromkeys(cells, 8)) == {cell: Version(7, value) for cell, value in cells.items()}
        assert store.newest(table, dict.fromkeys(cells, 8)) == dict.fromkeys(cells, 7)
        assert store.timestamps(table, list(cells)) == {cell: [7] for cell in cells}

    def test_large_values_are_read_back_completely(self, store: Store, table: TableRef) -> None:
        value = bytes(range(256)) * 4096
        put(store, table, (A, 5, value))
        assert store.get(table, {A: 6}) == {A: Version(5, value)}


class TestScanning:
    def test_a_scan_shows_each_cell_with_its_newest_version_below_the_timestamp(
        self, store: Store, table: TableRef
    ) -> None:
        put(store, table, (A, 5, b"a5"), (A, 9, b"a9"), (B, 7, b"b7"), (C, 12, b"c12"))
        page = store.scan(table, 10)
        assert dict(page.items) == {A: Version(9, b"a9"), B: Version(7, b"b7")}
        assert page.resume is None

    def test_rows_are_in_store_order_and_columns_in_byte_order(self, store: Store, table: TableRef) -> None:
        cells = [Cell(bytes([row]), bytes([column])) for row in (3, 200, 7) for column in (9, 130, 1)]
        store.put(5, {table: dict.fromkeys(cells, b"v")})
        seen = [cell for cell, _ in store.scan(table, 6).items]
        assert set(seen) == set(cells)
        assert seen == sorted(cells, key=lambda cell: (store.row_order(cell.row), cell.column))

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_of_any_size_add_up_to_the_whole(self, store: Store, table: TableRef, limit: int) -> None:
        cells = [Cell(b"r%d" % row, b"c%d" % column) for row in range(3) for column in range(4)]
        store.put(5, {table: dict.fromkeys(cells, b"old")})
        store.put(6, {table: dict.fromkeys(cells[::2], b"new")})
        seen: list[tuple[Cell, Version]] = []
        after = None
        while True:
            page = store.scan(table, 10, limit=limit, after=after)
            assert len(page.items) <= limit
            seen += page.items
            after = page.resume
            if after is None:
                break
        assert [cell for cell, _ in seen] == sorted(cells, key=lambda cell: (store.row_order(cell.row), cell.column))
        assert all(version.ts == (6 if cell in cells[::2] else 5) for cell, version in seen)

    def test_a_row_range_holds_its_start_and_not_its_end(self, store: Store, table: TableRef) -> None:
        store.put(5, {table: {Cell(row, b"c"): b"v" for row in (b"a", b"b", b"ba", b"c", b"d")}})
        assert {cell.row for cell, _ in store.scan(table, 6, Span(b"b", b"c")).items} == {b"b", b"ba"}
        assert {cell.row for cell, _ in store.scan(table, 6, Span(b"c")).items} == {b"c", b"d"}
        assert {cell.row for cell, _ in store.scan(table, 6, Span.only(b"b")).items} == {b"b"}

    def test_columns_are_chosen_by_name_or_by_range(self, store: Store, table: TableRef) -> None:
        store.put(5, {table: {Cell(b"r", column): b"v" for column in (b"a", b"b", b"c", b"d")}})
        by_name = store.scan(table, 6, columns=[b"a", b"d", b"x"])
        by_range = store.scan(table, 6, Span.only(b"r"), columns=Span(b"b", b"d"))
        assert [cell.column for cell, _ in by_name.items] == [b"a", b"d"]
        assert [cell.column for cell, _ in by_range.items] == [b"b", b"c"]
        assert store.scan(table, 6, columns=[]).items == []

    def test_a_wide_row_is_paged_within_its_columns(self, store: Store, table: TableRef) -> None:
        store.put(5, {table: {Cell(b"r", b"%03d" % n): b"v" for n in range(100)}})
        page = store.scan(table, 6, Span.only(b"r"), Span(b"010", b"090"), limit=50)
        rest = store.scan(table, 6, Span.only(b"r"), Span(b"010", b"090"), limit=50, after=page.resume)
        assert [cell.column for cell, _ in page.items + rest.items] == [b"%03d" % n for n in range(10, 90)]
        assert rest.resume is None

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_a_version_scan_shows_everything_stored_newest_first_in_a_cell(
        self, store: Store, table: TableRef, limit: int
    ) -> None:
        put(store, table, (A, 5, b"v"), (A, 9, b""), (B, 7, b"v"), (C, 1, b"v"))
        store.add_sentinels(table, [A])
        seen: list[StoredVersion] = []
        after = None
        while True:
            page = store.scan_versions(table, limit=limit, after=after)
            seen += page.items
            after = page.resume
            if after is None:
                break
        assert {version for version in seen if version.cell == A} == {(A, 9, True), (A, 5, False), (A, -1, True)}
        assert len(seen) == 5
        assert all(a.ts > b.ts for a, b in pairwise(seen) if a.cell == b.cell)


class TestWritingCells:
    def test_one_put_reaches_several_tables(self, store: Store, table: TableRef) -> None:
        other = TableRef.parse("app.other")
        store.create_table(other, TableMetadata())
        store.put(5, {table: {A: b"a"}, other: {B: b"b"}})
        assert stored(store, table) == [(A, 5)]
        assert stored(store, other) == [(B, 5)]

    def test_putting_the_same_version_again_is_the_same_as_once(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (A, 5, b"v"))
        assert stored(store, table) == [(A, 5)]

    def test_exact_deletes_leave_the_neighbours(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (A, 6, b"v"), (A, 7, b"v"), (B, 6, b"v"))
        store.delete_versions(table, [(A, 6), (A, 99), (MISSING, 6)])
        assert sorted(stored(store, table)) == [(A, 5), (A, 7), (B, 6)]

    def test_a_range_delete_takes_its_start_and_leaves_its_end(self, store: Store, table: TableRef) -> None:
        put(store, table, *[(cell, ts, b"v") for cell in (A, B) for ts in (0, 4, 5, 6)])
        store.add_sentinels(table, [A, B])
        store.delete_ranges(table, [VersionRange(A, 0, 5), VersionRange(B, -1, 6), VersionRange(MISSING, 0, 9)])
        assert sorted(stored(store, table)) == [(A, -1), (A, 5), (A, 6), (B, 6)]

    def test_a_cell_may_have_several_ranges(self, store: Store, table: TableRef) -> None:
        put(store, table, *[(A, ts, b"v") for ts in range(1, 8)])
        store.delete_ranges(table, [VersionRange(A, 0, 3), VersionRange(A, 5, 7)])
        assert store.timestamps(table, [A]) == {A: [7, 4, 3]}

    def test_a_delete_on_all_replicas_acts_as_a_range_delete_and_leaves_nothing_to_confirm(
        self, store: Store, table: TableRef
    ) -> None:
        put(store, table, *[(cell, ts, b"v") for cell in (A, B) for ts in (0, 4, 5, 6)])
        store.add_sentinels(table, [A, B])
        ranges = [VersionRange(A, 0, 5), VersionRange(B, -1, 6), VersionRange(B, 6, 7), VersionRange(MISSING, 0, 9)]
        assert store.delete_everywhere(table, ranges) == []
        assert sorted(stored(store, table)) == [(A, -1), (A, 5), (A, 6)]
        assert store.delete_everywhere(table, ranges) == [], "doing it twice is doing it once"

    def test_nothing_to_remove_everywhere_is_nothing_to_confirm(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"))
        assert store.delete_everywhere(table, []) == []
        assert stored(store, table) == [(A, 5)]

    def test_sentinels_sort_below_every_version(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 0, b"v"))
        store.add_sentinels(table, [A, B])
        store.add_sentinels(table, [A])
        assert store.timestamps(table, [A, B]) == {A: [0, -1], B: [-1]}

    def test_whole_rows_are_removed_with_all_columns_and_versions(self, store: Store, table: TableRef) -> None:
        put(store, table, (A, 5, b"v"), (B, 5, b"v"), (B, 6, b"v"), (C, 5, b"v"))
        store.delete_rows(table, [b"row-b", b"row-z"])
        assert stored(store, table) == [(A, 5)]

    def test_bulk_calls_take_more_cells_than_fit_one_transaction(self, store: Store, table: TableRef) -> None:
        cells = [Cell(b"%06d" % n, b"c") for n in range(25_000)]
        store.put(5, {table: dict.fromkeys(cells, b"v")})
        store.delete_ranges(table, [VersionRange(cell, 0, 6) for cell in cells[1:]])
        assert stored(store, table) == [(cells[0], 5)]


class TestRegisters:
    def test_the_first_put_wins_and_later_ones_get_its_value(self, store: Store) -> None:
        assert store.put_if_absent(LEASES, {A: b"first"}) == {A: b"first"}
        assert store.put_if_absent(LEASES, {A: b"second", B: b"b"}) == {A: b"first", B: b"b"}
        assert store.read(LEASES, [A, B, C]) == {A: b"first", B: b"b"}

    def test_compare_and_set_needs_what_it_expects(self, store: Store) -> None:
        column = A.column
        assert not store.compare_and_set(LEASES, A.row, {column: Change(b"x", b"y")})
        assert store.compare_and_set(LEASES, A.row, {column: Change(None, b"x")})
        assert not store.compare_and_set(LEASES, A.row, {column: Change(None, b"z")})
        assert store.compare_and_set(LEASES, A.row, {column: Change(b"x", b"y")})
        assert store.read(LEASES, [A]) == {A: b"y"}
        assert store.compare_and_set(LEASES, A.row, {column: Change(b"y", None)})
        assert store.read(LEASES, [A]) == {}

    def test_columns_of_one_row_change_together_or_not_at_all(self, store: Store) -> None:
        row = b"row"
        assert store.compare_and_set(LEASES, row, {b"a": Change(None, b"1"), b"b": Change(None, b"1")})
        assert not store.compare_and_set(LEASES, row, {b"a": Change(b"1", b"2"), b"b": Change(b"0", b"2")})
        assert store.read_rows(LEASES, [row]) == {Cell(row, b"a"): b"1", Cell(row, b"b"): b"1"}
        assert store.compare_and_set(LEASES, row, {b"a": Change(b"1", None), b"c": Change(None, b"3")})
        assert store.read_rows(LEASES, [row]) == {Cell(row, b"b"): b"1", Cell(row, b"c"): b"3"}

    def test_rows_are_read_whole_and_in_column_order(self, store: Store) -> None:
        cells = {Cell(row, column): row + column for row in (b"1", b"2", b"3") for column in (b"b", b"a")}
        store.put_if_absent(LEASES, cells)
        assert store.read_rows(LEASES, []) == {}
        assert list(store.read_rows(LEASES, [b"3", b"1"])) == [
            Cell(b"3", b"a"), Cell(b"3", b"b"), Cell(b"1", b"a"), Cell(b"1", b"b"),
        ]  # fmt: skip

    @pytest.mark.parametrize("limit", [1, 2, 100])
    def test_all_registers_are_scanned_page_by_page(self, store: Store, limit: int) -> None:
        cells = {Cell(b"r%d" % row, b"c%d" % column): b"v" for row in range(3) for column in range(2)}
        store.put_if_absent(LEASES, cells)
        seen: list[tuple[Cell, bytes]] = []
        after = None
        while True:
            page = store.scan_registers(LEASES, limit, after)
            assert len(page.items) <= limit
            seen += page.items
            after = page.resume
            if after is None:
                break
        assert dict(seen) == cells
        assert len(seen) == len(cells)

    def test_an_update_is_a_function_of_the_stored_value(self, store: Store) -> None:
        assert store.update(LEASES, A, lambda old: (old or b"") + b"x") == b"x"
        assert store.update(LEASES, A, lambda old: (old or b"") + b"x") == b"xx"
        assert store.update(LEASES, A, lambda old: old or b"") == b"xx"
        assert store.read(LEASES, [A]) == {A: b"xx"}

    def test_an_update_that_raises_changes_nothing(self, store: Store) -> None:
        store.put_if_absent(LEASES, {A: b"x"})

        def refuse(_: bytes | None) -> bytes:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            store.update(LEASES, A, refuse)
        assert store.read(LEASES, [A]) == {A: b"x"}
        assert store.update(LEASES, A, lambda _: b"y") == b"y"

    def test_removed_registers_are_absent(self, store: Store) -> None:
        store.put_if_absent(LEASES, {A: b"x", B: b"y"})
        store.remove(LEASES, [A, MISSING])
        assert store.read(LEASES, [A, B]) == {B: b"y"}

    def test_the_store_expires_registers_itself(self, store: Store, clock: ManualClock) -> None:
        store.put_if_absent(LEASES, {A: b"x"}, ttl_ms=1_000)
        clock.advance(0.999)
        assert store.read(LEASES, [A]) == {A: b"x"}
        clock.advance(1)
        assert store.read(LEASES, [A]) == {}
        assert store.read_rows(LEASES, [A.row]) == {}

    def test_an_expired_register_counts_as_absent_for_every_change(self, store: Store, clock: ManualClock) -> None:
        store.put_if_absent(LEASES, {A: b"x", B: b"x", C: b"x"}, ttl_ms=1_000)
        clock.advance(1)
        assert not store.compare_and_set(LEASES, A.row, {A.column: Change(b"x", b"y")})
        assert store.compare_and_set(LEASES, A.row, {A.column: Change(None, b"new")})
        assert store.put_if_absent(LEASES, {B: b"new"}) == {B: b"new"}
        assert store.update(LEASES, C, lambda old: b"had " + (old or b"nothing")) == b"had nothing"

    def test_a_change_with_a_time_to_live_restarts_it(self, store: Store, clock: ManualClock) -> None:
        store.put_if_absent(LEASES, {A: b"x"}, ttl_ms=1_000)
        clock.advance(0.9)
        assert store.compare_and_set(LEASES, A.row, {A.column: Change(b"x", b"x")}, ttl_ms=1_000)
        clock.advance(0.9)
        assert store.read(LEASES, [A]) == {A: b"x"}
