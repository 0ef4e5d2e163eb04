"""The blocks of an SSTable: its compression chunks, or pieces of a fixed size where it is not compressed.

A chunk is what a read fetches and unpacks at once, whatever little of it is wanted. Its length is in the header of
CompressionInfo.db, and with it the length of the whole data when unpacked; the positions in a dump are of that kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from struct import error as TooShort  # noqa: N812
from typing import BinaryIO

from sweep_tasks.compaction.sstables import COMPRESSION, SSTable
from sweep_tasks.errors import SSTableUnreadable

UNCOMPRESSED_BLOCK = 64 * 1024
_HEADER_AT_MOST = 64 * 1024
"""Behind it are the places of all chunks."""
_short, _int, _lengths = Struct(">H"), Struct(">i"), Struct(">iiq")


@dataclass(frozen=True, slots=True)
class Chunks:
    length: int
    data_length: int
    """Of all of them together; the last one is mostly shorter."""

    def __len__(self) -> int:
        return -(-self.data_length // self.length)

    def size(self, number: int) -> int:
        return min(self.length, self.data_length - number * self.length)

    def covered(self, position: int, size: int) -> Iterator[tuple[int, int]]:
        """The chunks that so many bytes lie in, each with how many of them; nothing lies behind the last."""
        last = len(self) - 1
        position = min(position, self.data_length)
        end = min(position + size, self.data_length)
        for number in range(min(position // self.length, last), min((max(end - 1, position)) // self.length, last) + 1):
            yield number, max(0, min(end, (number + 1) * self.length) - max(position, number * self.length))


def chunks_of(sstable: SSTable, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> Chunks:
    identity = sstable.identity()
    header = sstable.read(COMPRESSION, _HEADER_AT_MOST)
    if header is None:
        sstable.identity()
        return Chunks(uncompressed_block, identity.size)
    try:
        chunks = _read(BytesIO(header))
    except (TooShort, UnicodeDecodeError) as error:
        raise SSTableUnreadable(
            sstable.data, f"its {COMPRESSION} ends too early", reason="bad_compression_info"
        ) from error
    if chunks.length <= 0 or chunks.data_length <= 0:
        raise SSTableUnreadable(
            sstable.data, f"its {COMPRESSION} names impossible lengths", reason="bad_compression_info"
        )
    return chunks


def _read(header: BinaryIO) -> Chunks:
    _text(header)  # the compressor
    (options,) = _int.unpack(header.read(_int.size))
    for _ in range(2 * options):
        _text(header)
    length, _longest_compressed, data_length = _lengths.unpack(header.read(_lengths.size))
    return Chunks(length, data_length)


def _text(header: BinaryIO) -> str:
    (length,) = _short.unpack(header.read(_short.size))
    return header.read(length).decode()
