"""Measures how the time and the memory of the whole Spark job grow with the queue, on SQLite.

Every cell is written four times, in transactions of 1,000 writes. Sizes are measured in interleaved rounds; the largest
has one round. `without_start_s` is the time without a bare `spark-submit`, and `without_session_s` the time without the
start of the session only, which the job reports itself. Growth is the ratio of two such times, divided by the ratio of
the sizes: 1 is linear.

The driver has a heap of 512 MB, and each Python worker an address space of that size, which the kernel enforces. A
worker's resident memory is a part of its address space. Peak resident memory is read from the kernel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.goals import Goal, at_most, documents
from benchmarks.shared.memory import PeakMemory
from benchmarks.shared.spark import (
    DRIVER_MB,
    JobRun,
    copied,
    fill_sqlite,
    median_bare_start_s,
    remove,
    run_job,
    sqlite_url,
)

SIZES = (100_000, 1_000_000, 10_000_000)
WRITES = 1_000
"""Cells per transaction."""
GOAL = 1.1
WORKER_MB = 512
_OPTIONS = {
    "spark.executor.pyspark.memory": f"{WORKER_MB}m",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
}
"""Arrow's usual allocator reserves a gibibyte of addresses with its first array, which it hardly uses."""
LIMIT = [word for name, value in _OPTIONS.items() for word in ("--conf", f"{name}={value}")]
_ROUNDS = 3
_AFFORDABLE = 3_000_000
"""Entries that are swept for one size, over all its rounds."""


@dataclass(frozen=True)
class Measured:
    """One run of the job."""

    run: JobRun
    memory: PeakMemory


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {entries: fill_sqlite(folder / f"{entries}.db", entries, WRITES) for entries in sizes}
        start_s = median_bare_start_s(folder)
        runs: dict[int, list[Measured]] = {entries: [] for entries in sizes}
        for entries in _interleaved(sizes):
            runs[entries].append(_measured(stores[entries], entries))
    rows = [_row(entries, found, start_s) for entries, found in runs.items()]
    return {
        "bare_start_s": round(start_s, 2),
        "driver_limit_mb": DRIVER_MB,
        "worker_limit_mb": WORKER_MB,
        "sizes": rows,
        "growth": [_growth(*pair) for pair in pairwise(rows)],
        "goals": documents(goals(rows)),
    }


def goals(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    growth = [
        growth_goal(small["entries"], small["without_start_s"], large["entries"], large["without_start_s"])
        for small, large in pairwise(rows)
    ]
    return [*growth, *(memory_goal(row["entries"], row["memory"]["worker_mb"]) for row in rows)]


def growth_goal(small: int, small_s: float, large: int, large_s: float) -> Goal:
    what = f"time of the whole job, {small:,} to {large:,} entries, relative to linear growth"
    return at_most(what, large_s / small_s / (large / small), GOAL)


def memory_goal(entries: int, worker_mb: float) -> Goal:
    what = f"peak memory of a Python worker for {entries:,} entries, relative to {WORKER_MB} MB"
    return at_most(what, worker_mb / WORKER_MB, 1)


def rounds_of(entries: int) -> int:
    return max(1, min(_ROUNDS, _AFFORDABLE // entries))


def _interleaved(sizes: Sequence[int]) -> Iterator[int]:
    for number in range(_ROUNDS):
        yield from (entries for entries in sizes if number < rounds_of(entries))


def _measured(store: Path, entries: int) -> Measured:
    """Sweep a copy. A store that is swept only once needs none."""
    swept = copied(store) if rounds_of(entries) > 1 else store
    memory = PeakMemory()
    run = run_job(sqlite_url(swept), LIMIT, memory)
    assert run.summary.entries == entries, run.summary  # noqa: S101
    assert limit_is_enforced(memory), f"the limit of a worker is not enforced: {memory.limits}"  # noqa: S101
    remove(swept)
    return Measured(run, memory)


def limit_is_enforced(memory: PeakMemory) -> bool:
    return set(memory.limits.values()) == {WORKER_MB * 1024**2}


def _row(entries: int, found: Sequence[Measured], start_s: float) -> dict[str, Any]:
    """Return the run with the median time, and the peaks of all runs."""
    middle = sorted(found, key=lambda each: each.run.seconds)[len(found) // 2].run
    peaks = [each.memory.document() for each in found]
    return {
        "entries": entries,
        "rounds_s": [round(each.run.seconds, 1) for each in found],
        "job_s": round(middle.seconds, 1),
        "without_start_s": round(median(each.run.seconds for each in found) - start_s, 2),
        "without_session_s": round(median(each.run.seconds - each.run.phases["spark"] for each in found), 2),
        "phases_s": middle.phases,
        "memory": {
            "java_mb": max(each["java_mb"] for each in peaks),
            "driver_mb": max(each["driver_mb"] for each in peaks),
            "worker_mb": max(peak for each in peaks for peak in each["workers_mb"]),
            "workers": max(len(each["workers_mb"]) for each in peaks),
        },
    }


def _growth(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    return {
        "entries": [small["entries"], large["entries"]],
        "relative_to_linear": round(_relative_to_linear(small, large, "without_start_s"), 2),
        "relative_to_linear_with_java": round(_relative_to_linear(small, large, "without_session_s"), 2),
    }


def _relative_to_linear(small: dict[str, Any], large: dict[str, Any], name: str) -> float:
    return float(large[name] / small[name] / (large["entries"] / small["entries"]))
