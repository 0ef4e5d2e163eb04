"""Giving the room that deletes left inside a SQLite file back to the disk.

SQLite has no tombstones: what is deleted is gone at once, and its pages are free for what comes next. The file keeps
its size, and that is all there is to gain here. Where the file was made with `auto_vacuum = incremental` free pages are
cut off its end, a few at a time, and others write in between. Everywhere else the whole file is written anew, which
lets nobody else write meanwhile and takes about twice the room of what is in use.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Literal, NamedTuple

from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.store.contract import Size
from sweep_tasks.store.sqlite.connection import Connections

_INCREMENTAL = 2
_PAGES_AT_ONCE = 1_000

How = Literal["vacuum", "incremental_vacuum"]


class Vacuumed(NamedTuple):
    how: How
    before: Size
    after: Size
    waiting: bool
    """Done, but the file shrinks only when those who read from it now are through."""


def how(connections: Connections) -> How:
    with connections.reading() as connection:
        return "incremental_vacuum" if _pragma(connection, "auto_vacuum") == _INCREMENTAL else "vacuum"


def size(connections: Connections) -> Size:
    """By pages, so that what still stands in the log counts too. Deleting frees pages, the file keeps its size."""
    with connections.reading() as connection:
        a_page, pages, free = (_pragma(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    return Size((pages - free) * a_page, free * a_page)


def vacuum(connections: Connections) -> Vacuumed:
    """What is stored stays the same. Somebody else who writes is waited for, and then it is `StoreBusy`."""
    before, way = size(connections), how(connections)
    with connections.reading() as connection:
        if way == "vacuum":
            _check_room(connections.path, 2 * before.used)
            connection.execute("VACUUM")
        else:
            while (free := _pragma(connection, "freelist_count")) > 0:
                connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
                if _pragma(connection, "freelist_count") >= free:
                    break  # somebody deletes as fast as we cut
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return Vacuumed(way, before, size(connections), bool(busy))


def _check_room(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreUnavailable(
            f"store: {path} can't be written anew, that takes {needed} bytes on its disk for a while and {free} are "
            "free; make room and try again",
            reason="disk_full",
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
