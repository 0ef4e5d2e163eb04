"""How many bytes an entry takes in an SSTable, where the dump does not tell.

The dump has the position of each row but none of the bounds of deleted ranges, and a sweep writes little else: a file
may hold a hundred thousand of them without a row in between. Their size follows from the format: times are stored as
distances from the least of the file, which is in its Statistics.db, in as few bytes as they need.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from struct import Struct
from struct import error as TooShort  # noqa: N812
from typing import Any

from sweep_tasks.compaction.sstables import STATISTICS, SSTable
from sweep_tasks.errors import SSTableUnreadable

_EPOCH_S = int(datetime(2015, 9, 22, tzinfo=UTC).timestamp())
"""The least times of a file are stored as distances from this day."""
_HEADER = 3
_STATISTICS_AT_MOST = 64 * 1024 * 1024
"""They are some kilobytes; what is beyond this is not of the kind."""
_int, _entry = Struct(">i"), Struct(">ii")
_CHECKSUM = 4
_ALL = 2**64
_FIXED = 8
"""Of a clustering value that is a number: those of this store's tables are bigint."""


@dataclass(frozen=True, slots=True)
class Encoding:
    min_timestamp: int
    min_deletion_s: int

    def marker(self, entry: dict[str, Any], previous: int) -> int:
        """The bound of a deleted range, or the end of one that is the start of the next; `previous`: bytes of the entry
        before it, or of the partition's head."""
        bounds = [entry[side] for side in ("start", "end") if side in entry]
        body = vint(previous) + sum(self._deletion(bound["deletion_info"]) for bound in bounds)
        flags, kind, values, header = 1, 1, 2, 1
        return flags + kind + values + header + _clustering(bounds[0]) + vint(body) + body

    def row(self, entry: dict[str, Any]) -> int:
        """About: what it needs at least, and its values."""
        least = 6
        values = sum(_value(cell["value"]) for cell in entry.get("cells", ()) if "value" in cell)
        return least + _clustering(entry) + values

    def _deletion(self, info: dict[str, Any]) -> int:
        timestamp = vint((int(info["marked_deleted"]) - self.min_timestamp) % _ALL)
        return timestamp + vint((int(info["local_delete_time"]) - self.min_deletion_s) % _ALL)


def head(version: str, key_bytes: int, is_deleted: bool) -> int:
    """Of a partition: its key, and when it was deleted; since Cassandra 5.0 one that was not says so in a byte."""
    brief = not is_deleted and (version >= "oa" or version.startswith("d"))
    return 2 + key_bytes + (1 if brief else 12)


def encoding_of(sstable: SSTable) -> Encoding:
    data = sstable.read(STATISTICS, _STATISTICS_AT_MOST)
    if data is None:
        sstable.identity()
        raise SSTableUnreadable(sstable.data, f"its {STATISTICS} is missing", reason="no_statistics")
    try:
        return _read(data)
    except (TooShort, IndexError, KeyError) as error:
        raise SSTableUnreadable(
            sstable.data, f"its {STATISTICS} is not as expected", reason="bad_statistics"
        ) from error


def _read(data: bytes) -> Encoding:
    (parts,) = _int.unpack_from(data)
    start = _int.size + _CHECKSUM
    contents = dict(_entry.unpack_from(data, start + number * _entry.size) for number in range(parts))
    timestamp, at = read_vint(data, contents[_HEADER])
    deletion, _ = read_vint(data, at)
    return Encoding(_signed(timestamp) + _EPOCH_S * 1_000_000, _signed(deletion) + _EPOCH_S)


def vint(number: int) -> int:
    """How many bytes a number takes that is stored in as few as it needs."""
    return min(9, max(1, -(-number.bit_length() // 7)))


def read_vint(data: bytes, at: int) -> tuple[int, int]:
    """Such a number, and where it ends: as many ones lead its first byte as bytes follow."""
    first = data[at]
    extra = 8 - (first ^ 0xFF).bit_length()
    value = first & (0xFF >> extra)
    return int.from_bytes(bytes([value]) + data[at + 1 : at + 1 + extra]), at + 1 + extra


def _signed(number: int) -> int:
    return number - _ALL if number >= _ALL // 2 else number


def _clustering(holder: dict[str, Any]) -> int:
    return sum(_value(each) for each in holder.get("clustering", ()) if each != "*")


def _value(value: object) -> int:
    """Blobs are printed as 0x and hexadecimal digits; an empty one is a bit of the header."""
    if not isinstance(value, str):
        return _FIXED
    length = (len(value) - 2) // 2 if value.startswith("0x") else len(value.encode())
    return vint(length) + length if length else 0
