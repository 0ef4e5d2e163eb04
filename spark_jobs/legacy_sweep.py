"""The sweep of one table by scanning it, as a Spark job.

    spark-submit legacy_sweep.py --table shop.orders

examines every version of the table, without its value, and deletes what nobody can see any more: for data that was
written before there was a queue, and for tables that change their strategy. The ranges it works through are fixed when
it begins, and how far each is stands in the store: it may be killed at any moment, and `--resume` goes on from there.
The last line it prints is its summary, as JSON; an error is one sentence on stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import sys
from pathlib import Path
from typing import Any

from spark_jobs.job import reported
from spark_jobs.legacy_ranges import work_on_spark
from spark_jobs.session import LazySpark
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.logs import configure_logs_by_settings
from sweep_tasks.model import TableRef
from sweep_tasks.opening import open_store


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)

    def swept() -> dict[str, Any]:
        settings = load_settings(**({"store": given.store} if given.store else {}))
        return sweep(_order(given), settings, given.resume, given.take_over, given.owner)

    return reported(swept, given.summary)


def sweep(
    order: LegacyOrder, settings: Settings, resume: bool = False, take_over: bool = False, owner: str | None = None
) -> dict[str, Any]:
    """Spark is started by the first step that needs it."""
    spark = LazySpark(f"legacy_sweep {order.table}")
    with open_store(settings.store, settings) as store:
        legacy = LegacySweep(store, settings, SystemClock(), owner)
        run = legacy.resume(order.table) if resume else legacy.start(order, take_over=take_over)
        summary: LegacySummary = work_on_spark(spark, legacy, settings, run, order)
    if spark.seconds is not None:
        summary.seconds["spark"] = spark.seconds
        summary.seconds["scan"] -= spark.seconds
        spark().stop()
    return summary.document() | {"engine": "idle" if spark.seconds is None else "spark"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="legacy_sweep.py", description="Sweep one table by scanning it.")
    parser.add_argument("--table", required=True, metavar="NAME")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", action="store_true", help="go on with the run of the table that is not finished")
    start.add_argument("--take-over", action="store_true", help="begin anew, even if a run is under way")
    parser.add_argument("--stop-at", type=int, metavar="TIMESTAMP", help="go no further than this")
    parser.add_argument("--from-row", default="", metavar="HEX", help="begin at this row, in the store's own order")
    parser.add_argument("--ranges", type=int, default=0, help="scan the table in so many; 0: as the settings say")
    parser.add_argument("--batch", type=int, default=0, help="versions at a time; 0: as the settings say")
    parser.add_argument("--max-cells", type=int, default=0, help="stop after so many cells; 0: no limit")
    parser.add_argument("--max-seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--dry-run", action="store_true", help="count what would be removed, remove nothing")
    parser.add_argument("--owner", metavar="NAME", help="who is told to others that want to sweep the table")
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
