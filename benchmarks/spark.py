"""Compares the Spark job with the in-process sweep, and measures its cost when there is little or nothing to do.

Both sweep the same SQLite store, filled the same way: every cell is written four times. `without_start` is the job
without a bare `spark-submit`. On one machine with one SQLite writer, Spark is not expected to be faster: it is meant
for several machines and bounded memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.goals import Goal, at_most, documents
from benchmarks.shared.spark import ORDER, bare_start_s, copied, fill_sqlite, run_job, sqlite_url
from benchmarks.shared.timing import alternately, seconds
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.sweep.run import Sweeper, sweep_idle

SIZES = (1_000_000,)
TRIVIAL = 100
GOAL = 1.5


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trivial = fill_sqlite(folder / "trivial.db", TRIVIAL)
        start = _trivial_job(folder, trivial)
        return {
            "trivial": start,
            "sizes": [_compared(folder, entries, start["bare_s"]) for entries in sizes],
            "idle_s": round(_idle(copied(trivial)), 4),
            "goals": documents([trivial_goal(start["job_s"] / start["bare_s"])]),
        }


def trivial_goal(ratio: float) -> Goal:
    return at_most(f"a Spark job for {TRIVIAL} entries, relative to a bare spark-submit", ratio, GOAL)


def _trivial_job(folder: Path, store: Path, rounds: int = 3) -> dict[str, Any]:
    ours, theirs = alternately(lambda: run_job(sqlite_url(copied(store))), lambda: bare_start_s(folder), rounds=rounds)
    return {"entries": TRIVIAL, "job_s": round(ours, 2), "bare_s": round(theirs, 2), "ratio": round(ours / theirs, 2)}


def _compared(folder: Path, entries: int, start_s: float) -> dict[str, Any]:
    store = fill_sqlite(folder / f"{entries}.db", entries)
    run = run_job(sqlite_url(copied(store)))
    engine = _in_process(copied(store))
    return {
        "entries": entries,
        "job_s": round(run.seconds, 1),
        "without_start_s": round(run.seconds - start_s, 1),
        "in_process_s": round(engine, 2),
        "ratio": round(run.seconds / engine, 2),
        "ratio_without_start": round((run.seconds - start_s) / engine, 2),
        "phases_s": run.phases,
    }


def _in_process(store: Path) -> float:
    settings = load_settings(store=sqlite_url(store))
    with open_store(settings.store, settings) as opened:
        sweeper = Sweeper(opened, settings, SystemClock())
        return seconds(lambda: list(sweeper.sweep([ORDER.strategy], [ORDER.shard])))


def _idle(store: Path) -> float:
    """Sweep a shard again that is already swept: the whole cost of such a task besides Airflow."""
    _in_process(store)
    settings = load_settings(store=sqlite_url(store))
    with open_store(settings.store, settings) as opened:
        return median(seconds(lambda: _checked(sweep_idle(opened, settings, SystemClock(), ORDER))) for _ in range(3))


def _checked(summary: object) -> None:
    assert summary is not None  # noqa: S101
