"""The queue's encodings as plain objects, for people and for other implementations to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.encoding import (
    Metadata,
    cells_column,
    cells_row,
    metadata_bytes,
    progress_row,
    read_cells_column,
    read_cells_row,
    read_metadata,
    read_progress_row,
    read_timestamps_row,
    read_write,
    timestamps_row,
    write_bytes,
)

Plain = dict[str, Any]


def encoded_line(document: Plain) -> Plain:
    encode, fields = _pick(document, _ENCODERS)
    unknown = sorted(set(document) - {"kind", *fields})
    if unknown:
        raise BadValue(unknown[0], f"is not a field of {document['kind']!r}; it takes {', '.join(fields)}")
    return {"hex": encode(*(_field(document, name) for name in fields)).hex()}


def decoded_line(document: Plain) -> Plain:
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
    shard, coarse, strategy = read_timestamps_row(data)
    return _same_bytes(data, timestamps_row(shard, coarse, strategy)) | {
        "shard": shard,
        "coarse": coarse,
        "strategy": strategy,
    }


def _plain_progress_row(data: bytes) -> Plain:
    shard, strategy = read_progress_row(data)
    return _same_bytes(data, progress_row(shard, strategy)) | {"shard": shard, "strategy": strategy}


def _same_bytes(data: bytes, again: bytes) -> Plain:
    if data != again:
        raise BadValue("hex", "the row's hash is not that of its components")
    return {}


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
