"""The blocks of an SSTable."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from sweep_tasks.errors import SSTableGone, SSTableUnreadable
from sweep_tasks.sstables.files import Chunks, SSTable, chunks_of


@pytest.fixture
def sstable(tmp_path: Path) -> SSTable:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "oa-1-big-Data.db").write_bytes(bytes(150_000))
    return SSTable.at(folder / "oa-1-big-Data.db")


def text(value: str) -> bytes:
    return pack(">H", len(value)) + value.encode()


def compression(length: int, data_length: int, **options: str) -> bytes:
    named = b"".join(text(name) + text(value) for name, value in options.items())
    return text("LZ4Compressor") + pack(">i", len(options)) + named + pack(">iiqi", length, 2**31 - 1, data_length, 0)


def test_a_compressed_table_has_the_chunks_it_was_written_with(sstable: SSTable) -> None:
    header = compression(16_384, 40_000, lz4_compressor_type="fast", lz4_high_compressor_level="9")
    sstable.component("CompressionInfo.db").write_bytes(header)
    chunks = chunks_of(sstable)
    assert chunks == Chunks(16_384, 40_000)
    assert [chunks.size(number) for number in range(len(chunks))] == [16_384, 16_384, 7_232]


def test_a_table_without_compression_has_blocks_of_a_fixed_size(sstable: SSTable) -> None:
    assert chunks_of(sstable) == Chunks(65_536, 150_000)
    assert chunks_of(sstable, 4_096) == Chunks(4_096, 150_000)


@pytest.mark.parametrize("header", [b"", compression(16_384, 40_000)[:20], compression(0, 40_000), compression(9, -1)])
def test_a_damaged_header_is_refused(sstable: SSTable, header: bytes) -> None:
    sstable.component("CompressionInfo.db").write_bytes(header)
    with pytest.raises(SSTableUnreadable) as refused:
        chunks_of(sstable)
    assert (refused.value.file, refused.value.reason) == (sstable.data, "bad_compression_info")


def test_a_missing_file_has_no_chunks(sstable: SSTable) -> None:
    sstable.data.unlink()
    with pytest.raises(SSTableGone):
        chunks_of(sstable)


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [
        (0, 10, [(0, 10)]),
        (90, 10, [(0, 10)]),
        (90, 11, [(0, 10), (1, 1)]),
        (100, 5, [(1, 5)]),
        (50, 180, [(0, 50), (1, 100), (2, 30)]),
        (120, 0, [(1, 0)]),
        (245, 100, [(2, 5)]),
        (999, 5, [(2, 0)]),
    ],
)
def test_bytes_belong_to_the_chunks_they_lie_in(position: int, size: int, expected: list[tuple[int, int]]) -> None:
    assert list(Chunks(100, 250).covered(position, size)) == expected
