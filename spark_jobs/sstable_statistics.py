"""Measure the SSTables of tables, many files at once; writes what `sweepflow compaction plan --stats` reads.

    spark-submit sstable_statistics.py --order '{"node": "cassandra1"}'
    spark-submit sstable_statistics.py --order '{"data": ["/var/lib/cassandra/data"], "tables": ["store.app__items"], \
        "gc_grace_s": 864000, "to": "statistics.jsonl"}'

The fields of an order are those of `MeasureJob`. The first command measures all tables of the store on a node of the
settings, the second measures the given folders. Each file is a task of its own, since a file is read from its start to
its end; so as many are read at once as there are cores. All machines of the job must see the data folders, or be able
to use the node's prefix. Files that Cassandra replaces meanwhile, or that can't be read, are left out and counted. The
last line of output is the measurement as JSON; an error is one sentence on stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.frames import ddl
from spark_jobs.job import LazySpark, run_job
from spark_jobs.orders import MeasureJob
from spark_jobs.worker_errors import Batches, Worker, report_errors
from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.documents import Measurement
from sweep_tasks.compaction.node_files import FileOutcome, Files, Measuring, RoundContext, measure_files
from sweep_tasks.compaction.rounds import create_context
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.logs import configure_logs_by_settings
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import HERE
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.store.contract import PhysicalTable

STATISTICS = dict.fromkeys(FileOutcome._fields, "string")
T = TypeVar("T")
_STATISTICS = pa.schema([(name, pa.string()) for name in STATISTICS])


def main(arguments: list[str] | None = None) -> int:
    return run_job("sstable_statistics", MeasureJob, measure, arguments)


def measure(job: MeasureJob, settings: Settings) -> Measurement:
    spark = LazySpark("sstable_statistics")
    measured = measure_files(_context(job, settings), settings, with_spark(spark))
    spark.stop()
    return measured


def with_spark(spark: Callable[[], SparkSession]) -> Measuring:
    """Return a function that measures all files at once with Spark, keeps the results on disk, and yields them."""

    def measured(context: RoundContext, files: Files) -> Iterator[FileOutcome]:
        kept = _outcomes(spark(), context, files).persist(StorageLevel.DISK_ONLY)
        try:
            kept.count()
            for row in kept.toLocalIterator():
                yield FileOutcome(**row.asDict())
        finally:
            kept.unpersist()

    return measured


def _outcomes(spark: SparkSession, context: RoundContext, files: Files) -> DataFrame:
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(measuring(context, files), ddl(STATISTICS))


def measuring(context: RoundContext, files: Files) -> Worker:
    """Return a worker for a frame of numbers, each the index of a file. It yields the outcome for each file."""

    @report_errors
    def measure(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                outcome = context.measure(*files[number])
                yield pa.RecordBatch.from_pylist([outcome._asdict()], schema=_STATISTICS)

    return measure


def _context(job: MeasureJob, settings: Settings) -> RoundContext:
    if job.node is not None:
        return create_context(settings, job.node, list(job.tables))
    tables = [PhysicalTable(*_parts(name), _given("gc_grace_s", job.gc_grace_s), {}) for name in job.tables]
    return RoundContext(
        node=Node("files", _given("data", job.data or None), HERE, Tools(tuple(shlex.split(job.sstabledump)))),
        tables={table.qualified: table for table in _given("tables", tables or None)},
        now_s=SystemClock().now_ms() // 1_000,
        cache=settings.cache_folder.expanduser(),
        statistics=_given("to", job.to),
    )


def _given(name: str, value: T | None) -> T:
    if value is None:
        raise BadValue(name, "is missing; give it, or name a node of the settings", reason="missing")
    return value


def _parts(table: str) -> tuple[str, str]:
    keyspace, dot, name = table.partition(".")
    if not (keyspace and dot and name):
        raise BadValue("tables", f"{table[:60]!r} is not a table; write it with its keyspace, like store.app__items")
    return keyspace, name


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
