"""The targeted sweep of one shard, as a Spark job.

    spark-submit targeted_sweep.py --order '{"strategy": "conservative", "shard": 3}'

The job reads what was queued between the shard's progress and the sweep timestamp, many fine partitions at a time. It
looks up the outcome of each transaction, keeps the versions of each cell that may still be needed, deletes the others,
cleans the queue and advances the progress. It may be killed at any moment, and two may run at once. The last line of
its output is its summary, as JSON. If there is nothing to do, there is a summary too, and no Spark is started. An error
is one sentence on stderr and an exit code; `spark-submit` prints everything that a Python driver writes on its own
stdout.

The fields of an order are those of `SweepJob`: `until` (ISO 8601), `stop_at`, `max_entries`, `max_seconds`, `dry_run`.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from spark_jobs.job import LazySpark, heartbeat, run_job
from spark_jobs.orders import SweepJob
from spark_jobs.shard import spark_sweep
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.journal.journal import Act, Journal
from sweep_tasks.journal.safeguards import record_lowered
from sweep_tasks.logs import bind_log_names, configure_logs_by_settings
from sweep_tasks.metrics.samples import tally_sweep
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.run import SweepIntent, outcome, record_sweep
from sweep_tasks.sweep.summary import IDLE, SPARK, LogEvery, Summary
from sweep_tasks.tables.activity import Activity


def main(arguments: list[str] | None = None) -> int:
    return run_job("targeted_sweep", SweepJob, sweep, arguments)


def sweep(order: SweepJob, settings: Settings) -> Summary:
    """Carry out the order and record the figures in the store. Spark is started by the first step that needs it."""
    clock = SystemClock()
    spark = LazySpark(f"targeted_sweep {order.strategy} {order.shard}")
    attempt = order.counted_under
    with acting_for(order.actor, order.reason), open_store(settings.store, settings) as store:
        if not order.dry_run:
            Progress(store).check([order.shard])  # a refused order changes nothing
            record_lowered(store, settings, clock)
        horizon = order.horizon(store, settings, clock)
        progress = LogEvery()
        options = replace(order.options(settings), batch=settings.spark_batch_entries, listener=progress)
        shard = spark_sweep(spark, store, settings, order.strategy, order.shard, horizon, clock, options)
        with _record_unless_part_of_run(order, store, settings, clock, horizon) as act:
            names = bind_log_names(run=attempt.run, strategy=order.strategy.value, shard=order.shard)
            with names, heartbeat(progress, spark.context):
                summary = shard.run()
            act.add(**outcome([summary]))
        if not order.dry_run:
            Activity(store).add(order.strategy, order.shard, shard.written)
        summary.engine = IDLE if spark.seconds is None else SPARK
        if spark.seconds is not None:
            summary.seconds["spark"] = spark.seconds
        tally_sweep(store, clock, summary, attempt)
    spark.stop()
    return summary


def _record_unless_part_of_run(
    order: SweepJob, store: Store, settings: Settings, clock: Clock, horizon: Horizon
) -> AbstractContextManager[Act]:
    """Record the sweep in the journal, unless it is a dry run, or part of a run whose entry covers it and has no
    outcome yet. A shard that is retried after that is a sweep of its own."""
    if order.dry_run or _is_recorded(order, store, settings):
        return nullcontext(Act())
    return record_sweep(store, settings, clock, {order.strategy: horizon}, [order.shard])


def _is_recorded(order: SweepJob, store: Store, settings: Settings) -> bool:
    if order.journal_entry is None:
        return False
    journal = Journal(store)
    entry = journal.entry(order.journal_entry)
    intent = None if entry is None else SweepIntent.parse(entry)
    if entry is None or intent is None or not intent.covers(settings, order.strategy, order.shard):
        return False
    return not journal.outcome_of(entry)


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
