"""The sweep of one table by scanning it, as a Spark job.

    spark-submit legacy_sweep.py --order '{"table": "shop.orders"}'

The job examines every version of the table, without its value, and deletes the versions that no reader can see: for
data that was written before there was a queue, and for tables whose strategy was changed. The ranges are fixed when the
run starts, and the position in each range is in the store. So the job may be killed at any moment. The same order
resumes the run once no other process works on it; with `"start": "resume"` it does not wait for that. The progress is
logged every few seconds. The last line of the output is the summary, as JSON; an error is one sentence on stderr and an
exit code.

The fields of an order are those of `ScanJob`: `start`, `stop_at`, `from_row` (hexadecimal), `ranges`, `batch`,
`max_cells`, `max_seconds`, `dry_run`.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import sys

import structlog

from spark_jobs.job import LazySpark, heartbeat, run_job
from spark_jobs.legacy_ranges import work_on_spark
from spark_jobs.orders import ScanJob, Start
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.legacy.progress import Run, ScanLog
from sweep_tasks.legacy.resumption import decide_start, start_run
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.logs import bind_log_names, configure_logs_by_settings
from sweep_tasks.metrics.samples import tally_scan
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.summary import IDLE, SPARK

log = structlog.get_logger(__name__)


def main(arguments: list[str] | None = None) -> int:
    return run_job("legacy_sweep", ScanJob, sweep, arguments)


def sweep(order: ScanJob, settings: Settings) -> LegacySummary:
    """Carry out the order and record the figures in the store. Spark is started by the first step that needs it."""
    clock = SystemClock()
    spark = LazySpark(f"legacy_sweep {order.table}")
    with acting_for(order.actor, order.reason), open_store(settings.store, settings) as store:
        legacy = LegacySweep(store, settings, clock, order.owner)
        run = _start(store, settings, legacy, order)
        with bind_log_names(run=run.id, table=str(order.table)):
            log.info("scan started", attempt=run.attempt, sweep_ts=run.horizon.sweep_ts, ranges=len(run.scan_ranges))
            with heartbeat(ScanLog(store, run, order.dry_run), spark.context):
                summary = work_on_spark(spark, legacy, settings, run, order)
        summary.engine = IDLE if spark.seconds is None else SPARK
        if spark.seconds is not None:
            summary.seconds["spark"] = spark.seconds
            summary.seconds["scan"] -= spark.seconds
        tally_scan(store, clock, summary, order.counted_under)
    spark.stop()
    return summary


def _start(store: Store, settings: Settings, legacy: LegacySweep, order: ScanJob) -> Run:
    """Start or resume the run. `RESUME` and `TAKE_OVER` do not check whether another process works on it."""
    if order.start is Start.RESUME:
        return legacy.resume(order.table)
    if order.start is Start.TAKE_OVER:
        return legacy.start(order, take_over=True, run_id=order.run_id)
    how, existing = decide_start(
        store,
        settings,
        SystemClock(),
        order,
        restart=order.start is Start.RESTART,
        owner=legacy.owner,
        scheduled=order.scheduled,
    )
    return start_run(legacy, order, how, existing, order.run_id)


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
