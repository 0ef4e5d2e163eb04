"""The Spark job of a targeted sweep, run as an operator runs it, and SQLite stores for it.

The job is a real `spark-submit` on `local[2]` with 512 MB for the driver. Its start is measured as a bare
`spark-submit` of a program that counts one row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.shared.memory import PeakMemory, sampled
from benchmarks.shared.timing import seconds
from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from spark_jobs.shard import spark_sweep
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import initialise_store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions, SweepOrder
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
METADATA = TableMetadata(SweepStrategy.THOROUGH)
ORDER = SweepOrder(METADATA.strategy, 0)
WRITES = 50
"""Cells per transaction."""
VERSIONS = 4
"""How often each cell of a SQLite store is written."""
VALUE = b"v" * 100
DRIVER_MB = 512
_WRITES_PER_TIMESTAMP = 5
"""A fine partition has 50,000 timestamps and so 250,000 entries, whatever the size of the transactions."""
_BARE = "from pyspark.sql import SparkSession\nprint(SparkSession.builder.getOrCreate().range(1).count())\n"


@dataclass(frozen=True)
class JobRun:
    """A run of the whole job."""

    seconds: float
    summary: Summary

    @property
    def phases(self) -> dict[str, float]:
        return self.summary.seconds


def run_job(url: str, options: Sequence[str] = (), memory: PeakMemory | None = None) -> JobRun:
    """Sweep a store, and check that the job did all the work. `options` are for `spark-submit`."""
    output: list[str] = []
    arguments = [*options, str(TARGETED_SWEEP), "--order", ORDER.document(), "--store", url]
    took = seconds(lambda: output.append(_submit(arguments, memory)))
    return _complete(JobRun(took, Summary.parse(json.loads(output[0].splitlines()[-1]))))


def run_in_session(session: SparkSession, url: str) -> JobRun:
    """Sweep a store in a session that is already started: the job without its start."""
    settings = load_settings(store=url)
    clock = SystemClock()
    done: list[Summary] = []
    with open_store(url, settings) as store:
        horizon = Horizon(TimestampService(store).fresh(), clock.now_ms())
        options = SweepOptions(batch=settings.spark_batch_entries)
        sweep = spark_sweep(lambda: session, store, settings, ORDER.strategy, ORDER.shard, horizon, clock, options)
        took = seconds(lambda: done.append(sweep.run()))
    return _complete(JobRun(took, done[0]))


def bare_start_s(folder: Path) -> float:
    """Return the seconds of a `spark-submit` that does nothing."""
    program = folder / "bare.py"
    program.write_text(_BARE, encoding="utf-8")
    return seconds(lambda: _submit([str(program)]))


def median_bare_start_s(folder: Path, rounds: int = 3) -> float:
    """Return the median, after one warm-up round."""
    return median([bare_start_s(folder) for _ in range(rounds + 1)][1:])


def _submit(arguments: Sequence[str], memory: PeakMemory | None = None) -> str:
    """Return the output of a `spark-submit`."""
    command = [str(spark_submit()), "--master", "local[2]", "--driver-memory", f"{DRIVER_MB}m", *arguments]
    environment = {**os.environ, **spark_environment()}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process, nullcontext() if memory is None else sampled(process.pid, memory):
        output, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"spark-submit ended with {process.returncode}: {(output + errors)[-5_000:]}")
    return output


def _complete(run: JobRun) -> JobRun:
    assert run.summary.entries, run.summary  # noqa: S101
    assert run.summary.stopped is None, run.summary  # noqa: S101
    return run


# --- SQLite stores ----------------------------------------------------------------------------------------------------


def fill_sqlite(path: Path, entries: int, writes: int = WRITES) -> Path:
    """Create a store in which every cell is written four times, in an order without a pattern."""
    settings = Settings(store=sqlite_url(path), sqlite_durability="normal")
    initialise_store(settings.store, settings)
    with open_store(settings.store, settings) as store:
        store.create_table(TABLE, METADATA)
        queue, commits = QueueWriter(store), CommitTable(store)
        cells = max(1, entries // VERSIONS)
        writes = min(writes, cells)  # a transaction writes a cell once
        for first in range(0, entries, writes):
            start = first // _WRITES_PER_TIMESTAMP + 1
            numbers = range(first, min(first + writes, entries))
            values = {TABLE: {Cell(b"%010d" % (number * 7919 % cells), b"c"): VALUE for number in numbers}}
            queue.enqueue(start, values, {TABLE: METADATA})
            store.put(start, values)
            commits.decide(start, start + 1)
        TimestampService(store).move_past(entries // _WRITES_PER_TIMESTAMP + 2)
    return path


def copied(store: Path) -> Path:
    copy = store.with_name(f"copy-{store.name}")
    remove(copy)
    shutil.copy(store, copy)
    return copy


def remove(store: Path) -> None:
    for file in store.parent.glob(f"{store.name}*"):
        file.unlink()


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
