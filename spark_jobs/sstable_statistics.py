"""Measure the SSTables of tables, many files at once; writes what `sweepflow compaction plan --stats` reads.

    spark-submit sstable_statistics.py --node cassandra1
    spark-submit sstable_statistics.py --data /var/lib/cassandra/data --tables store.app__items --gc-grace 864000 \
        --to statistics.jsonl

The first command measures all tables of the store on a node of the settings, the second measures the given folders.
Each file is a task of its own, since a file is read from its start to its end; so as many are read at once as there are
cores. All machines of the job must see the data folders, or be able to use the node's prefix. Files that Cassandra
replaces meanwhile, or that can't be read, are left out and counted. The last line of output is the measurement as JSON;
an error is one sentence on stderr and an exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.frames import ddl
from spark_jobs.job import LazySpark, add_summary_argument, report
from spark_jobs.workers import Batches, Worker, report_errors
from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.node_files import FileOutcome, Files, Measuring, Order, measure_files
from sweep_tasks.compaction.rounds import order_for
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.logs import configure_logs_by_settings
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import HERE
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.store.contract import PhysicalTable

STATISTICS = dict.fromkeys(FileOutcome._fields, "string")
_STATISTICS = pa.schema([(name, pa.string()) for name in STATISTICS])


def main(arguments: list[str] | None = None) -> int:
    given = argument_parser().parse_args(arguments)

    def measure() -> dict[str, Any]:
        spark = LazySpark("sstable_statistics")
        settings = load_settings()
        summary = measure_files(_order(given, settings), settings, with_spark(spark))
        spark.stop()
        return summary.document()

    return report(measure, given.summary)


def with_spark(spark: Callable[[], SparkSession]) -> Measuring:
    """Return a function that measures all files at once with Spark, keeps the results on disk, and yields them."""

    def measured(order: Order, files: Files) -> Iterator[FileOutcome]:
        kept = _outcomes(spark(), order, files).persist(StorageLevel.DISK_ONLY)
        try:
            kept.count()
            for row in kept.toLocalIterator():
                yield FileOutcome(**row.asDict())
        finally:
            kept.unpersist()

    return measured


def _outcomes(spark: SparkSession, order: Order, files: Files) -> DataFrame:
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(measuring(order, files), ddl(STATISTICS))


def measuring(order: Order, files: Files) -> Worker:
    """Return a worker for a frame of numbers, each the index of a file. It yields the outcome for each file."""

    @report_errors
    def measure(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                outcome = order.measure(*files[number])
                yield pa.RecordBatch.from_pylist([outcome._asdict()], schema=_STATISTICS)

    return measure


def _order(given: argparse.Namespace, settings: Settings) -> Order:
    names = [each.strip() for each in (given.tables or "").split(",") if each.strip()]
    if given.node:
        return order_for(settings, given.node, names)
    for name in ("data", "tables", "gc_grace", "to"):
        if getattr(given, name) is None:
            problem = "is missing; give it, or name a node of the settings with --node"
            raise BadValue(name.replace("_", "-"), problem, reason="missing")
    if not names:
        raise BadValue("tables", "is empty; write keyspace and table, several separated by commas")
    tables = [PhysicalTable(*_parts(name), given.gc_grace, {}) for name in names]
    return Order(
        node=Node("files", tuple(given.data), HERE, Tools(tuple(shlex.split(given.sstabledump)))),
        tables={table.qualified: table for table in tables},
        now_s=SystemClock().now_ms() // 1_000,
        cache=settings.cache_folder.expanduser(),
        statistics=given.to,
    )


def _parts(table: str) -> tuple[str, str]:
    keyspace, dot, name = table.partition(".")
    if not (keyspace and dot and name):
        raise BadValue("tables", f"{table[:60]!r} is not a table; write it with its keyspace, like store.app__items")
    return keyspace, name


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sstable_statistics.py", description="Count the tombstones in SSTables.")
    parser.add_argument(
        "--node", metavar="NAME", help="a node of setting compaction_nodes; no other option is needed then"
    )
    parser.add_argument("--data", nargs="+", type=Path, metavar="FOLDER", help="a node's data folders")
    parser.add_argument("--tables", metavar="NAMES", help="keyspace.table, separated by commas")
    parser.add_argument("--gc-grace", type=int, metavar="SECONDS", help="gc_grace_seconds of these tables")
    parser.add_argument("--to", type=Path, metavar="FILE", help="the file to write the statistics to")
    parser.add_argument(
        "--sstabledump", default="sstabledump", metavar="COMMAND", help="the command that starts sstabledump"
    )
    add_summary_argument(parser)
    return parser


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
