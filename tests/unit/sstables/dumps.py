"""Dumps as Cassandra 5.0's sstabledump prints them with raw times, a line for each partition."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from sweep_tasks.sstables.dump import Read

Entry = Any
"""An entry in the shape of `dump.DumpEntry`, or a document that lacks something of it."""


def deletion(at_s: int) -> Entry:
    return {"marked_deleted": "100", "local_delete_time": str(at_s)}


def partition(position: int, *entries: Entry, key: bytes = b"row", deleted_s: int | None = None) -> Entry:
    head: Entry = {"key": [key.hex()], "position": position}
    if deleted_s is not None:
        head["deletion_info"] = deletion(deleted_s)
    return {"table kind": "REGULAR", "partition": head, "rows": list(entries)}


def live(position: int, value: bytes = b"v") -> Entry:
    cells = [{"name": "value", "value": f"0x{value.hex()}"}]
    return {**_row(position), "liveness_info": {"tstamp": "10"}, "cells": cells}


def dead(position: int, deleted_s: int) -> Entry:
    return {**_row(position), "deletion_info": deletion(deleted_s), "cells": []}


def dead_cell(position: int, deleted_s: int, **also: Any) -> Entry:
    cell = {"name": "value", "deletion_info": {"local_delete_time": str(deleted_s)}, "tstamp": "11"}
    return {**_row(position), **also, "cells": [cell]}


def expiring(position: int, expires_s: int, ttl: int) -> Entry:
    times = {"tstamp": "10", "ttl": ttl, "expires_at": str(expires_s), "expired": True}
    return {**_row(position), "liveness_info": times, "cells": [{"name": "value", "value": "0x01"}]}


def bound(side: str, deleted_s: int) -> Entry:
    return {"type": "range_tombstone_bound", side: _side(deleted_s)}


def boundary(start_s: int, end_s: int) -> Entry:
    return {"type": "range_tombstone_boundary", "start": _side(start_s), "end": _side(end_s)}


def text(*partitions: Entry) -> str:
    return "\n".join(json.dumps(each, separators=(",", ":")) for each in partitions)


def reading(pieces: str | Iterable[str]) -> Read:
    """A stream that is never held as a whole."""
    if isinstance(pieces, str):
        return io.StringIO(pieces).read
    left: Iterator[str] = iter(pieces)
    kept = ""

    def read(size: int) -> str:
        nonlocal kept
        while len(kept) < size and (piece := next(left, "")):
            kept += piece
        given, kept = kept[:size], kept[size:]
        return given

    return read


def _row(position: int) -> Entry:
    return {"type": "row", "position": position, "clustering": ["0x636f6c", -11]}


def _side(deleted_s: int) -> Entry:
    return {"type": "exclusive", "clustering": ["0x636f6c", -11], "deletion_info": deletion(deleted_s)}
