"""The sweep that scans a table against the one that reads the queue, on the same table, one after the other.

A million cells were written some time ago, then one in a hundred of them again: the scan examines all, the targeted
sweep what was announced. Both run in one process, without a limit on the pace, on two stores that were filled alike,
and must leave the same number of versions. SQLite and Cassandra (one node on this machine).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks._timing import seconds
from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.opening import open_store
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.chunks import chunks
from sweep_tasks.sweep.engine import ShardSweep
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import CommitTable

TABLE = TableRef.parse("bench.cells")
METADATA = TableMetadata(SweepStrategy.THOROUGH)
CELLS = 1_000_000
ONE_IN = 100
"""Is overwritten."""
WRITES = 50
"""Cells a transaction."""
VALUE = b"v" * 100
GOAL = 50


def measure(cells: int = CELLS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite = _compared(f"sqlite:///{folder}/legacy.db", f"sqlite:///{folder}/targeted.db", cells)
        with LocalCluster(folder / "cassandra", dies_with_parent=True) as cluster:
            cassandra = _compared(cluster.url("legacy"), cluster.url("targeted"), cells) | {"goal": GOAL}
    return {"cells": cells, "overwritten": cells // ONE_IN, "sqlite": sqlite, "cassandra": cassandra}


def _compared(legacy_url: str, targeted_url: str, cells: int) -> dict[str, Any]:
    with _filled(legacy_url, cells) as one, _filled(targeted_url, cells) as other:
        sweep_ts = TimestampService(one).fresh()
        targeted: list[Summary] = []
        horizon = Horizon(sweep_ts, SystemClock().now_ms())
        short = seconds(lambda: targeted.append(ShardSweep(other, METADATA.strategy, 0, horizon, SystemClock()).run()))
        legacy: list[LegacySummary] = []
        sweep = LegacySweep(one, Settings(legacy_versions_per_s=0), SystemClock())
        long = seconds(lambda: legacy.append(sweep.sweep(LegacyOrder(TABLE), horizon)))
        left = [Catalog(store).count(TABLE).versions for store in (one, other)]
    assert left == [cells, cells], left  # noqa: S101
    assert targeted[0].range_deletes == legacy[0].counts.deleted == cells // ONE_IN, (targeted, legacy)  # noqa: S101
    return {
        "legacy_s": round(long, 2),
        "targeted_s": round(short, 2),
        "targeted_phases_s": targeted[0].document()["seconds"],
        "versions_examined_per_s": round(legacy[0].counts.versions / long),
        "ratio": round(long / short, 1),
    }


def _filled(url: str, cells: int) -> Store:
    """What was written first is old news to the queue, or older than it; what was written on top is announced."""
    settings = Settings(store=url, sqlite_durability="normal")
    initialise_store(url, settings)
    store = open_store(url, settings)
    store.create_table(TABLE, METADATA)
    queue, commits = QueueWriter(store), CommitTable(store)

    def written(start: int, some: list[Cell], announced: bool) -> None:
        values = {TABLE: dict.fromkeys(some, VALUE)}
        if announced:
            queue.enqueue(start, values, {TABLE: METADATA})
        store.put(start, values)
        commits.decide(start, start + 1)

    first = list(chunks(_rows(cells, 1), WRITES))
    again = list(chunks(_rows(cells, ONE_IN), WRITES))
    starts = iter(range(10, 10 * (len(first) + len(again) + 1), 10))
    with ThreadPoolExecutor(1 if url.startswith("sqlite") else 32) as pool:
        for some, announced in ((first, False), (again, True)):
            for done in [pool.submit(written, next(starts), each, announced) for each in some]:
                done.result()
    TimestampService(store).move_past(next(starts, 10 * (len(first) + len(again) + 2)))
    return store


def _rows(cells: int, step: int) -> Iterator[Cell]:
    return (Cell(b"%010d" % number, b"c") for number in range(0, cells, step))
