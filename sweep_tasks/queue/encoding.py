"""The bytes of the queue's tables, the same as AtlasDB's.

Row keys start with a hash of their first components, so that neighbouring timestamps do not land on one node; what
follows the hash keeps its order. A fine partition is 50 000 timestamps and one row of cells; a coarse partition is
10 000 000 and one row of the table that tells which fine partitions there are.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

import mmh3

from sweep_tasks.encoding import (
    read_sized,
    read_var_long,
    read_var_signed_long,
    sized,
    var_long,
    var_signed_long,
)
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, SweepStrategy

FINE = 50_000
COARSE = 10_000_000
MAX_SHARDS = 256
SHARED_WRITES = 50
"""Of one transaction and shard in the shared row; more go to dedicated rows."""
DEDICATED_WRITES = 100_000
MAX_DEDICATED_ROWS = 64

_STRATEGY_BYTE = {SweepStrategy.THOROUGH: b"\x00", SweepStrategy.CONSERVATIVE: b"\x01"}
_BYTE_STRATEGY = {byte[0]: strategy for strategy, byte in _STRATEGY_BYTE.items()}


class Metadata(NamedTuple):
    """What tells the rows of one partition apart."""

    strategy: SweepStrategy
    dedicated: bool
    shard: int
    dedicated_row: int


class Write(NamedTuple):
    """One queued write. A table is given by id, or by name in entries of older versions."""

    table: int | str
    cell: Cell
    delete: bool


def fine(ts: int) -> int:
    return ts // FINE


def coarse(ts: int) -> int:
    return ts // COARSE


def checked_shard(shard: int) -> int:
    if not 0 <= shard < MAX_SHARDS:
        raise BadValue("shard", f"{shard} is out of range; shards are 0 to {MAX_SHARDS - 1}", reason="out_of_range")
    return shard


def hash_prefix(components: bytes) -> bytes:
    return (mmh3.hash64(components, 0, x64arch=True, signed=False)[0] ^ (1 << 63)).to_bytes(8, "big")


# --- sweepableCells -----------------------------------------------------------------------------------------------


def metadata_bytes(metadata: Metadata) -> bytes:
    checked_shard(metadata.shard)
    if not 0 <= metadata.dedicated_row < MAX_DEDICATED_ROWS:
        raise BadValue(
            "dedicated_row", f"{metadata.dedicated_row} is out of range; they are 0 to {MAX_DEDICATED_ROWS - 1}"
        )
    word = (
        (_strategy_byte(metadata.strategy)[0] << 31)
        | (metadata.dedicated << 30)
        | (metadata.shard << 22)
        | (metadata.dedicated_row << 16)
    )
    return word.to_bytes(4, "big")


def read_metadata(data: bytes) -> Metadata:
    if len(data) != 4:
        raise BadValue("bytes", f"metadata has {len(data)} bytes instead of 4")
    word = int.from_bytes(data, "big")
    if word & 0xFFFF:
        raise BadValue("bytes", "the last sixteen bits of the metadata are in use, and no version knows them")
    return Metadata(_BYTE_STRATEGY[word >> 31], bool(word >> 30 & 1), word >> 22 & 0xFF, word >> 16 & 0x3F)


def cells_row(partition: int, metadata: Metadata) -> bytes:
    """`partition` is the fine partition, or the whole start timestamp in a dedicated row."""
    components = var_long(partition) + metadata_bytes(metadata)
    return hash_prefix(components) + components


def shared_row(partition: int, strategy: SweepStrategy, shard: int) -> bytes:
    return cells_row(partition, Metadata(strategy, False, shard, 0))


def dedicated_rows(start: int, strategy: SweepStrategy, shard: int, count: int) -> list[bytes]:
    return [cells_row(start, Metadata(strategy, True, shard, number)) for number in range(count)]


def read_cells_row(row: bytes) -> tuple[int, Metadata]:
    partition, at = read_var_long(row, 8)
    found = partition, read_metadata(row[at:])
    if cells_row(*found) != row:
        raise BadValue("bytes", "the row's hash or form is not that of a queue row")
    return found


def cells_column(modulus: int, write_index: int) -> bytes:
    return var_long(modulus) + var_signed_long(write_index)


def read_cells_column(column: bytes) -> tuple[int, int]:
    """Timestamp modulus and write index. Every entry of the queue comes by here: the usual lengths are read without
    a call."""
    size = len(column)
    if size == 2 and column[0] < 0x80 and 0x80 <= column[1] < 0xC0:
        return column[0], column[1] - 0x80
    if size == 3 and 0x80 <= column[0] < 0xC0 and 0x80 <= column[2] < 0xC0:
        return (column[0] - 0x80) << 8 | column[1], column[2] - 0x80
    if size == 4 and 0xC0 <= column[0] < 0xE0 and 0x80 <= column[3] < 0xC0:
        return (column[0] - 0xC0) << 16 | column[1] << 8 | column[2], column[3] - 0x80
    modulus, at = read_var_long(column)
    index, at = read_var_signed_long(column, at)
    _check_end(column, at)
    return modulus, index


# --- sweepableTimestamps, sweepProgressPerShard ---------------------------------------------------------------------


def timestamps_row(shard: int, coarse_partition: int, strategy: SweepStrategy) -> bytes:
    encoded = var_long(checked_shard(shard))
    return hash_prefix(encoded) + encoded + var_long(coarse_partition) + _strategy_byte(strategy)


def read_timestamps_row(row: bytes) -> tuple[int, int, SweepStrategy]:
    shard, at = read_var_long(row, 8)
    partition, at = read_var_long(row, at)
    return shard, partition, _read_strategy(row, at)


def progress_row(shard: int, strategy: SweepStrategy) -> bytes:
    encoded = var_signed_long(shard)
    return hash_prefix(encoded) + encoded + _strategy_byte(strategy)


def read_progress_row(row: bytes) -> tuple[int, SweepStrategy]:
    shard, at = read_var_signed_long(row, 8)
    return shard, _read_strategy(row, at)


# --- a write --------------------------------------------------------------------------------------------------------


def write_bytes(table_id: int, cell: Cell, delete: bool) -> bytes:
    return b"\x01" + var_long(table_id) + sized(cell.row) + sized(cell.column) + (b"\x01" if delete else b"\x00")


def read_write(value: bytes) -> Write:
    """A queued write in any of the three forms there have been. Small ids and short names are read without a call."""
    form = value[:1]
    if form == b"\x01":
        size = len(value)
        if size > 4 and value[1] < 0x80 and value[2] < 0x80:
            row_end = 3 + value[2]
            if row_end < size and value[row_end] < 0x80:
                end = row_end + 1 + value[row_end]
                if end == size - 1 and value[end] < 2:
                    return Write(value[1], Cell(value[3:row_end], value[row_end + 1 : end]), value[end] == 1)
        table, at = read_var_long(value, 1)
        return _read_rest(value, at, table)
    if form == b"\x00":
        name, at = read_sized(value, 1)
        return _read_rest(value, at, _text(name))
    if form == b"{":
        return _read_json(value)
    raise BadValue("bytes", f"no queued write starts with {form.hex() or 'nothing'}")


def _read_rest(value: bytes, at: int, table: int | str) -> Write:
    row, at = read_sized(value, at)
    column, at = read_sized(value, at)
    flag, at = read_var_long(value, at)
    if flag > 1:
        raise BadValue("bytes", f"a queued write says {flag} where 1 is a delete and 0 is none")
    _check_end(value, at)
    return Write(table, Cell(row, column), bool(flag))


def _read_json(value: bytes) -> Write:
    try:
        plain = json.loads(value)
        table, cell, delete = plain["t"], plain["c"], plain["d"]
        namespace, name = table["namespace"]["name"], table["tablename"]
        row, column = (base64.b64decode(cell[key], validate=True) for key in ("rowName", "columnName"))
        _text_bytes(namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise BadValue("bytes", f"a queued write in JSON lacks or garbles a field ({type(error).__name__})") from error
    if not isinstance(delete, bool):
        raise BadValue("bytes", "a queued write in JSON says neither true nor false for a delete")
    return Write(f"{namespace}.{name}" if namespace else str(name), Cell(row, column), delete)


def _strategy_byte(strategy: SweepStrategy) -> bytes:
    if strategy not in _STRATEGY_BYTE:
        raise BadValue("strategy", f"{strategy} has no queue; conservative and thorough have")
    return _STRATEGY_BYTE[strategy]


def _read_strategy(row: bytes, at: int) -> SweepStrategy:
    if len(row) != at + 1 or row[at] not in _BYTE_STRATEGY:
        raise BadValue("bytes", "the row does not end in a strategy byte, 00 or 01")
    return _BYTE_STRATEGY[row[at]]


def _text_bytes(*names: str) -> None:
    for name in names:
        name.encode()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadValue("bytes", "a table name in a queued write is not UTF-8") from error


def _check_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise BadValue("bytes", f"{len(data) - at} bytes are left over at the end")
