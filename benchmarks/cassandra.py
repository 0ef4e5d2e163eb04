"""Compares the Spark job on Cassandra with the fastest delete-only loop, and measures what the queue costs a writer.

The job reads the queue, looks up commits, decides, deletes, cleans and advances the progress, in Spark's workers. The
loop sends the same range deletes directly through the driver, in unlogged batches by token, with the best of several
batch sizes and depths. Both use one node on this machine, one after the other, in interleaved rounds. The start of the
job is what a bare `spark-submit` takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.cassandra import Compared, Workload, compare, initialised, rounds_of
from benchmarks.shared.goals import Goal, at_least, at_most, documents
from benchmarks.shared.spark import METADATA, TABLE, VALUE, bare_start_s, run_job
from benchmarks.shared.timing import alternately
from benchmarks.shared.writing import QueueCost
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, VersionRange
from sweep_tasks.store import Store
from sweep_tasks.tables.deletions import DeleteKind, DeleteTally
from sweep_tasks.transactions import TransactionManager

SIZES = (300_000, 1_000_000)
COUNTED = 50_000
COMMITS = 60
WRITES = (1, 10, 100)
"""Cells per transaction."""
DELETING_GOAL, WHOLE_GOAL = 0.9, 0.8
COUNTING_GOAL = 0.05
_ROUNDS = 3

Choose = Callable[[list[float]], float]


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, LocalCluster(Path(name, "node"), dies_with_parent=True) as cluster:
        deletes = {cells: _range_deletes(cluster, cells, Path(name)) for cells in sizes}
        with opened(cluster.url("counting")) as store:
            counting = measure_counting(store)
        with opened(cluster.url("writing")) as store:
            writes = [measure_writes(store, each) for each in WRITES]
    goals = [each for cells, found in deletes.items() for each in range_delete_goals(cells, found)]
    return {
        "range_deletes": [{"cells": cells} | found.document() for cells, found in deletes.items()],
        "counting": counting.document(),
        "write_path": [each.document() for each in writes],
        "goals": documents([*goals, counting.goal, *(each.goal for each in writes)]),
    }


# --- deleting -------------------------------------------------------------------------------------------------------


def older_cells(cells: int) -> Workload:
    """Every cell has one version below its queue entry."""
    return Workload(cells, times=1, older=True)


def _range_deletes(cluster: LocalCluster, cells: int, folder: Path) -> Compared:
    def url(name: str) -> str:
        return cluster.url(f"{name}_{cells}")

    compared = compare(url, older_cells(cells), run_job, lambda: bare_start_s(folder), rounds_of(cells))
    assert {run.summary.range_deletes for run in compared.runs} == {cells}, compared.runs  # noqa: S101
    return compared


def range_delete_goals(cells: int, compared: Compared) -> list[Goal]:
    what = f"a loop of {cells:,} range deletes on Cassandra, relative to"
    return [
        at_least(f"{what} the deleting of the Spark job", compared.loop_s / compared.deleting_s, DELETING_GOAL),
        at_least(f"{what} the whole job without its start", compared.loop_s / compared.without_start_s, WHOLE_GOAL),
    ]


@dataclass(frozen=True)
class Counting:
    """What a sweep pays for counting its deletes by token, beside the deletes themselves."""

    cells: int
    deleting_s: float
    counting_s: float

    @property
    def goal(self) -> Goal:
        return at_most("counting deletes by token, relative to deleting", self._ratio, COUNTING_GOAL)

    @property
    def _ratio(self) -> float:
        return self.counting_s / self.deleting_s

    def document(self) -> dict[str, Any]:
        return {
            "cells": self.cells,
            "delete_us": round(1e6 * self.deleting_s / self.cells, 2),
            "count_us": round(1e6 * self.counting_s / self.cells, 2),
            "ratio": round(self._ratio, 3),
        }


def measure_counting(store: Store, cells: int = COUNTED, choose: Choose = median) -> Counting:
    store.create_table(TABLE, METADATA)
    ranges = [VersionRange(Cell(b"%010d" % number, b"c"), 0, 10) for number in range(cells)]

    def counted() -> None:
        DeleteTally().add(TABLE, DeleteKind.RANGES, store.tokens(each.cell.row for each in ranges) or [])

    return Counting(cells, *alternately(lambda: store.delete_ranges(TABLE, ranges), counted, _ROUNDS, choose))


# --- writing --------------------------------------------------------------------------------------------------------


def measure_writes(store: Store, writes: int, commits: int = COMMITS, choose: Choose = median) -> QueueCost:
    rows = count()
    store.create_table(TABLE, METADATA)

    def committing(manager: TransactionManager) -> None:
        for _ in range(commits):
            with manager.transaction() as tx:
                tx.put_many(TABLE, {Cell(b"w%06d-%012d" % (writes, next(rows)), b"c"): VALUE for _ in range(writes)})

    settings = Settings()
    with TransactionManager(store, settings) as queued, TransactionManager(store, settings, enqueue=False) as bare:
        took = alternately(lambda: committing(queued), lambda: committing(bare), _ROUNDS, choose)
    return QueueCost("Cassandra", writes, commits, *took)


def opened(url: str) -> Store:
    return open_store(url, initialised(url))
