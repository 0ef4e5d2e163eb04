"""A consistent copy of tables at one timestamp, as Parquet: all of it, or what has changed since an earlier export.

    spark-submit snapshot_export.py --tables 'shop.*' --at 1200 --to /backups/1200 --since /backups/900

The timestamp must be protected, or not yet swept; sweeping and writing go on meanwhile. Workers read the tables, a
stretch each; the driver sees no cell. What it leaves is an export once its manifest is there, and nothing before: a job
may be killed at any moment and run again. The last line it prints is its summary, as JSON; an error is one sentence on
stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs import export_frames as frames
from spark_jobs.export_workers import ExportBrief, Part, reading
from spark_jobs.exports import (
    Export,
    Manifest,
    Written,
    as_folder,
    chain,
    data_of,
    draft,
    find_export,
    manifest_of,
)
from spark_jobs.frames import ddl
from spark_jobs.job import reported
from spark_jobs.session import LazySpark, for_large_frames
from spark_jobs.store_settings import store_settings
from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, OtherExport, UnknownTable
from sweep_tasks.logs import configure_logs_by_settings
from sweep_tasks.model import EVERYTHING, TableRef
from sweep_tasks.opening import open_store
from sweep_tasks.protection.targets import Target
from sweep_tasks.store.contract import Store
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.whole_files import write_whole

_CELLS_PER_FILE = 5_000_000


class ExportOrder(NamedTuple):
    tables: tuple[str, ...]
    """Names, or patterns with `*`."""
    at: int
    to: Path
    since: Path | None = None


def main(arguments: list[str] | None = None) -> int:
    given = argument_parser().parse_args(arguments)

    def exported() -> dict[str, Any]:
        settings = load_settings(**({"store": given.store} if given.store else {}))
        spark = LazySpark(f"snapshot_export {given.at}")
        summary = export(_order(given), settings, spark)
        if spark.seconds is not None:
            summary["seconds"]["spark"] = spark.seconds
            spark().stop()
        return summary

    return reported(exported, given.summary)


def export(order: ExportOrder, settings: Settings, spark: Callable[[], SparkSession]) -> dict[str, Any]:
    """The summary. An export that is there already, of the same order, is not made again."""
    finished = _finished(order)
    if finished:
        return _summary(finished, {}, made=False)
    before = chain(order.since) if order.since else []
    if before and before[-1].manifest.ts > order.at:
        problem = f"{order.since} is of {before[-1].manifest.ts}, which is later than {order.at}"
        raise BadValue("since", problem, reason="too_late")
    seconds: dict[str, float] = {}
    with draft(order.to) as folder:
        manifest = _made(order, before, settings, spark, folder, seconds)
        write_whole(manifest_of(folder), f"{json.dumps(manifest.document(), indent=2)}\n")
    return _summary(Export(order.to, manifest), seconds, made=True)


def _made(
    order: ExportOrder,
    before: list[Export],
    settings: Settings,
    spark: Callable[[], SparkSession],
    folder: Path,
    seconds: dict[str, float],
) -> Manifest:
    """What belongs to the export that now lies in the folder."""
    with open_store(settings.store, settings) as store:
        tables = _chosen(store, order.tables)
        _check_readable(store, settings, tables, order.at)
        session = for_large_frames(spark())
        parts = _parts(store, tables, _tasks(session))
    with _timed(seconds, "writing"):
        now = _cells(session, ExportBrief(store_settings(settings), order.at, parts))
        _write(_new_or_changed(session, now, before, tables), folder)
    with _timed(seconds, "counting"):
        counts = frames.counts_by_table(frames.written(session, data_of(folder)))
    since = os.path.relpath(order.since, order.to) if order.since else None
    in_order = {str(table): counts.get(str(table), Written(0, 0)) for table in sorted(tables)}
    return Manifest(order.at, order.tables, in_order, since)


# --- what is asked for ----------------------------------------------------------------------------------------------


def _finished(order: ExportOrder) -> Export | None:
    found = find_export(order.to)
    if found is None:
        return None
    if (found.manifest.ts, found.manifest.chosen, found.base) != (order.at, order.tables, order.since):
        raise OtherExport(order.to, found.manifest.ts)
    return found


def _chosen(store: Store, names: tuple[str, ...]) -> set[TableRef]:
    """Those that exist; one that is named and does not exist is an error, as is a pattern that matches none."""
    existing = Catalog(store).list()
    found: set[TableRef] = set()
    for name in names:
        target = Target.parse(name)
        if target.rows != EVERYTHING:
            problem = f"{target.table}: whole tables are exported, not some of their rows"
            raise BadValue("tables", problem, reason="has_rows")
        matching = target.among(existing)
        if not matching:
            raise UnknownTable(target.table)
        found |= matching
    return found


def _check_readable(store: Store, settings: Settings, tables: set[TableRef], at: int) -> None:
    """Before a session is started for nothing. Each page is checked again after it was read."""
    with TransactionManager(store, settings, enqueue=False, renew_leases=False) as manager:
        snapshot = manager.read_at(at)
        for table in sorted(tables):
            snapshot.check_readable(table)


def _parts(store: Store, tables: set[TableRef], tasks: int) -> list[Part]:
    """As many for each table as there are tasks: who is done with a small one goes on with the next."""
    return [Part(str(table), each) for table in sorted(tables) for each in store.stretches(table, tasks)]


# --- frames ---------------------------------------------------------------------------------------------------------


def _cells(spark: SparkSession, brief: ExportBrief) -> DataFrame:
    """Neighbouring parts in one task, so that a task writes few files, however many tables there are."""
    parts = len(brief.parts)
    numbers = spark.range(0, parts, 1, min(parts, _tasks(spark)))
    return numbers.mapInArrow(reading(brief), ddl(frames.CELLS))


def _new_or_changed(spark: SparkSession, now: DataFrame, before: list[Export], tables: set[TableRef]) -> DataFrame:
    if not before:
        return frames.all_new(now)
    earlier = frames.cells_of(spark, before).where(frames.one_of([str(table) for table in tables]))
    return frames.few_files(frames.changes(earlier, now))


def _write(changes: DataFrame, folder: Path) -> None:
    in_order = changes.sortWithinPartitions(*frames.CELL)
    writer = in_order.write.mode("overwrite").partitionBy("table").option("maxRecordsPerFile", _CELLS_PER_FILE)
    writer.parquet(str(data_of(folder)))


def _tasks(spark: SparkSession) -> int:
    return 2 * max(2, spark.sparkContext.defaultParallelism)


# --- the summary and the arguments ----------------------------------------------------------------------------------


def _summary(export: Export, seconds: dict[str, float], *, made: bool) -> dict[str, Any]:
    manifest = export.manifest
    return {
        "kind": manifest.kind,
        "ts": manifest.ts,
        "folder": str(export.folder),
        "since": manifest.since,
        "tables": {table: written._asdict() for table, written in manifest.tables.items()},
        "puts": sum(written.puts for written in manifest.tables.values()),
        "deletes": sum(written.deletes for written in manifest.tables.values()),
        "files": sum(1 for _ in export.data.rglob("*.parquet")),
        "made": made,
        "seconds": seconds,
    }


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - began


def _order(given: argparse.Namespace) -> ExportOrder:
    tables = tuple(each.strip() for each in given.tables.split(",") if each.strip())
    if not tables:
        raise BadValue("tables", "names none; write names or patterns, separated by commas", reason="empty")
    since = as_folder(given.since, "since") if given.since else None
    return ExportOrder(tables, given.at, as_folder(given.to, "to"), since)


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="snapshot_export.py", description="Export tables as of one timestamp.")
    parser.add_argument("--tables", required=True, metavar="NAMES", help="tables and patterns, separated by commas")
    parser.add_argument("--at", required=True, type=int, metavar="TIMESTAMP", help="one that is protected")
    parser.add_argument("--to", required=True, metavar="FOLDER", help="where the export goes; new, or empty")
    parser.add_argument("--since", metavar="FOLDER", help="an earlier export; only what has changed is written then")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there as well")
    parser.add_argument("--store", metavar="URL", help="the setting SWEEPFLOW_STORE if not given")
    return parser


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
