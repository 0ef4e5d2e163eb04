"""Measures what the queue costs a writer, and how fast the engine sweeps it.

The engine reads from a memory store on one core: every entry is decoded, its commit timestamp is looked up, it is
judged, and its tombstone is applied. It runs in one thread, so it is measured in CPU seconds of this process.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.goals import Goal, at_least, documents
from benchmarks.shared.timing import alternately, cpu_seconds
from benchmarks.shared.writing import QueueCost
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
ENGINE_GOAL = 100_000
"""Entries per CPU second of one core."""


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        cost = queue_cost(Path(folder))
    rates = engine_rates()
    return {
        "queue_cost": cost.document(),
        "entries": TRANSACTIONS * WRITES,
        "goal_entries_per_cpu_s": ENGINE_GOAL,
        "engine": [each.document() for each in rates],
        "goals": documents([cost.goal, *(each.goal for each in rates)]),
    }


# --- the queue --------------------------------------------------------------------------------------------------------


def queue_cost(
    folder: Path, writes: int = 10, commits: int = 100, choose: Callable[[list[float]], float] = median
) -> QueueCost:
    def committing(name: str, queued: bool) -> Callable[[], None]:
        url = f"sqlite:///{folder}/{name}.db"
        initialise_store(url, Settings())
        store = open_store(url, Settings())
        store.create_table(TABLE, TableMetadata())
        manager = TransactionManager(store, enqueue=queued, renew_leases=False)
        rows = count()

        def run() -> None:
            for _ in range(commits):
                with manager.transaction() as tx:
                    tx.put_many(TABLE, {Cell(b"%012d" % next(rows), b"c"): VALUE for _ in range(writes)})

        return run

    return QueueCost(
        "SQLite", writes, commits, *alternately(committing("with", True), committing("without", False), choose=choose)
    )


# --- the engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EngineRate:
    """Entries that the engine sweeps in a CPU second."""

    strategy: SweepStrategy
    rows: str
    """`shared` by several transactions, or `dedicated` to one that is too large for that."""
    entries_per_cpu_s: int

    @property
    def goal(self) -> Goal:
        what = f"entries swept per CPU second ({self.strategy.value}, {self.rows} rows), relative to {ENGINE_GOAL:,}"
        return at_least(what, self.entries_per_cpu_s / ENGINE_GOAL, 1)

    def document(self) -> dict[str, Any]:
        return {"strategy": self.strategy.value, "rows": self.rows, "entries_per_cpu_s": self.entries_per_cpu_s}


def engine_rates(transactions: int = TRANSACTIONS, rounds: int = 3) -> list[EngineRate]:
    """Measure every strategy with shared and dedicated rows, in interleaved rounds. The median counts."""
    cases = [(strategy, rows, shards) for strategy in QUEUES for rows, shards in (("shared", 4), ("dedicated", 1))]
    found: dict[tuple[SweepStrategy, str], list[float]] = {(strategy, rows): [] for strategy, rows, _ in cases}
    for _ in range(rounds):
        for strategy, rows, shards in cases:
            found[strategy, rows].append(_one_engine_run(strategy, shards, transactions))
    return [EngineRate(strategy, rows, round(median(rates))) for (strategy, rows), rates in found.items()]


def _one_engine_run(strategy: SweepStrategy, shards: int, transactions: int) -> float:
    store = _filled(strategy, shards, transactions)
    horizon = Horizon(2 * transactions + 10, 0)
    entries = 0

    def sweep() -> None:
        nonlocal entries
        for shard in range(shards):
            entries += ShardSweep(store, strategy, shard, horizon, SystemClock()).run().entries

    gc.collect()
    gc.freeze()  # the store's million objects stand for a remote database: the collector must not traverse them
    took = cpu_seconds(sweep)
    gc.unfreeze()
    assert entries == transactions * WRITES, entries  # noqa: S101
    return entries / took


def _filled(strategy: SweepStrategy, shards: int, transactions: int) -> Store:
    """Write every cell four times, like a table that is updated."""
    store = open_store("memory:", Settings())
    metadata = TableMetadata(strategy)
    store.create_table(TABLE, metadata)
    Progress(store).raise_shards(shards)
    queue = QueueWriter(store)
    commits = CommitTable(store)
    cells = transactions * WRITES // 4
    for number in range(transactions):
        start = 2 * number + 1
        first = number * WRITES
        values = {Cell(b"%010d" % ((first + n) % cells), b"c"): VALUE for n in range(WRITES)}
        queue.enqueue(start, {TABLE: values}, {TABLE: metadata})
        store.put(start, {TABLE: values})
        commits.decide(start, start + 1)
    return store
