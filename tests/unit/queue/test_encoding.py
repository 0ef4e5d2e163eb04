"""The byte encoding of the queue: AtlasDB's, in both directions, and a typed error for anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.encoding import sized, var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.encoding import (
    COARSE,
    FINE,
    Metadata,
    QueuedWrite,
    cells_column,
    cells_row,
    coarse,
    dedicated_rows,
    fine,
    hash_prefix,
    metadata_bytes,
    progress_row,
    read_cells_column,
    read_cells_row,
    read_metadata,
    read_progress_row,
    read_timestamps_row,
    read_write,
    shared_row,
    timestamps_row,
    write_bytes,
)
from sweep_tasks.queue.progress import QUEUES

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
MAX_LONG = 2**63 - 1

JSON_FORM = (
    b'{"t":{"namespace":{"name":"ns"},"tablename":"first"},"c":{"rowName":"Cgs=","columnName":"wA=="},"d":false}'
)

longs = st.integers(0, MAX_LONG)
strategies = st.sampled_from(QUEUES)
metadatas = st.builds(Metadata, strategies, st.booleans(), st.integers(0, 255), st.integers(0, 63))
cells = st.builds(Cell, st.binary(max_size=200), st.binary(max_size=200))
READERS: list[Callable[[bytes], object]] = [
    read_metadata, read_cells_row, read_cells_column, read_timestamps_row, read_progress_row, read_write,
]  # fmt: skip


class TestTheBytesOfAtlasDB:
    def test_metadata_is_one_word(self) -> None:
        metadata = Metadata(CONSERVATIVE, True, 200, 31)
        assert metadata_bytes(metadata).hex() == "f21f0000"
        assert read_metadata(bytes.fromhex("f21f0000")) == metadata

    def test_a_row_of_cells(self) -> None:
        row = bytes.fromhex("bdf460ff3e17b53a0000000000")
        assert shared_row(0, THOROUGH, 0) == cells_row(0, Metadata(THOROUGH, False, 0, 0)) == row
        assert read_cells_row(row) == (0, Metadata(THOROUGH, False, 0, 0))

    def test_rows_of_transactions_that_wrote_to_unswept_tables_only_are_distinguished(self) -> None:
        assert read_metadata(bytes.fromhex("80008000")) == Metadata(NOTHING, False, 0, 0)
        assert read_timestamps_row(bytes.fromhex("c610abe56eff5cb5000002")) == (0, 0, NOTHING)
        components = bytes.fromhex("00" + "80008000")
        assert read_cells_row(hash_prefix(components) + components) == (0, Metadata(NOTHING, False, 0, 0))

    def test_unused_bits_of_the_metadata_are_ignored(self) -> None:
        assert read_metadata(bytes.fromhex("ffff00ff")) == Metadata(CONSERVATIVE, True, 255, 63)
        assert read_metadata(bytes.fromhex("00007fff")) == Metadata(THOROUGH, False, 0, 0)

    def test_a_column_of_cells(self) -> None:
        assert cells_column(0, -64).hex() == "0040"
        assert read_cells_column(bytes.fromhex("0040")) == (0, -64)

    def test_a_row_of_timestamps(self) -> None:
        row = bytes.fromhex("c610abe56eff5cb5000000")
        assert timestamps_row(0, 0, THOROUGH) == row
        assert read_timestamps_row(row) == (0, 0, THOROUGH)

    def test_a_row_of_progress(self) -> None:
        row = bytes.fromhex("039bad5f3c7aa7f57d00")
        assert progress_row(-3, THOROUGH) == row
        assert read_progress_row(row) == (-3, THOROUGH)

    def test_a_write(self) -> None:
        assert write_bytes(1, Cell(b"\x00", b"\xff"), False).hex() == "0101010001ff00"
        assert read_write(bytes.fromhex("0101010001ff00")) == QueuedWrite(1, Cell(b"\x00", b"\xff"), False)
        assert read_write(bytes.fromhex("0101010001ff01")) == QueuedWrite(1, Cell(b"\x00", b"\xff"), True)

    @pytest.mark.parametrize(
        ("strategy", "shard", "byte"), [(THOROUGH, 0, "00"), (CONSERVATIVE, 7, "01"), (CONSERVATIVE, 255, "01")]
    )
    def test_rows_end_in_the_strategy(self, strategy: SweepStrategy, shard: int, byte: str) -> None:
        assert timestamps_row(shard, 3, strategy).hex().endswith(byte)
        assert progress_row(shard, strategy).hex().endswith(byte)

    def test_partitions_are_of_fifty_thousand_and_ten_million(self) -> None:
        assert (FINE, COARSE) == (50_000, 10_000_000)
        assert [fine(ts) for ts in (0, 49_999, 50_000)] == [0, 0, 1]
        assert [coarse(ts) for ts in (0, 9_999_999, 10_000_000)] == [0, 0, 1]


class TestOlderForms:
    def test_a_write_that_names_its_table(self) -> None:
        value = b"\x00" + sized(b"ns.first") + sized(b"\x0a\x0b") + sized(b"\xc0") + b"\x01"
        assert read_write(value) == QueuedWrite("ns.first", Cell(b"\x0a\x0b", b"\xc0"), True)

    def test_a_write_in_json(self) -> None:
        assert read_write(JSON_FORM) == QueuedWrite("ns.first", Cell(b"\x0a\x0b", b"\xc0"), False)

    def test_a_table_without_a_namespace_in_json(self) -> None:
        value = JSON_FORM.replace(b'"name":"ns"', b'"name":""').replace(b'"d":false', b'"d":true')
        assert read_write(value) == QueuedWrite("first", Cell(b"\x0a\x0b", b"\xc0"), True)

    @given(st.text(min_size=1, max_size=60), cells, st.booleans())
    def test_any_name_is_read_back(self, name: str, cell: Cell, delete: bool) -> None:
        value = b"\x00" + sized(name.encode()) + sized(cell.row) + sized(cell.column) + var_long(delete)
        assert read_write(value) == QueuedWrite(name, cell, delete)


class TestRoundTrips:
    @given(longs, metadatas)
    def test_rows_of_cells(self, partition: int, metadata: Metadata) -> None:
        assert read_cells_row(cells_row(partition, metadata)) == (partition, metadata)

    @given(longs, st.integers(-(2**63), MAX_LONG))
    def test_columns_of_cells(self, modulus: int, index: int) -> None:
        assert read_cells_column(cells_column(modulus, index)) == (modulus, index)

    @given(st.integers(0, 255), longs, strategies)
    def test_rows_of_timestamps(self, shard: int, partition: int, strategy: SweepStrategy) -> None:
        assert read_timestamps_row(timestamps_row(shard, partition, strategy)) == (shard, partition, strategy)

    @given(st.integers(-(2**63), MAX_LONG), strategies)
    def test_rows_of_progress(self, shard: int, strategy: SweepStrategy) -> None:
        assert read_progress_row(progress_row(shard, strategy)) == (shard, strategy)

    @given(longs, cells, st.booleans())
    def test_writes(self, table: int, cell: Cell, delete: bool) -> None:
        assert read_write(write_bytes(table, cell, delete)) == QueuedWrite(table, cell, delete)

    @given(longs, metadatas, longs, metadatas)
    def test_two_rows_are_never_the_same(self, one: int, first: Metadata, other: int, second: Metadata) -> None:
        assert (cells_row(one, first) == cells_row(other, second)) == ((one, first) == (other, second))


class TestOrder:
    @given(*[st.tuples(st.integers(0, FINE - 1), st.integers(-64, 99_999))] * 2)
    def test_columns_sort_by_start_and_then_by_index(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        assert (cells_column(*one) < cells_column(*other)) == (one < other)

    @given(st.integers(0, FINE - 1), st.integers(1, 64), st.integers(0, 99_999))
    def test_a_reference_sorts_before_the_entries_of_its_start(self, modulus: int, rows: int, index: int) -> None:
        assert cells_column(modulus, -rows) < cells_column(modulus, index)

    def test_dedicated_rows_are_numbered_and_carry_the_whole_start(self) -> None:
        rows = dedicated_rows(1_234_567, CONSERVATIVE, 9, 3)
        assert [read_cells_row(row) for row in rows] == [
            (1_234_567, Metadata(CONSERVATIVE, True, 9, number)) for number in range(3)
        ]


class TestInvalidBytes:
    @given(st.binary(max_size=60))
    def test_any_bytes_are_decoded_or_refused(self, data: bytes) -> None:
        for read in READERS:
            read_or_refused(read, data)

    @given(longs, metadatas, cells, st.booleans(), st.data())
    def test_damaged_bytes_are_decoded_or_refused(
        self, number: int, metadata: Metadata, cell: Cell, delete: bool, data: st.DataObject
    ) -> None:
        whole = data.draw(
            st.sampled_from([cells_row(number, metadata), write_bytes(number, cell, delete), JSON_FORM]), label="whole"
        )
        at = data.draw(st.integers(0, len(whole) - 1), label="at")
        byte = data.draw(st.binary(max_size=2), label="in its place")
        for read in READERS:
            read_or_refused(read, whole[:at] + byte + whole[at + 1 :])
            read_or_refused(read, whole[:at])

    @given(longs, metadatas, st.integers(0, 7), st.integers(1, 255))
    def test_a_row_with_another_hash_is_refused(self, number: int, metadata: Metadata, at: int, flip: int) -> None:
        row = bytearray(cells_row(number, metadata))
        row[at] ^= flip
        with pytest.raises(BadValue) as refused:
            read_cells_row(bytes(row))
        assert (refused.value.field, refused.value.reason) == ("bytes", "wrong_hash")

    @given(st.integers(0, 7), st.integers(1, 255))
    def test_a_row_of_timestamps_or_progress_with_another_hash_is_refused(self, at: int, flip: int) -> None:
        for row, read in (
            (timestamps_row(3, 9, THOROUGH), read_timestamps_row),
            (progress_row(3, THOROUGH), read_progress_row),
        ):
            damaged = bytearray(row)
            damaged[at] ^= flip
            with pytest.raises(BadValue) as refused:
                read(bytes(damaged))
            assert refused.value.reason == "wrong_hash"

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"\x02\x01\x01\x00\x01\xff\x00",
            b"\x01\x01\x01\x00\x01\xff",
            b"\x01\x01\x01\x00\x01\xff\x02",
            b"\x01\x01\x01\x00\x01\xff\x00\x00",
            b"\x01\x01\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00",
            b"\x00\x02\xff\xff\x01\x00\x01\xff\x00",
            b"{",
            b"{}",
            b'{"t":[],"c":{},"d":false}',
            b'{"t":{"namespace":"ns","tablename":"first"},"c":{"rowName":"","columnName":""},"d":false}',
            JSON_FORM.replace(b"Cgs=", b"C*s="),
            JSON_FORM.replace(b"Cgs=", b"Cgs"),
            JSON_FORM.replace(b'"Cgs="', b"7"),
            JSON_FORM.replace(b'"Cgs="', '"ü"'.encode()),
            JSON_FORM.replace(b"false", b"0"),
            JSON_FORM.replace(b"false", b"null"),
            JSON_FORM[:-1],
            JSON_FORM.replace(b"first", b"\xff\xfe"),
        ],
    )
    def test_an_invalid_write_is_a_bad_value(self, value: bytes) -> None:
        with pytest.raises(BadValue):
            read_write(value)

    @pytest.mark.parametrize(
        ("shard", "row", "field"),
        [(256, 0, "shard"), (-1, 0, "shard"), (0, 64, "dedicated_row"), (0, -1, "dedicated_row")],
    )
    def test_metadata_out_of_range_is_a_bad_value(self, shard: int, row: int, field: str) -> None:
        with pytest.raises(BadValue) as refused:
            metadata_bytes(Metadata(CONSERVATIVE, True, shard, row))
        assert refused.value.field == field

    @pytest.mark.parametrize("data", ["", "f2", "f21f00", "f21f000000"])
    def test_metadata_of_another_length_is_a_bad_value(self, data: str) -> None:
        with pytest.raises(BadValue) as refused:
            read_metadata(bytes.fromhex(data))
        assert (refused.value.field, refused.value.reason) == ("bytes", "wrong_length")

    def test_a_table_that_is_not_swept_has_no_queue(self) -> None:
        encoders: list[Callable[[], bytes]] = [
            lambda: shared_row(0, NOTHING, 0),
            lambda: timestamps_row(0, 0, NOTHING),
            lambda: progress_row(0, NOTHING),
        ]
        for encode in encoders:
            with pytest.raises(BadValue) as refused:
                encode()
            assert refused.value.field == "strategy"

    def test_negative_numbers_have_no_place_in_a_row(self) -> None:
        encoders: list[Callable[[], bytes]] = [lambda: shared_row(-1, THOROUGH, 0), lambda: cells_column(-1, 0)]
        for encode in encoders:
            with pytest.raises(BadValue) as refused:
                encode()
            assert (refused.value.field, "-1" in str(refused.value)) == ("value", True)


def read_or_refused(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        read(data)
    except BadValue as error:
        assert str(error)  # noqa: PT017
