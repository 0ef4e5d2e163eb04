"""Scans of one table that are shared by several processes: part of the contract, on every store."""

from __future__ import annotations

import pickle

import pytest

from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.contract import EVERYWHERE, ScanRange, every
from tests.unit.store.test_contract import A, B, put


def cells_of(store: Store, table: TableRef, scan_range: ScanRange, limit: int = 3) -> list[Cell]:
    found = every(lambda after: store.scan(table, 100, limit=limit, after=after, scan_range=scan_range))
    return [cell for cell, _ in found]


@pytest.mark.parametrize("parts", [1, 2, 7, 40])
def test_each_cell_is_in_exactly_one_part_whatever_is_written_later(store: Store, table: TableRef, parts: int) -> None:
    cells = [Cell(b"row-%03d" % row, b"c%d" % column) for row in range(30) for column in range(2)]
    store.put(5, {table: dict.fromkeys(cells, b"v")})
    scan_ranges = store.scan_ranges(table, parts)
    assert 1 <= len(scan_ranges) <= parts
    later = [Cell(row, b"c") for row in (b"\0", b"a", b"row-0", b"row-003x", b"row-029\0", b"z", b"\xff" * 20)]
    store.put(6, {table: dict.fromkeys(later, b"v")})
    seen = [cells_of(store, table, scan_range) for scan_range in scan_ranges]
    whole = [cell for cell, _ in every(lambda after: store.scan(table, 100, after=after))]
    assert [cell for part in seen for cell in part] == whole
    assert sorted(whole) == sorted(cells + later)


def test_a_part_holds_about_its_share(store: Store, table: TableRef) -> None:
    store.put(5, {table: {Cell(b"row-%05d" % row, b"c"): b"v" for row in range(1_000)}})
    sizes = [len(cells_of(store, table, scan_range, limit=500)) for scan_range in store.scan_ranges(table, 4)]
    assert len(sizes) == 4
    assert max(sizes) < 2 * 250


def test_the_share_of_a_part_before_a_row_rises_during_a_scan(store: Store, table: TableRef) -> None:
    store.put(5, {table: {Cell(b"row-%05d" % row, b"c"): b"v" for row in range(1_000)}})
    _, second, third, *_ = store.scan_ranges(table, 5)
    for scan_range in (second, third):
        shares = [store.share_before(scan_range, cell.row) for cell in cells_of(store, table, scan_range, limit=500)]
        assert shares == sorted(shares)
        assert 0 <= shares[0] < 0.1 < 0.4 < shares[-1] <= 1, "about: digits are not all bytes that there are"
    whole = store.share_before(EVERYWHERE, b"row-00500")
    assert 0 < whole < 1


def test_versions_are_split_at_the_same_bounds_as_cells(store: Store, table: TableRef) -> None:
    cells = [Cell(b"row-%d" % row, b"c") for row in range(9)]
    for ts in (5, 6, 7):
        store.put(ts, {table: dict.fromkeys(cells, b"v")})
    for scan_range in store.scan_ranges(table, 3):
        found = list(
            every(lambda after, part=scan_range: store.scan_versions(table, limit=2, after=after, scan_range=part))  # type: ignore[misc]
        )
        assert [each.cell for each in found][::3] == cells_of(store, table, scan_range)
        assert [each.ts for each in found] == [7, 6, 5] * (len(found) // 3)


def test_a_part_within_a_range_of_rows_holds_their_intersection(store: Store, table: TableRef) -> None:
    cells = [Cell(b"row-%d" % row, b"c") for row in range(9)]
    store.put(5, {table: dict.fromkeys(cells, b"v")})
    for rows in (Span(b"row-2", b"row-7"), Span.only(b"row-4"), Span(b"x")):
        seen = [
            cell
            for scan_range in store.scan_ranges(table, 3)
            for cell, _ in store.scan(table, 100, rows, scan_range=scan_range).items
        ]
        assert sorted(seen) == [cell for cell in cells if cell.row in rows]


def test_an_empty_table_has_parts_that_cover_later_writes(store: Store, table: TableRef) -> None:
    scan_ranges = store.scan_ranges(table, 3)
    assert [cells_of(store, table, scan_range) for scan_range in scan_ranges] == [[] for _ in scan_ranges]
    put(store, table, (A, 5, b"v"), (B, 5, b"v"))
    assert sorted(cell for scan_range in scan_ranges for cell in cells_of(store, table, scan_range)) == [A, B]


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_may_begin_at_a_row(store: Store, table: TableRef, parts: int) -> None:
    rows = sorted((b"row-%02d" % number for number in range(20)), key=store.row_order)  # type: ignore[arg-type]
    store.put(5, {table: {Cell(row, b"c"): b"v" for row in rows}})
    found = [cell.row for part in store.scan_ranges(table, parts, rows[12]) for cell in cells_of(store, table, part)]
    assert found == rows[12:]


def test_writes_beyond_the_end_are_in_no_bounded_part(store: Store, table: TableRef) -> None:
    """Where the order has an end of its own, nothing can be written behind it."""
    assert cells_of(store, table, ScanRange(end=store.end_of(table))) == []
    put(store, table, (A, 5, b"v"), (B, 5, b"v"))
    end = store.end_of(table)
    later = Cell(max(A.row, B.row) + b"\0", b"c")
    store.put(6, {table: {later: b"v"}})
    found = cells_of(store, table, ScanRange(end=end))
    assert sorted(found) == sorted([A, B] if end else [A, B, later])


def test_a_row_is_never_split(store: Store, table: TableRef) -> None:
    store.put(5, {table: {Cell(b"wide", b"%03d" % column): b"v" for column in range(50)} | {A: b"v"}})
    holding = [cells_of(store, table, scan_range) for scan_range in store.scan_ranges(table, 8)]
    assert sorted(len(cells) for cells in holding if cells) in ([1, 50], [51])


def test_a_part_can_be_pickled_and_does_not_show_its_bytes(store: Store, table: TableRef) -> None:
    put(store, table, (A, 5, b"v"), (B, 5, b"v"))
    scan_ranges = store.scan_ranges(table, 2)
    assert pickle.loads(pickle.dumps(scan_ranges)) == scan_ranges  # noqa: S301 (our own)
    assert "row-" not in repr(scan_ranges)
