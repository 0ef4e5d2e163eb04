"""A consistent snapshot of tables at one timestamp, as Parquet: all cells, or the changes since an earlier export.

    spark-submit snapshot_export.py \\
        --order '{"tables": ["shop.*"], "at": 1200, "to": "/backups/1200", "since": "/backups/900"}'

The timestamp must be protected, or not yet swept; sweeping and writing continue meanwhile. Each worker reads ranges of
the tables; the driver sees no cell. A folder is an export once its manifest exists, and not before: a job may be killed
at any moment and run again. When the job succeeds, the export is on disk and the protection may be released. The last
line of the output is the summary, as JSON; an error is one sentence on stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent
from sweep_tasks.errors import AlreadyExists

if __name__ == "__main__":
    die_with_parent()

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs import export_frames as frames
from spark_jobs.export_frames import ExportContext, ExportPart, reading
from spark_jobs.frames import ddl
from spark_jobs.job import LazySpark, for_large_frames, run_job
from spark_jobs.orders import ExportOrder, ExportSummary
from spark_jobs.store_settings import WorkerStoreSettings
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import BadValue, SnapshotSwept, UnknownTable
from sweep_tasks.export.files import (
    Export,
    ExportedCells,
    Manifest,
    chain,
    data_of,
    draft,
    find_export,
    sync_export,
    write_manifest,
)
from sweep_tasks.logs import configure_logs_by_settings
from sweep_tasks.model import EVERYTHING, TableRef
from sweep_tasks.protection.records import Target
from sweep_tasks.store.contract import Store
from sweep_tasks.transactions import TransactionManager

_CELLS_PER_FILE = 5_000_000


def main(arguments: list[str] | None = None) -> int:
    return run_job("snapshot_export", ExportOrder, _export_with_spark, arguments)


def _export_with_spark(order: ExportOrder, settings: Settings) -> ExportSummary:
    spark = LazySpark(f"snapshot_export {order.at}")
    summary = export(order, settings, spark)
    if spark.seconds is not None:
        summary.seconds["spark"] = spark.seconds
    spark.stop()
    return summary


def export(order: ExportOrder, settings: Settings, spark: Callable[[], SparkSession]) -> ExportSummary:
    """Carry out the order. An export that exists already, of the same order, is not written again."""
    finished = _finished(order)
    if finished:
        sync_export(finished)
        return summary_of(finished, {}, made=False)
    before = chain(order.since) if order.since else []
    if before and before[-1].manifest.ts > order.at:
        problem = f"{order.since} is of {before[-1].manifest.ts}, which is later than {order.at}"
        raise BadValue("since", problem, reason="too_late")
    seconds: dict[str, float] = {}
    with draft(order.to) as folder:
        manifest = _write_data(order, before, settings, spark, folder, seconds)
        write_manifest(folder, manifest)
    return summary_of(Export(order.to, manifest), seconds, made=True)


def _write_data(
    order: ExportOrder,
    before: list[Export],
    settings: Settings,
    spark: Callable[[], SparkSession],
    folder: Path,
    seconds: dict[str, float],
) -> Manifest:
    """Write the files of the export and return its manifest."""
    with open_store(settings.store, settings) as store:
        tables = _chosen(store, order.tables, order.at)
        _check_readable(store, settings, tables, order.at)
        session = for_large_frames(spark())
        parts = _parts(store, tables, _tasks(session))
    with _time_step(seconds, "writing"):
        now = _cells(session, ExportContext(WorkerStoreSettings.of(settings), order.at, parts))
        _write(_new_or_changed(session, now, before, tables), folder)
    with _time_step(seconds, "counting"):
        counts = frames.counts_by_table(frames.written(session, data_of(folder)))
    since = os.path.relpath(order.since, order.to) if order.since else None
    in_order = {str(table): counts.get(str(table), ExportedCells(0, 0)) for table in sorted(tables)}
    return Manifest(order.at, order.tables, in_order, since)


# --- the order ------------------------------------------------------------------------------------------------------


def _finished(order: ExportOrder) -> Export | None:
    found = find_export(order.to)
    if found is None:
        return None
    if (found.manifest.ts, found.manifest.chosen, found.base) != (order.at, order.tables, order.since):
        raise AlreadyExists(
            f"to: {order.to} contains another export already, of {found.manifest.ts}; name a new folder",
            field="to",
            folder=order.to,
            ts=found.manifest.ts,
        )
    return found


def _chosen(store: Store, names: tuple[str, ...], at: int) -> set[TableRef]:
    """Return the existing tables that match. A name or pattern that matches none is an error.

    So is a pattern that matches a table which was dropped after the timestamp, by force if the timestamp was protected:
    the snapshot holds that table, and an export without it would look complete.
    """
    rows = {table: found for table, found in store.catalog_rows().items() if not table.is_system}
    existing = {table for table, found in rows.items() if not found.is_gone}
    chosen: set[TableRef] = set()
    for name in names:
        target = Target.parse(name)
        if target.rows != EVERYTHING:
            problem = f"{target.table}: whole tables are exported, not some of their rows"
            raise BadValue("tables", problem, reason="has_rows")
        matching = target.among(existing)
        if not matching:
            raise UnknownTable(target.table)
        chosen |= matching
        for dropped in sorted(target.among(rows) - existing):
            if at < rows[dropped].mark:
                raise SnapshotSwept(dropped, at, rows[dropped].mark)
    return chosen


def _check_readable(store: Store, settings: Settings, tables: set[TableRef], at: int) -> None:
    """Check the timestamp before a session is started for nothing. Each page is checked again after it was read."""
    with TransactionManager(store, settings, enqueue=False, renew_leases=False) as manager:
        snapshot = manager.read_at(at)
        for table in sorted(tables):
            snapshot.check_readable(table)


def _parts(store: Store, tables: set[TableRef], tasks: int) -> list[ExportPart]:
    """Return the parts to read: as many for each table as there are tasks, so that every task stays busy."""
    return [ExportPart(str(table), each) for table in sorted(tables) for each in store.scan_ranges(table, tasks)]


# --- frames ---------------------------------------------------------------------------------------------------------


def _cells(spark: SparkSession, context: ExportContext) -> DataFrame:
    """Return the cells. Neighbouring parts are in one task, so that a task writes few files, however many tables."""
    parts = len(context.parts)
    numbers = spark.range(0, parts, 1, min(parts, _tasks(spark)))
    return numbers.mapInArrow(reading(context), ddl(frames.CELLS))


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


# --- the summary ----------------------------------------------------------------------------------------------------


def summary_of(export: Export, seconds: dict[str, float], *, made: bool) -> ExportSummary:
    manifest = export.manifest
    return ExportSummary(
        kind=manifest.kind,
        ts=manifest.ts,
        folder=str(export.folder),
        since=manifest.since,
        tables={table: written._asdict() for table, written in manifest.tables.items()},
        puts=sum(written.puts for written in manifest.tables.values()),
        deletes=sum(written.deletes for written in manifest.tables.values()),
        files=sum(1 for _ in export.data.rglob("*.parquet")),
        made=made,
        seconds=seconds,
    )


@contextmanager
def _time_step(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - began


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
