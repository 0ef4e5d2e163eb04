"""Compares the legacy sweep, which scans a table, with the targeted sweep, which reads the queue, on equal stores.

Many cells were written some time ago, then one in a hundred of them again. The scan examines all of them, the
targeted sweep only what is queued. The targeted sweep runs hourly, so it is measured several times, each time after
another one in a hundred cells was written. The median counts. The first run, on a server with cold caches, is reported
beside it. Before each run, the server may finish its background work. Both sweep in one process, without a rate limit
and without starting Spark, and must leave the same versions. SQLite, and Cassandra with one node on this machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.shared.goals import Goal, at_least, documents
from benchmarks.shared.spark import remove
from benchmarks.shared.timing import seconds
from sweep_tasks.clock import StandingClock, SystemClock
from sweep_tasks.compaction.nodetool import work_of
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.contract import chunks
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
METADATA = TableMetadata(SweepStrategy.THOROUGH)
SIZES = (100_000, 1_000_000, 10_000_000)
CASSANDRA_MOST = 1_000_000
"""Larger sizes are measured on SQLite only."""
ONE_IN = 100
"""This share of the cells is overwritten."""
WRITES = 50
"""Cells per transaction."""
VALUE = b"v" * 100
ROUNDS = 5
GOAL = 50
GOAL_FROM = 1_000_000
"""With fewer cells, both sweeps are mostly fixed costs."""


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite = [{"store": "sqlite", **_on_sqlite(folder, cells).document()} for cells in sizes]
        smaller = [cells for cells in sizes if cells <= CASSANDRA_MOST]
        with LocalCluster(folder / "cassandra", dies_with_parent=True) as cluster:
            scans = [_on_cassandra(cluster, cells) for cells in smaller]
    return {
        "one_in": ONE_IN,
        "sizes": [*sqlite, *({"store": "cassandra", **scan.document()} for scan in scans)],
        "goals": documents(goal(scan.cells, scan.ratio) for scan in scans if scan.cells >= GOAL_FROM),
    }


@dataclass(frozen=True)
class Compared:
    """One scan, and the targeted sweeps of several rounds."""

    cells: int
    scan_s: float
    examined: int
    targeted: Sequence[tuple[float, Summary]]

    @property
    def targeted_s(self) -> float:
        return self._middle[0]

    @property
    def ratio(self) -> float:
        return self.scan_s / self.targeted_s

    @property
    def _middle(self) -> tuple[float, Summary]:
        return sorted(self.targeted, key=lambda each: each[0])[len(self.targeted) // 2]

    def document(self) -> dict[str, Any]:
        first = self.targeted[0][0]
        return {
            "cells": self.cells,
            "overwritten": self.cells // ONE_IN,
            "legacy_s": round(self.scan_s, 3),
            "targeted_s": round(self.targeted_s, 3),
            "targeted_phases_s": self._middle[1].document()["seconds"],
            "versions_examined_per_s": round(self.examined / self.scan_s),
            "ratio": round(self.ratio, 1),
            "first": {"targeted_s": round(first, 3), "ratio": round(self.scan_s / first, 1)},
            "rounds_s": [round(took, 3) for took, _ in self.targeted],
        }


def goal(cells: int, ratio: float) -> Goal:
    what = f"a scan of {cells:,} cells on Cassandra, relative to a targeted sweep of one in {ONE_IN} of them"
    return at_least(what, ratio, GOAL)


def _on_sqlite(folder: Path, cells: int) -> Compared:
    files = [folder / f"{name}-{cells}.db" for name in ("legacy", "targeted")]
    compared = compare(f"sqlite:///{files[0]}", f"sqlite:///{files[1]}", cells)
    for file in files:
        remove(file)
    return compared


def _on_cassandra(cluster: LocalCluster, cells: int) -> Compared:
    urls = cluster.url(f"legacy_{cells}"), cluster.url(f"targeted_{cells}")
    return compare(*urls, cells, calm=lambda: _calm(cluster))


def _at_once() -> None:
    """SQLite has no background work to wait for."""


def compare(
    legacy_url: str, targeted_url: str, cells: int, rounds: int = ROUNDS, calm: Callable[[], None] = _at_once
) -> Compared:
    """Write the same cells into both stores, scan one and sweep the other. Both must have the same versions left."""
    with _opened(legacy_url) as one, _opened(targeted_url) as other:
        for store in (one, other):
            _write(store, cells, 1, announced=False)
        _write(one, cells, ONE_IN, announced=True)
        targeted = [_targeted(other, cells, number, calm) for number in range(rounds)]
        calm()
        legacy = LegacySweep(one, Settings(legacy_versions_per_s=0), SystemClock())
        done: list[LegacySummary] = []
        scan_s = seconds(lambda: done.append(legacy.sweep(LegacyOrder(TABLE), _horizon(one))))
        left = [Catalog(store).count(TABLE).versions for store in (one, other)]
    counts = done[0].counts
    assert left == [cells, cells], left  # noqa: S101
    deleted = {counts.deleted, *(summary.range_deletes for _, summary in targeted)}
    assert deleted == {cells // ONE_IN}, targeted  # noqa: S101
    return Compared(cells, scan_s, counts.versions, targeted)


def _targeted(store: Store, cells: int, number: int, calm: Callable[[], None]) -> tuple[float, Summary]:
    """Sweep what was written since the last sweep, an hour ago by its clock."""
    _write(store, cells, ONE_IN, announced=True, first=number)
    clock = StandingClock((number + 1) * 3_600_000)
    ClockHistory(store).record_now(TimestampService(store), clock, step_max_s=0)
    calm()
    sweep = ShardSweep(store, METADATA.strategy, 0, _horizon(store), clock)
    done: list[Summary] = []
    return seconds(lambda: done.append(sweep.run())), done[0]


def _horizon(store: Store) -> Horizon:
    return Horizon(TimestampService(store).fresh(), SystemClock().now_ms())


def _opened(url: str) -> Store:
    settings = Settings(store=url, sqlite_durability="normal")
    initialise_store(url, settings)
    store = open_store(url, settings)
    store.create_table(TABLE, METADATA)
    return store


def _write(store: Store, cells: int, step: int, announced: bool, first: int = 0) -> None:
    """Write one cell in `step`. The first writes are already swept, or older than the queue."""
    queue, commits, timestamps = QueueWriter(store), CommitTable(store), TimestampService(store)

    def written(start: int, some: list[Cell]) -> None:
        values = {TABLE: dict.fromkeys(some, VALUE)}
        if announced:
            queue.enqueue(start, values, {TABLE: METADATA})
        store.put(start, values)
        commits.decide(start, start + 1)

    parts = list(chunks((Cell(b"%010d" % number, b"c") for number in range(first, cells, step)), WRITES))
    start = timestamps.fresh()
    timestamps.move_past(start + 2 * len(parts) + 1)
    with ThreadPoolExecutor(1 if isinstance(store, SQLiteStore) else 32) as pool:
        for done in [pool.submit(written, start + 2 * number + 1, part) for number, part in enumerate(parts)]:
            done.result()


def _calm(cluster: LocalCluster) -> None:
    """Flush everything, and wait for the server's compactions."""
    node = Node.named(load_settings(compaction_nodes=cluster.compaction_nodes()), "node1")
    node.nodetool("flush", changes=True)
    while work_of(node).busy:
        time.sleep(1)
