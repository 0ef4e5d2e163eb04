"""Compares the Spark job with a loop that deletes for each entry, on a queue in which every cell was written ten times.

The job deletes all versions below the newest of a cell with one range tombstone. The loop, the fastest of
`benchmarks.cassandra`, sends a range delete for each entry, as a sweep without coalescing would. Both use one Cassandra
node on this machine, in interleaved rounds. The start of the job is what a bare `spark-submit` takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shared.cassandra import Compared, Workload, compare, rounds_of
from benchmarks.shared.goals import Goal, at_least, documents
from benchmarks.shared.spark import bare_start_s, run_job
from sweep_tasks.local.cassandra import LocalCluster

SIZES = (30_000,)
TIMES = 10
"""How often each cell is written."""
GOAL = 2


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, LocalCluster(Path(name, "node"), dies_with_parent=True) as cluster:
        compared = {cells: _compared(cluster, cells, Path(name)) for cells in sizes}
    return {
        "times": TIMES,
        "sizes": [{"cells": cells, "entries": cells * TIMES} | each.document() for cells, each in compared.items()],
        "goals": documents(goal(cells, each) for cells, each in compared.items()),
    }


def goal(cells: int, compared: Compared) -> Goal:
    return at_least(
        f"a loop of {cells * TIMES:,} range deletes for {cells:,} cells, relative to the whole job without its start",
        compared.loop_s / compared.without_start_s,
        GOAL,
    )


def overwritten_cells(cells: int) -> Workload:
    return Workload(cells, TIMES)


def _compared(cluster: LocalCluster, cells: int, folder: Path) -> Compared:
    def url(name: str) -> str:
        return cluster.url(f"{name}_{cells}")

    workload = overwritten_cells(cells)
    compared = compare(url, workload, run_job, lambda: bare_start_s(folder), rounds_of(workload.entries))
    done = {(run.summary.entries, run.summary.range_deletes) for run in compared.runs}
    assert done == {(workload.entries, cells)}, done  # noqa: S101
    return compared
