"""One shard's targeted sweep, as a Spark job.

    spark-submit targeted_sweep.py --strategy conservative --shard 3

reads what was queued between the shard's progress and the sweep timestamp, many fine partitions at a time, asks how
each transaction ended, keeps of each cell what may still be needed, deletes the rest, cleans the queue and moves the
progress. It may be killed at any moment and run twice at once. The last line it prints is its summary, as JSON; nothing
to do is a summary too, and no Spark is started for it. An error is one sentence on stderr, which `spark-submit` brings
out on its stdout like everything a Python driver says, and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pendulum

from spark_jobs import trying
from spark_jobs.job import reported
from spark_jobs.pulse import pulse
from spark_jobs.session import LazySpark
from spark_jobs.shard import SparkShardSweep
from sweep_tasks.clock import SystemClock, to_ms
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.logs import at_work, configure_logs_by_settings
from sweep_tasks.model import SweepStrategy
from sweep_tasks.observation.entering import enter_sweep
from sweep_tasks.observation.tally import Try
from sweep_tasks.opening import open_store
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.sweep.activity import Activity
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.sweep.watching import LogEvery


def main(arguments: list[str] | None = None) -> int:
    given = argument_parser().parse_args(arguments)

    def swept() -> dict[str, Any]:
        settings = load_settings(**({"store": given.store} if given.store else {}))
        alone = Try("spark-submit", uuid.uuid4().hex, f"{given.strategy}.shard_{given.shard}")
        return sweep(_order(given), settings, trying.counted_as(given.counted_as, alone))

    return reported(swept, given.summary)


def sweep(order: SweepOrder, settings: Settings, by: Try) -> dict[str, Any]:
    """Spark is started by the first step that needs it. What was done is entered in the store under `by`."""
    clock = SystemClock()
    spark = LazySpark(f"targeted_sweep {order.strategy} {order.shard}")
    with open_store(settings.store, settings) as store:
        horizon = order.horizon(store, settings, clock)
        log = LogEvery()
        options = replace(order.options(settings), batch=settings.spark_batch_entries, watch=log)
        shard = SparkShardSweep(spark, store, settings, order.strategy, order.shard, horizon, clock, options)
        with at_work(run=by.run, strategy=order.strategy.value, shard=order.shard), pulse(log, spark.context):
            summary: Summary = shard.run()
        if not order.dry_run:
            Activity(store).add(order.strategy, order.shard, shard.written)
        if spark.seconds is not None:
            summary.seconds["spark"] = spark.seconds
        document = summary.document() | {"engine": "idle" if spark.seconds is None else "spark"}
        enter_sweep(store, clock, document, by)
    if spark.seconds is not None:
        spark().stop()
    return document


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="targeted_sweep.py", description="Sweep one shard of one strategy.")
    parser.add_argument("--strategy", required=True, choices=[strategy.value for strategy in QUEUES])
    parser.add_argument("--shard", required=True, type=int)
    parser.add_argument("--until", metavar="TIME", help="the end of the run's interval, ISO 8601; now if not given")
    parser.add_argument("--stop-at", type=int, metavar="TIMESTAMP", help="go no further than this")
    parser.add_argument("--max-entries", type=int, default=0, help="stop after so many entries; 0: no limit")
    parser.add_argument("--max-seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--dry-run", action="store_true", help="count what would be removed, remove nothing")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there as well")
    trying.add_argument(parser)
    parser.add_argument("--store", metavar="URL", help="the setting SWEEPFLOW_STORE if not given")
    return parser


def _order(given: argparse.Namespace) -> SweepOrder:
    return SweepOrder(
        SweepStrategy(given.strategy),
        given.shard,
        _moment(given.until) if given.until else None,
        given.stop_at,
        given.max_entries,
        given.max_seconds,
        given.dry_run,
    )


def _moment(text: str) -> int:
    try:
        moment = pendulum.parse(text)
    except ValueError:
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        raise BadValue("until", f"{text[:40]!r} is not a time; write it like 2026-01-31T10:00:00+00:00")
    return to_ms(moment)


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
