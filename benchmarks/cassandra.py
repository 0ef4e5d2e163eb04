"""Compares the Spark job on Cassandra with the fastest delete-only loop, and measures what the queue costs a writer.

The job reads the queue, looks up commits, decides, deletes, cleans and advances the progress, in Spark's workers. The
loop sends the same range deletes directly through the driver, in unlogged batches by token, with the best of several
batch sizes and depths. Both use one node on this machine, one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice, product
from pathlib import Path
from typing import Any

from cassandra.concurrent import execute_concurrent
from cassandra.metadata import Murmur3Token
from cassandra.query import BatchStatement, BatchType

from benchmarks.shared.timing import alternately, seconds
from benchmarks.spark import run_job
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import chunks
from sweep_tasks.tables.deletions import DeleteKind, DeleteTally
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
METADATA = TableMetadata(SweepStrategy.THOROUGH)
CELLS = 300_000
COUNTED = 50_000
WRITES = 50
"""Cells per transaction."""
SHAPES = list(product((50, 100, 200), (32, 64)))
"""Statements per batch, and batches in flight. The fastest combination counts."""
COMMITS = 60
VALUE = b"v" * 100


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), dies_with_parent=True) as cluster:
        return {
            "range_deletes": _range_deletes(cluster),
            "counting": _counting(cluster),
            "write_path": _write_path(cluster),
        }


# --- deleting -------------------------------------------------------------------------------------------------------


def _range_deletes(cluster: LocalCluster) -> dict[str, Any]:
    job_url, loop_url = cluster.url("job"), cluster.url("loop")
    _fill(job_url, queued=True)
    _fill(loop_url, queued=False)
    loops = _loops(loop_url)
    shape, loop = min(loops.items(), key=lambda each: each[1])
    took, summary = run_job(job_url)
    assert summary["range_deletes"] == CELLS, summary  # noqa: S101
    phases = summary["seconds"]
    return {
        "cells": CELLS,
        "job_s": round(took, 1),
        "phases_s": phases,
        "loop_s": round(loop, 1),
        "best_loop": {"statements": shape[0], "in_flight": shape[1]},
        "loops_s": {f"{statements}x{depth}": round(each, 1) for (statements, depth), each in loops.items()},
        "deletes_per_s": {
            "job": round(CELLS / took),
            "job_while_deleting": round(CELLS / phases["deleting"]),
            "loop": round(CELLS / loop),
        },
        "ratio": round(loop / phases["deleting"], 2),
        "ratio_of_the_whole_job": round(loop / took, 2),
        "goal": 0.7,
    }


def _counting(cluster: LocalCluster) -> dict[str, Any]:
    """Measure what a sweep pays for counting its deletes by token, compared with the deletes themselves."""
    url = cluster.url("counting")
    with open_store(url, _initialised(url)) as store:
        store.create_table(TABLE, METADATA)
        ranges = [VersionRange(cell, 0, 10) for cell in islice(_cells(), COUNTED)]

        def counted() -> None:
            DeleteTally().add(TABLE, DeleteKind.RANGES, store.tokens(each.cell.row for each in ranges) or [])

        deleting, counting = alternately(lambda: store.delete_ranges(TABLE, ranges), counted, rounds=3)
    return {
        "cells": COUNTED,
        "delete_us": round(1e6 * deleting / COUNTED, 2),
        "count_us": round(1e6 * counting / COUNTED, 2),
        "ratio": round(counting / deleting, 3),
        "goal": 0.05,
    }


def _fill(url: str, *, queued: bool) -> None:
    """Write every cell twice: once before there was a queue, and once with queue entries."""
    settings = _initialised(url)
    with open_store(url, settings) as store, ThreadPoolExecutor(8) as pool:
        store.create_table(TABLE, METADATA)
        queue, commits = QueueWriter(store), CommitTable(store)

        def written(each: tuple[int, list[Cell]]) -> int:
            number, cells = each
            old, new = 20 * number + 1, 20 * number + 11
            writes = {TABLE: dict.fromkeys(cells, VALUE)}
            store.put(old, writes)
            if queued:
                queue.enqueue(new, writes, {TABLE: METADATA})
            store.put(new, writes)
            return commits.decide(new, new + 1) if queued else new

        TimestampService(store).move_past(max(pool.map(written, enumerate(chunks(_cells(), WRITES)))))


def _loops(url: str) -> dict[tuple[int, int], float]:
    settings = load_settings(store=url)
    with open_store(url, settings) as store:
        assert isinstance(store, CassandraStore)  # noqa: S101
        return {shape: seconds(lambda shape=shape: _loop(store, *shape)) for shape in SHAPES}  # type: ignore[misc]


def _loop(store: CassandraStore, statements: int, depth: int) -> None:
    session, name = store.connection.session, store.catalog.in_use(TABLE)[1]
    fresh = TimestampService(store).fresh()
    delete = session.prepare(
        f"DELETE FROM {name} USING TIMESTAMP ? WHERE key = ? AND column1 = ? AND column2 > ? AND column2 <= ?"
    )

    def batches() -> Iterator[tuple[BatchStatement, tuple[()]]]:
        ordered = sorted(enumerate(_cells()), key=lambda each: Murmur3Token.hash_fn(each[1].row))
        for part in chunks(ordered, statements):
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=store.connection.write_level)
            for number, (row, column) in part:
                batch.add(delete, (fresh, row, column, ~(20 * (number // WRITES) + 11), 0))
            yield batch, ()

    for _ in execute_concurrent(session, batches(), concurrency=depth, results_generator=True):
        pass


# --- writing --------------------------------------------------------------------------------------------------------


def _write_path(cluster: LocalCluster) -> dict[str, Any]:
    url = cluster.url("writing")
    settings = _initialised(url)
    with open_store(url, settings) as store:
        store.create_table(TABLE, METADATA)
        return {str(writes): _writes(store, settings, writes) for writes in (1, 10, 100)}


def _writes(store: Store, settings: Settings, writes: int) -> dict[str, Any]:
    rows = count()

    def committing(manager: TransactionManager) -> None:
        for _ in range(COMMITS):
            with manager.transaction() as tx:
                tx.put_many(TABLE, {Cell(b"w%012d" % next(rows), b"c"): VALUE for _ in range(writes)})

    with TransactionManager(store, settings) as queued, TransactionManager(store, settings, enqueue=False) as bare:
        took, bare_took = alternately(lambda: committing(queued), lambda: committing(bare), rounds=3)
    return {
        "with_queue_per_s": round(COMMITS / took, 1),
        "without_per_s": round(COMMITS / bare_took, 1),
        "ratio": round(took / bare_took, 2),
        "goal": 1.5,
    }


def _initialised(url: str) -> Settings:
    settings = load_settings(store=url)
    initialise_store(url, settings)
    return settings


def _cells() -> Iterator[Cell]:
    return (Cell(b"%010d" % number, b"c") for number in range(CELLS))
