"""Measures what the queue costs a writer, and how fast the engine sweeps it.

The engine reads from a memory store on one core: every entry is decoded, its commit timestamp is looked up, it is
judged, and its tombstone is applied. AtlasDB's Java sweeps 76 000 to 212 000 entries per second on such a machine.
"""

from __future__ import annotations

import gc
import tempfile
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.timing import alternately, seconds
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
VALUE = b"v" * 100
WRITES = 100
TRANSACTIONS = 1_000


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        cost = _queue_cost(Path(folder))
    engine = [
        {"strategy": strategy.value, "rows": rows, "entries_per_s": _engine_rate(strategy, shards)}
        for strategy in QUEUES
        for rows, shards in (("shared", 4), ("dedicated", 1))
    ]
    return {"queue_cost": cost, "engine": engine}


def _queue_cost(folder: Path, writes: int = 10, rounds: int = 100) -> dict[str, Any]:
    def commits(name: str, queued: bool) -> Any:
        url = f"sqlite:///{folder}/{name}.db"
        initialise_store(url, Settings())
        store = open_store(url, Settings())
        store.create_table(TABLE, TableMetadata())
        manager = TransactionManager(store, enqueue=queued, renew_leases=False)
        rows = count()

        def run() -> None:
            for _ in range(rounds):
                with manager.transaction() as tx:
                    tx.put_many(TABLE, {Cell(b"%012d" % next(rows), b"c"): VALUE for _ in range(writes)})

        return run

    with_queue, without = alternately(commits("with", True), commits("without", False))
    return {
        "writes": writes,
        "with_queue_per_s": round(rounds / with_queue, 1),
        "without_per_s": round(rounds / without, 1),
        "ratio": round(with_queue / without, 2),
        "goal": 1.5,
    }


def _engine_rate(strategy: SweepStrategy, shards: int) -> int:
    """Return entries per second over all shards, the median of three runs."""
    return round(median(_one_engine_run(strategy, shards) for _ in range(3)))


def _one_engine_run(strategy: SweepStrategy, shards: int) -> float:
    store = _filled(strategy, shards)
    horizon = Horizon(2 * TRANSACTIONS + 10, 0)
    entries = 0

    def sweep() -> None:
        nonlocal entries
        for shard in range(shards):
            entries += ShardSweep(store, strategy, shard, horizon, SystemClock()).run().entries

    gc.collect()
    gc.freeze()  # the store's million objects stand for a remote database: the collector must not traverse them
    took = seconds(sweep)
    gc.unfreeze()
    assert entries == TRANSACTIONS * WRITES, entries  # noqa: S101
    return entries / took


def _filled(strategy: SweepStrategy, shards: int) -> Store:
    """Write every cell four times, like a table that is updated."""
    store = open_store("memory:", Settings())
    metadata = TableMetadata(strategy)
    store.create_table(TABLE, metadata)
    Progress(store).raise_shards(shards)
    queue = QueueWriter(store)
    commits = CommitTable(store)
    cells = TRANSACTIONS * WRITES // 4
    for number in range(TRANSACTIONS):
        start = 2 * number + 1
        first = number * WRITES
        values = {Cell(b"%010d" % ((first + n) % cells), b"c"): VALUE for n in range(WRITES)}
        queue.enqueue(start, {TABLE: values}, {TABLE: metadata})
        store.put(start, {TABLE: values})
        commits.decide(start, start + 1)
    return store
