"""The byte encoding of the queue's tables, identical to AtlasDB's, and the same encoding as JSON documents.

Row keys start with a hash of their first components, so that neighbouring timestamps are spread over the nodes. The
rest of the key sorts by its components. A fine partition covers 50 000 timestamps and is one row of cells. A coarse
partition covers 10 000 000 timestamps and is one row of the table that lists the fine partitions in use.

AtlasDB has a third queue for transactions that wrote only to tables with the strategy *nothing*. It uses that queue to
find transactions that never ended. Rows of it can be decoded here, but are never swept, written or cleaned.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

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
"""The most writes of one transaction and shard that are stored in the shared row; more are stored in dedicated rows."""
DEDICATED_WRITES = 100_000
MAX_DEDICATED_ROWS = 64

_STRATEGY_BYTE = {SweepStrategy.THOROUGH: b"\x00", SweepStrategy.CONSERVATIVE: b"\x01"}
_BYTE_STRATEGY = {byte[0]: strategy for strategy, byte in _STRATEGY_BYTE.items()} | {2: SweepStrategy.NOTHING}
_NOTHING_BIT = 1 << 15
"""A bit of the metadata, beside the bit for conservative. AtlasDB reads none of the other low bits."""


class Metadata(NamedTuple):
    """The part of a row key that distinguishes the rows of one partition."""

    strategy: SweepStrategy
    dedicated: bool
    shard: int
    dedicated_row: int


class QueuedWrite(NamedTuple):
    """One queued write. The table is given by id, or by name in entries that older versions wrote."""

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
            "dedicated_row",
            f"{metadata.dedicated_row} is out of range; dedicated rows are 0 to {MAX_DEDICATED_ROWS - 1}",
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
        raise BadValue("bytes", f"metadata has {len(data)} bytes instead of 4", reason="wrong_length")
    word = int.from_bytes(data, "big")
    strategy = SweepStrategy.NOTHING if word & _NOTHING_BIT else _BYTE_STRATEGY[word >> 31]
    return Metadata(strategy, bool(word >> 30 & 1), word >> 22 & 0xFF, word >> 16 & 0x3F)


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
    metadata = read_metadata(row[at:])
    _check_form(row, var_long(partition) + row[at:])
    return partition, metadata


def cells_column(modulus: int, write_index: int) -> bytes:
    return var_long(modulus) + var_signed_long(write_index)


def read_cells_column(column: bytes) -> tuple[int, int]:
    """Return the timestamp modulus and the write index. This runs for every entry of the queue, so the usual lengths
    are decoded inline."""
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
    """Return the shard, the coarse partition and the strategy."""
    shard, at = read_var_long(row, 8)
    partition, at = read_var_long(row, at)
    _check_form(row[:at], var_long(shard), var_long(partition))
    return shard, partition, _read_strategy(row, at)


def progress_row(shard: int, strategy: SweepStrategy) -> bytes:
    encoded = var_signed_long(shard)
    return hash_prefix(encoded) + encoded + _strategy_byte(strategy)


def read_progress_row(row: bytes) -> tuple[int, SweepStrategy]:
    shard, at = read_var_signed_long(row, 8)
    _check_form(row[:at], var_signed_long(shard))
    return shard, _read_strategy(row, at)


# --- a write --------------------------------------------------------------------------------------------------------


def write_bytes(table_id: int, cell: Cell, delete: bool) -> bytes:
    return b"\x01" + var_long(table_id) + sized(cell.row) + sized(cell.column) + (b"\x01" if delete else b"\x00")


def read_write(value: bytes) -> QueuedWrite:
    """Decode a queued write in any of the three formats. Small ids and short names are decoded inline."""
    form = value[:1]
    if form == b"\x01":
        size = len(value)
        if size > 4 and value[1] < 0x80 and value[2] < 0x80:
            row_end = 3 + value[2]
            if row_end < size and value[row_end] < 0x80:
                end = row_end + 1 + value[row_end]
                if end == size - 1 and value[end] < 2:
                    return QueuedWrite(value[1], Cell(value[3:row_end], value[row_end + 1 : end]), value[end] == 1)
        table, at = read_var_long(value, 1)
        return _read_rest(value, at, table)
    if form == b"\x00":
        name, at = read_sized(value, 1)
        return _read_rest(value, at, _text(name))
    if form == b"{":
        return _read_json(value)
    raise BadValue("bytes", f"not a queued write: no format starts with {form.hex() or 'an empty value'}")


def row_of(value: bytes) -> tuple[int | str, bytes]:
    """Return the table and the row of a queued write. Small ids and short rows are decoded inline."""
    if len(value) > 4 and value[0] == 1 and value[1] < 0x80 and value[2] < 0x80:
        return value[1], value[3 : 3 + value[2]]
    write = read_write(value)
    return write.table, write.cell.row


def _read_rest(value: bytes, at: int, table: int | str) -> QueuedWrite:
    row, at = read_sized(value, at)
    column, at = read_sized(value, at)
    flag, at = read_var_long(value, at)
    if flag > 1:
        raise BadValue("bytes", f"the delete flag of a queued write is {flag}; it must be 0 or 1")
    _check_end(value, at)
    return QueuedWrite(table, Cell(row, column), bool(flag))


def _read_json(value: bytes) -> QueuedWrite:
    try:
        plain = json.loads(value)
        table, cell, delete = plain["t"], plain["c"], plain["d"]
        namespace, name = table["namespace"]["name"], table["tablename"]
        row, column = (base64.b64decode(cell[key], validate=True) for key in ("rowName", "columnName"))
        _text_bytes(namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise BadValue(
            "bytes", f"a field of a queued write in JSON is missing or invalid ({type(error).__name__})"
        ) from error
    if not isinstance(delete, bool):
        raise BadValue("bytes", "the delete flag of a queued write in JSON must be true or false")
    return QueuedWrite(f"{namespace}.{name}" if namespace else str(name), Cell(row, column), delete)


def _strategy_byte(strategy: SweepStrategy) -> bytes:
    if strategy not in _STRATEGY_BYTE:
        raise BadValue("strategy", f"{strategy} has no queue; only conservative and thorough have one")
    return _STRATEGY_BYTE[strategy]


def _read_strategy(row: bytes, at: int) -> SweepStrategy:
    if len(row) != at + 1 or row[at] not in _BYTE_STRATEGY:
        raise BadValue("bytes", "the row does not end in a strategy byte, 00 to 02")
    return _BYTE_STRATEGY[row[at]]


def _check_form(row: bytes, hashed: bytes, rest: bytes = b"") -> None:
    if row != hash_prefix(hashed) + hashed + rest:
        raise BadValue("bytes", "the hash or the layout of the row is not that of a queue row", reason="wrong_hash")


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


# ---------------------------------------------------------------------------------------------------------------------
# The encodings as JSON documents, to inspect them and to compare them with other implementations.
# ---------------------------------------------------------------------------------------------------------------------

Plain = dict[str, Any]
"""A JSON object with a `kind`: read and printed by `sweepflow queue encode` and `decode`."""


def encoded_line(document: Plain) -> Plain:
    """Return the bytes of the object that a document describes, as `{"hex": …}`."""
    encode, fields = _pick(document, _ENCODERS)
    unknown = sorted(set(document) - {"kind", *fields})
    if unknown:
        raise BadValue(unknown[0], f"is not a field of {document['kind']!r}; it takes {', '.join(fields)}")
    return {"hex": encode(*(_field(document, name) for name in fields)).hex()}


def decoded_line(document: Plain) -> Plain:
    """Return the document that describes the bytes given as `hex`."""
    decode = _pick(document, _DECODERS)
    return {"kind": document["kind"], **decode(_bytes(document, "hex"))}


def _pick(document: Plain, table: dict[str, Any]) -> Any:
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in table:
        raise BadValue("kind", f"must be one of {', '.join(table)}")
    return table[kind]


def _field(document: Plain, name: str) -> Any:
    if name not in document:
        raise BadValue(name, "is missing")
    value = document[name]
    if name in ("dedicated", "tombstone"):
        if not isinstance(value, bool):
            raise BadValue(name, "must be true or false")
        return value
    if name in ("row", "column"):
        return _bytes(document, name)
    if name == "strategy":
        if value not in ("conservative", "thorough"):
            raise BadValue(name, "must be conservative or thorough")
        return SweepStrategy(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(name, "must be a whole number")
    return value


def _bytes(document: Plain, name: str) -> bytes:
    value = document.get(name)
    try:
        if isinstance(value, str):
            return bytes.fromhex(value)
    except ValueError:
        value = None
    raise BadValue(name, "must be hexadecimal with an even number of digits")


def _metadata(strategy: SweepStrategy, dedicated: bool, shard: int, dedicated_row: int) -> bytes:
    return metadata_bytes(Metadata(strategy, dedicated, shard, dedicated_row))


def _cells_row(partition: int, strategy: SweepStrategy, dedicated: bool, shard: int, dedicated_row: int) -> bytes:
    return cells_row(partition, Metadata(strategy, dedicated, shard, dedicated_row))


def _write(table_id: int, row: bytes, column: bytes, tombstone: bool) -> bytes:
    return write_bytes(table_id, Cell(row, column), tombstone)


_ENCODERS: dict[str, tuple[Callable[..., bytes], tuple[str, ...]]] = {
    "var_long": (var_long, ("value",)),
    "var_signed_long": (var_signed_long, ("value",)),
    "metadata": (_metadata, ("strategy", "dedicated", "shard", "dedicated_row")),
    "cells_row": (_cells_row, ("partition", "strategy", "dedicated", "shard", "dedicated_row")),
    "cells_column": (cells_column, ("modulus", "write_index")),
    "timestamps_row": (timestamps_row, ("shard", "coarse", "strategy")),
    "timestamps_column": (var_long, ("fine",)),
    "progress_row": (progress_row, ("shard", "strategy")),
    "progress_value": (var_long, ("value",)),
    "write": (_write, ("table_id", "row", "column", "tombstone")),
}


def _whole(name: str, read: Callable[[bytes], tuple[int, int]]) -> Callable[[bytes], Plain]:
    def decode(data: bytes) -> Plain:
        value, at = read(data)
        if at != len(data):
            raise BadValue("hex", f"{len(data) - at} bytes are left over at the end")
        return {name: value}

    return decode


def _plain_cells_row(data: bytes) -> Plain:
    partition, metadata = read_cells_row(data)
    return {"partition": partition, **metadata._asdict()}


def _plain_timestamps_row(data: bytes) -> Plain:
    return dict(zip(("shard", "coarse", "strategy"), read_timestamps_row(data), strict=True))


def _plain_progress_row(data: bytes) -> Plain:
    return dict(zip(("shard", "strategy"), read_progress_row(data), strict=True))


def _plain_write(data: bytes) -> Plain:
    write = read_write(data)
    table = {"table_id": write.table} if isinstance(write.table, int) else {"table": write.table}
    return {**table, "row": write.cell.row.hex(), "column": write.cell.column.hex(), "tombstone": write.delete}


_DECODERS: dict[str, Callable[[bytes], Plain]] = {
    "var_long": _whole("value", read_var_long),
    "var_signed_long": _whole("value", read_var_signed_long),
    "metadata": lambda data: read_metadata(data)._asdict(),
    "cells_row": _plain_cells_row,
    "cells_column": lambda data: dict(zip(("modulus", "write_index"), read_cells_column(data), strict=True)),
    "timestamps_row": _plain_timestamps_row,
    "timestamps_column": _whole("fine", read_var_long),
    "progress_row": _plain_progress_row,
    "progress_value": _whole("value", read_var_long),
    "write": _plain_write,
}
