"""Compares transactions on SQLite with the bare statements that do the same; point reads, scans, and conflicts.

The bare side runs the statements of a commit in the same order and in as many SQLite transactions, directly on the
driver. The difference is the cost of our layers.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.shared.timing import alternately, seconds
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.encoding import var_long, var_signed_long
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.transactions import Transaction, TransactionManager

TABLE = TableRef.parse("bench.cells")
VALUE = b"v" * 100
SIZES = {1: 300, 10: 200, 100: 50, 10_000: 2}
"""Writes per transaction, and transactions per round."""


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {
            "commits": [_commits(Path(folder), writes, rounds) for writes, rounds in SIZES.items()],
            "reads": _reads(Path(folder)),
            "conflicts": _conflicts(Path(folder)),
        }


def _opened(folder: Path, name: str) -> tuple[str, Store]:
    url = f"sqlite:///{folder}/{name}.db"
    initialise_store(url, Settings())
    store = open_store(url, Settings())
    store.create_table(TABLE, TableMetadata())
    return url, store


def _commits(folder: Path, writes: int, rounds: int) -> dict[str, Any]:
    _, store = _opened(folder, f"ours-{writes}")
    manager = TransactionManager(store, enqueue=False)
    rows = count()

    def ours() -> None:
        for _ in range(rounds):
            with manager.transaction() as tx:
                tx.put_many(TABLE, {Cell(b"%012d" % next(rows), b"c"): VALUE for _ in range(writes)})

    took, bare_took = alternately(ours, _bare_commits(folder, writes, rounds))
    return {
        "writes": writes,
        "transactions_per_s": round(rounds / took, 1),
        "bare_per_s": round(rounds / bare_took, 1),
        "ratio_to_bare": round(took / bare_took, 2),
    }


def _bare_commits(folder: Path, writes: int, rounds: int) -> Callable[[], None]:
    db = sqlite3.connect(folder / f"bare-{writes}.db", isolation_level=None)
    db.executescript(
        """
        PRAGMA journal_mode = WAL; PRAGMA synchronous = full;
        CREATE TABLE cells (row BLOB, col BLOB, ts INTEGER, value BLOB, PRIMARY KEY (row, col, ts DESC)) WITHOUT ROWID;
        CREATE TABLE registers (name BLOB, row BLOB, value BLOB, PRIMARY KEY (name, row)) WITHOUT ROWID;
        """
    )
    rows = count()
    timestamps = count(1)

    def write(statement: str, *parameters: object) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(statement, parameters)
        db.execute("COMMIT")

    def fresh() -> int:
        ts = next(timestamps)
        write("INSERT OR REPLACE INTO registers VALUES ('ts', 't', ?)", var_long(ts))
        return ts

    def look() -> None:
        db.execute("SELECT value FROM registers WHERE name = 'table'").fetchall()
        db.execute("SELECT value FROM registers WHERE name = 'threshold'").fetchall()

    def bare() -> None:
        for _ in range(rounds):
            lease = var_long(fresh())
            write("INSERT INTO registers VALUES ('lease', ?, x'7f')", lease)
            start = fresh()
            cells = [(b"%012d" % next(rows), b"c", start, VALUE) for _ in range(writes)]
            write("UPDATE registers SET value = ? WHERE name = 'lease' AND row = ?", var_long(start), lease)
            look()
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?)", cells)
            db.execute("COMMIT")
            for bound in (2**62, start):
                for row, column, _, _ in cells:
                    db.execute(
                        "SELECT max(ts) FROM cells WHERE row = ? AND col = ? AND ts < ?", (row, column, bound)
                    ).fetchone()
            commit = fresh()
            look()
            write("INSERT INTO registers VALUES ('tx', ?, ?)", var_long(start), var_signed_long(commit))
            write("DELETE FROM registers WHERE name = 'lease' AND row = ?", lease)

    return bare


def _reads(folder: Path) -> dict[str, Any]:
    _, store = _opened(folder, "reads")
    manager = TransactionManager(store, enqueue=False)
    cells = [Cell(b"%06d" % n, b"c") for n in range(20_000)]
    for _ in range(3):
        with manager.transaction() as tx:
            tx.put_many(TABLE, dict.fromkeys(cells, VALUE))
    with manager.transaction() as tx:
        singles = seconds(lambda: [tx.get(TABLE, *cell) for cell in cells[:2_000]])
        many = seconds(lambda: tx.get_many(TABLE, cells))
        scan = seconds(lambda: sum(1 for _ in tx.scan(TABLE)))
    return {
        "versions_per_cell": 3,
        "point_reads_per_s": round(2_000 / singles),
        "cells_per_s_in_one_call": round(len(cells) / many),
        "one_call_against_single_reads": round((len(cells) / many) / (2_000 / singles), 1),
        "scanned_cells_per_s": round(len(cells) / scan),
    }


def _conflicts(folder: Path, writers: int = 8, increments: int = 50) -> dict[str, Any]:
    """Let eight processes increment one cell, then eight different cells."""
    url, store = _opened(folder, "conflicts")
    with TransactionManager(store, enqueue=False).transaction() as tx:
        tx.put_many(TABLE, {Cell(b"%d" % n, b"c"): b"0" for n in range(writers)})
    found = {}
    with ProcessPoolExecutor(writers, mp_context=get_context("spawn")) as pool:
        for name, cells in (("one_cell", 1), ("own_cells", writers)):
            list(pool.map(_warm_up, range(writers)))
            jobs = [(url, b"%d" % (n % cells), increments) for n in range(writers)]
            tries: list[int] = []
            took = seconds(lambda jobs=jobs, tries=tries: tries.extend(pool.map(_increment, jobs)))  # type: ignore[misc]
            done = writers * increments
            found[name] = {
                "retries_per_commit": round((sum(tries) - done) / done, 2),
                "commits_per_s": round(done / took, 1),
            }
    return {"writers": writers, **found}


def _warm_up(number: int) -> int:
    return number


def _increment(job: tuple[str, bytes, int]) -> int:
    url, row, times = job
    tries = 0

    def once(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        tx.put(TABLE, row, b"c", b"%d" % (int(tx.get(TABLE, row, b"c") or b"0") + 1))

    with open_store(url, Settings()) as store, TransactionManager(store, enqueue=False) as manager:
        for _ in range(times):
            manager.run(once, attempts=100_000)
    return tries
