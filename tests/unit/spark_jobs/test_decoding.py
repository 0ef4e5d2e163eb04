"""Entries that are decoded many at a time are what the definition of the encoding says, one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decoding import QueuePage, dedicated_page, shared_page
from sweep_tasks.encoding import sized, var_long, var_signed_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, Version
from sweep_tasks.queue.encoding import FINE, QueuedWrite, cells_column, read_write, write_bytes
from sweep_tasks.queue.reader import RawEntry, Reference, place

ROW = b"a row of the queue"
BASE, AFTER = 3 * FINE, 3 * FINE + 100

sizes = st.sampled_from([0, 1, 5, 127, 128, 300])
names = st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 255))
cells = st.builds(Cell, names, names)
table_ids = st.sampled_from([0, 1, 127, 128, 20_000])
good = st.builds(write_bytes, table_ids, cells, st.booleans())
named = st.builds(lambda cell: b"\x00" + sized(b"app.items") + sized(cell.row) + sized(cell.column) + b"\x01", cells)
values = st.one_of(
    good,
    named,
    st.binary(max_size=8),
    st.builds(
        lambda value, at, byte: value[:at] + bytes([byte]) + value[at + 1 :],
        good,
        st.integers(0, 9),
        st.integers(0, 255),
    ),
    st.builds(lambda value, size: value[:size], good, st.integers(0, 12)),
)
columns = st.one_of(
    st.builds(
        cells_column,
        st.sampled_from([0, 99, 100, 101, 127, 128, 16_383, 16_384, FINE - 1]),
        st.sampled_from([0, 1, 49, 63, 64, -1, -64]),
    ),
    st.builds(
        lambda modulus, index: var_long(modulus) + var_signed_long(index), st.just(FINE), st.sampled_from([0, -65])
    ),
    st.binary(max_size=5),
)
pages = st.lists(st.tuples(columns, values), max_size=12).map(
    lambda found: [(Cell(ROW, column), Version(1, value)) for column, value in found]
)


@given(pages)
def test_a_page_of_a_shared_row(items: list[tuple[Cell, Version]]) -> None:
    found = shared_page(items, BASE, AFTER)
    expected = [place(BASE, AFTER, cell, version.value) for cell, version in items]
    entries = [each for each in expected if isinstance(each, RawEntry)]
    assert found.references == [each for each in expected if isinstance(each, Reference)]
    assert found.entries == len(entries)
    assert found.starts == {each.start for each in entries if each.start is not None}
    everything = [*decoded(found), *(one(each) for each in found.raw)]
    assert Counter(everything) == Counter(one(each) for each in entries)


@given(pages)
def test_a_page_of_a_dedicated_row(items: list[tuple[Cell, Version]]) -> None:
    found = dedicated_page(items, 7)
    everything = [*decoded(found), *(one(each) for each in found.raw)]
    expected = [one(RawEntry(7, cell, version.value)) for cell, version in items]
    assert Counter(everything) == Counter(expected)


def test_nearly_all_entries_have_the_usual_form() -> None:
    writes = [write_bytes(3, Cell(b"row %d" % number, b"column"), bool(number % 2)) for number in range(300)]
    items = [
        (Cell(ROW, cells_column(number * 100, number % 50)), Version(1, each)) for number, each in enumerate(writes)
    ]
    found = shared_page(items, BASE, BASE - 1)
    assert (found.raw, found.references) == ([], [])
    assert decoded(found) == [
        (BASE + number * 100, QueuedWrite(3, Cell(b"row %d" % number, b"column"), bool(number % 2)))
        for number in range(300)
    ]


def test_entries_of_some_tables_are_left_to_be_decoded_one_by_one() -> None:
    writes = [write_bytes(table_id, Cell(b"row", b"%d" % table_id), False) for table_id in (1, 2, 3)]
    items = [(Cell(ROW, cells_column(5 + number, 0)), Version(1, each)) for number, each in enumerate(writes)]
    found = shared_page(items, BASE, BASE - 1)
    found.leave_to_scalar([2])
    assert [start - BASE for start, _ in decoded(found)] == [5, 7]
    assert found.raw == [RawEntry(BASE + 6, items[1][0], writes[1])]
    assert found.starts == {BASE + 5, BASE + 6, BASE + 7}


def decoded(page: QueuePage) -> list[tuple[int, QueuedWrite]]:
    rows, names = page.cells()
    return [
        (start, QueuedWrite(table_id, Cell(row, column), delete))
        for start, table_id, row, column, delete in zip(
            page.start.tolist(), page.table_id.tolist(), rows.to_pylist(), names.to_pylist(), page.delete.tolist(),
            strict=True,
        )
    ]  # fmt: skip


def one(raw: RawEntry) -> tuple[int | None, QueuedWrite | bytes]:
    """Decode an entry, or return its bytes if it can't be read."""
    try:
        return raw.start, read_write(raw.value)
    except BadValue:
        return raw.start, raw.value
