"""The scan of a table on Spark: each worker scans some ranges of the run, one after the other.

The driver publishes, reads the table's view and the protections, and sends them with the run; the code that scans is
that of the in-process sweep. A row of counts comes back for each range. The position of a scan, with its row and
column, is stored by the worker and sent nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.batches import rows_of
from spark_jobs.frames import arrow_schema, ddl
from spark_jobs.store_settings import WorkerStoreSettings
from spark_jobs.worker_errors import Batches, Worker, report_errors
from spark_jobs.workers import worker_name
from sweep_tasks import retries
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, Runs
from sweep_tasks.legacy.rules import ScanCounts, TableRules
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.legacy.scan import MemoryLedger, ScanLedger, ScanLimits, Scanned, Scanner
from sweep_tasks.logs import bind_log_names

RANGES = {"worker": "string", "stopped": "string", "done": "boolean", **dict.fromkeys(ScanCounts._fields, "long")}
_RANGES = arrow_schema(RANGES)
_TASKS_PER_CORE = 4
"""Ranges differ in size: a core that is done with a few small ones takes the next few."""


@dataclass(frozen=True, slots=True)
class ScanContext:
    store: WorkerStoreSettings
    run: Run
    rules: TableRules
    limits: ScanLimits
    numbers: list[int]


def work_on_spark(
    spark: Callable[[], SparkSession], sweep: LegacySweep, settings: Settings, run: Run, order: LegacyOrder
) -> LegacySummary:
    """Carry out as much of a run as the order allows. A run whose ranges are all done needs no Spark."""
    with sweep.open_run(run, order) as (rules, summary):
        numbers = sweep.numbers_left(run, order.dry_run)
        if not numbers:
            sweep.add_up(run, summary, [])
            return summary
        cores = max(2, spark().sparkContext.defaultParallelism)
        tasks = min(len(numbers), _TASKS_PER_CORE * cores, order.max_cells or len(numbers))
        limits = sweep.limits(order, min(cores, tasks), tasks)
        context = ScanContext(_store_settings(settings), run, rules, limits, numbers)
        doing = f"{run.table}, run {run.id}: scanning {len(numbers)} of {len(run.scan_ranges)} ranges"
        spark().sparkContext.setJobGroup(f"legacy sweep {run.id}", doing)
        frame = spark().range(0, len(numbers), 1, tasks).mapInArrow(scanning(context), ddl(RANGES))
        rows = frame.collect()
        summary.workers = len({row.worker for row in rows})
        sweep.add_up(run, summary, [_scanned(row) for row in rows])
    return summary


def _store_settings(settings: Settings) -> WorkerStoreSettings:
    """Return the store settings with few attempts. A page that times out is retried with half its size; repeating the
    same request before that only adds to the load."""
    attempts = min(retries.SCANNED_RANGE.attempts, settings.cassandra_attempts)
    return WorkerStoreSettings.of(settings.model_copy(update={"cassandra_attempts": attempts}))


def scanning(context: ScanContext) -> Worker:
    """Return a worker for a frame of numbers, each the index of a range. It yields a row for each range."""

    @report_errors
    def scan(batches: Batches) -> Iterator[pa.RecordBatch]:
        named = bind_log_names(run=context.run.id, table=str(context.run.table))
        with named, context.store.borrow_store() as store:
            ledger: ScanLedger = MemoryLedger() if context.limits.dry_run else Runs(store)
            scanner = Scanner(store, context.rules, ledger, context.limits, SystemClock())
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield _row(scanner.scan(context.run, context.numbers[number]))

    return scan


def _row(found: Scanned) -> pa.RecordBatch:
    row = {"worker": worker_name(), "stopped": found.stopped, "done": found.state.done, **found.counts._asdict()}
    return rows_of(_RANGES, [row])


def _scanned(row: Any) -> Scanned:
    counts = ScanCounts(**{name: row[name] for name in ScanCounts._fields})
    return Scanned(RangeState(done=row.done), counts, row.stopped)
