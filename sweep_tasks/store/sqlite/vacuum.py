"""Vacuuming a SQLite file: returning the free pages that deletes left in it to the file system.

SQLite has no tombstones. Deleted data is removed at once, and its pages are reused, but the file keeps its size. If the
file was created with `auto_vacuum = incremental`, free pages are cut off its end a few at a time, and other processes
can write in between. Any other file is rewritten as a whole: no other process can write meanwhile, and the disk needs
about twice the space that is in use.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.store.contract import Size, Vacuumed, VacuumMethod
from sweep_tasks.store.sqlite.connection import Connections

_INCREMENTAL = 2
_PAGES_AT_ONCE = 1_000


def vacuum_method(connections: Connections) -> VacuumMethod:
    with connections.reading() as connection:
        return "incremental_vacuum" if _pragma(connection, "auto_vacuum") == _INCREMENTAL else "vacuum"


def size(connections: Connections) -> Size:
    """Measure the file by its pages, so that data in the write-ahead log is included."""
    with connections.reading() as connection:
        a_page, pages, free = (_pragma(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    return Size((pages - free) * a_page, free * a_page)


def vacuum(connections: Connections) -> Vacuumed:
    """Return free pages to the file system. Waits for another writer, and then raises `StoreBusy`."""
    before, method = size(connections), vacuum_method(connections)
    if method == "vacuum":
        _check_space(connections.path, 2 * before.used)
        connections.vacuum()
    with connections.reading() as connection:
        if method == "incremental_vacuum":
            while (free := _pragma(connection, "freelist_count")) > 0:
                connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
                if _pragma(connection, "freelist_count") >= free:
                    break  # another process frees pages as fast as they are removed
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return Vacuumed(method, before, size(connections), bool(busy))


def _check_space(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreUnavailable(
            f"store: {path} can't be vacuumed: rewriting it needs {needed} bytes on its disk for a while, and {free} "
            "are free; free some space and retry",
            reason="disk_full",
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
