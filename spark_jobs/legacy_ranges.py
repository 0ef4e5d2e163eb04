"""The scan of a table on Spark: each worker takes some ranges of the run and scans them one after the other.

The driver publishes, reads the table's view and the protections, and hands them out with the run; the code that scans
is the one of the sweep in process. What comes back is a row of counts for each range: where a scan stands, and the
rows and columns there, goes from the worker to the store and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.frames import ddl
from spark_jobs.store_settings import store_settings
from spark_jobs.workers import Batches, Worker, me, rows_of, schema
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.legacy.counts import Counts
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, Runs
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.legacy.scan import Ledger, Limits, Passing, Scanned, Scanner
from sweep_tasks.logs import at_work
from sweep_tasks.opening import borrowed_store

RANGES = {"worker": "string", "stopped": "string", "done": "boolean", **dict.fromkeys(Counts._fields, "long")}
_RANGES = schema(RANGES)
_ATTEMPTS = 2
_TASKS_PER_CORE = 4
"""Ranges are not all of the same size: who is done with a few small ones takes the next few."""


@dataclass(frozen=True, slots=True)
class LegacyBrief:
    store: dict[str, Any]
    """The settings that open it."""
    run: Run
    rules: TableRules
    limits: Limits
    numbers: list[int]


def work_on_spark(
    spark: Callable[[], SparkSession], sweep: LegacySweep, settings: Settings, run: Run, order: LegacyOrder
) -> LegacySummary:
    """As much of a run as the order allows. A run whose ranges are all done needs no Spark."""
    with sweep.working(run, order) as (rules, summary):
        numbers = sweep.numbers_left(run, order.dry_run)
        if not numbers:
            sweep.add_up(run, summary, [])
            return summary
        cores = max(2, spark().sparkContext.defaultParallelism)
        tasks = min(len(numbers), _TASKS_PER_CORE * cores, order.max_cells or len(numbers))
        limits = sweep.limits(order, min(cores, tasks), tasks)
        brief = LegacyBrief(_store_settings(settings), run, rules, limits, numbers)
        doing = f"{run.table}, run {run.id}: scanning {len(numbers)} of {len(run.stretches)} ranges"
        spark().sparkContext.setJobGroup(f"legacy sweep {run.id}", doing)
        frame = spark().range(0, len(numbers), 1, tasks).mapInArrow(scanning(brief), ddl(RANGES))
        rows = frame.collect()
        summary.workers = len({row.worker for row in rows})
        sweep.add_up(run, summary, [_scanned(row) for row in rows])
    return summary


def _store_settings(settings: Settings) -> dict[str, Any]:
    """A page that the store does not give in time is tried again with half as much; to ask for the same again and again
    before that only adds to what it can't keep up with."""
    found = store_settings(settings)
    return found | {"cassandra_attempts": min(_ATTEMPTS, settings.cassandra_attempts)}


def scanning(brief: LegacyBrief) -> Worker:
    """Takes a frame of numbers, each standing for a range; gives a row for each range that was worked on."""

    def scanned(batches: Batches) -> Iterator[pa.RecordBatch]:
        named = at_work(run=brief.run.id, table=str(brief.run.table))
        with named, borrowed_store(load_settings(**brief.store)) as store:
            ledger: Ledger = Passing() if brief.limits.dry_run else Runs(store)
            scanner = Scanner(store, brief.rules, ledger, brief.limits, SystemClock())
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield _row(scanner.scan(brief.run, brief.numbers[number]))

    return scanned


def _row(found: Scanned) -> pa.RecordBatch:
    row = {"worker": me(), "stopped": found.stopped, "done": found.state.done, **found.counts._asdict()}
    return rows_of(_RANGES, [row])


def _scanned(row: Any) -> Scanned:
    counts = Counts(**{name: row[name] for name in Counts._fields})
    return Scanned(RangeState(done=row.done), counts, row.stopped)
