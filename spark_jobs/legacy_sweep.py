"""The sweep of one table by scanning it, as a Spark job.

    spark-submit legacy_sweep.py --table shop.orders

examines every version of the table, without its value, and deletes what nobody can see any more: for data that was
written before there was a queue, and for tables that change their strategy. The ranges it works through are fixed when
it begins, and how far each is stands in the store: it may be killed at any moment, and the same command goes on from
there, once nobody is at work on the run any more; `--resume` does not ask. While it works it says every few seconds how
far it is. The last line it prints is its summary, as JSON; an error is one sentence on stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from spark_jobs import trying
from spark_jobs.job import reported
from spark_jobs.legacy_ranges import work_on_spark
from spark_jobs.pulse import pulse
from spark_jobs.session import LazySpark
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Run
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.legacy.taking_up import begun, looked_at
from sweep_tasks.legacy.watching import ScanLog
from sweep_tasks.logs import at_work, configure_logs_by_settings
from sweep_tasks.model import TableRef
from sweep_tasks.observation.entering import enter_scan
from sweep_tasks.observation.tally import Try
from sweep_tasks.opening import open_store
from sweep_tasks.store.contract import Store

log = structlog.get_logger(__name__)


class Beginning(NamedTuple):
    """How a run is begun or gone on with, and under which name."""

    resume: bool = False
    take_over: bool = False
    anew: bool = False
    owner: str | None = None
    run_id: str | None = None
    by_turns: bool = False


def main(arguments: list[str] | None = None) -> int:
    given = argument_parser().parse_args(arguments)

    def swept() -> dict[str, Any]:
        settings = load_settings(**({"store": given.store} if given.store else {}))
        begin = Beginning(given.resume, given.take_over, given.anew, given.owner, given.run_id, given.by_turns)
        by = trying.counted_as(given.counted_as, Try("spark-submit", uuid.uuid4().hex, f"legacy-sweep {given.table}"))
        return sweep(_order(given), settings, begin, by)

    return reported(swept, given.summary)


def sweep(order: LegacyOrder, settings: Settings, begin: Beginning, by: Try) -> dict[str, Any]:
    """Spark is started by the first step that needs it. What was done is entered in the store under `by`."""
    clock = SystemClock()
    spark = LazySpark(f"legacy_sweep {order.table}")
    with open_store(settings.store, settings) as store:
        legacy = LegacySweep(store, settings, clock, begin.owner)
        run = _run(store, settings, legacy, order, begin)
        with at_work(run=run.id, table=str(order.table)):
            log.info("a scan", attempt=run.attempt, sweep_ts=run.horizon.sweep_ts, ranges=len(run.stretches))
            with pulse(ScanLog(store, run, order.dry_run), spark.context):
                summary: LegacySummary = work_on_spark(spark, legacy, settings, run, order)
        if spark.seconds is not None:
            summary.seconds["spark"] = spark.seconds
            summary.seconds["scan"] -= spark.seconds
        document = summary.document() | {"engine": "idle" if spark.seconds is None else "spark"}
        enter_scan(store, clock, document, by)
    if spark.seconds is not None:
        spark().stop()
    return document


def _run(store: Store, settings: Settings, legacy: LegacySweep, order: LegacyOrder, begin: Beginning) -> Run:
    """Who says `--resume` or `--take-over` has looked for himself who is at work."""
    if begin.resume:
        return legacy.resume(order.table)
    if begin.take_over:
        return legacy.start(order, take_over=True, run_id=begin.run_id)
    how, standing = looked_at(
        store, settings, SystemClock(), order, anew=begin.anew, owner=legacy.owner, by_turns=begin.by_turns
    )
    return begun(legacy, order, how, standing, begin.run_id)


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="legacy_sweep.py", description="Sweep one table by scanning it.")
    parser.add_argument("--table", required=True, metavar="NAME")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--resume", action="store_true", help="go on with the run of the table, whoever is at work on it"
    )
    start.add_argument("--take-over", action="store_true", help="begin anew, even if a run is under way")
    start.add_argument("--anew", action="store_true", help="begin anew, even if a run could be gone on with")
    parser.add_argument("--stop-at", type=int, metavar="TIMESTAMP", help="go no further than this")
    parser.add_argument("--from-row", default="", metavar="HEX", help="begin at this row, in the store's own order")
    parser.add_argument("--ranges", type=int, default=0, help="scan the table in so many; 0: as the settings say")
    parser.add_argument("--batch", type=int, default=0, help="versions at a time; 0: as the settings say")
    parser.add_argument("--max-cells", type=int, default=0, help="stop after so many cells; 0: no limit")
    parser.add_argument("--max-seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--dry-run", action="store_true", help="count what would be removed, remove nothing")
    parser.add_argument(
        "--by-turns", action="store_true", help="drop a run of other rows, and leave one that was cancelled alone"
    )
    parser.add_argument("--owner", metavar="NAME", help="who is told to others that want to sweep the table")
    parser.add_argument("--run-id", metavar="ID", help="of a run that is begun; some other if not given")
    trying.add_argument(parser)
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there as well")
    parser.add_argument("--store", metavar="URL", help="the setting SWEEPFLOW_STORE if not given")
    return parser


def _order(given: argparse.Namespace) -> LegacyOrder:
    try:
        from_row = bytes.fromhex(given.from_row)
    except ValueError:
        raise BadValue("from_row", "is not a row in hex") from None
    return LegacyOrder(
        TableRef.parse(given.table),
        given.stop_at,
        from_row,
        given.ranges,
        given.max_cells,
        given.max_seconds,
        given.batch,
        given.dry_run,
    )


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
