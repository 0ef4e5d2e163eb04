"""Statistics of the SSTables of tables, many files at once: what `sweepflow compaction plan --stats` reads.

    spark-submit sstable_statistics.py --data /var/lib/cassandra/data --tables store.app__items --gc-grace 864000 \
        --to statistics.jsonl

One task for each file, since a file is read from its start to its end; so as many are read at once as there are cores.
All machines of the job must see the data folders. A file that Cassandra replaces meanwhile is left out and counted, and
so is one that can't be read. The last line it prints is its summary, as JSON; an error is one sentence on stderr and an
exit code.
"""

from __future__ import annotations

from spark_jobs.guard import die_with_parent

if __name__ == "__main__":
    die_with_parent()

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.frames import ddl
from spark_jobs.job import reported
from spark_jobs.session import LazySpark
from spark_jobs.workers import Batches, Worker
from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.cache import Cache
from sweep_tasks.compaction.dump import Tools
from sweep_tasks.compaction.measuring import measure
from sweep_tasks.compaction.sstables import SSTable, sstables_of
from sweep_tasks.config import load_settings
from sweep_tasks.errors import BadValue, SSTableGone, SSTableUnreadable
from sweep_tasks.logs import configure_logs_by_settings

GONE, UNREADABLE = "gone", "unreadable"
STATISTICS = {
    "file": "string",
    "line": "string",
    "droppable": "long",
    "waiting": "long",
    # Of a file that was not measured:
    "kind": "string",
    "problem": "string",
}
_KINDS = {"long": pa.int64(), "string": pa.string()}
_STATISTICS = pa.schema([(name, _KINDS[kind]) for name, kind in STATISTICS.items()])


class StatisticsOrder(NamedTuple):
    data: tuple[Path, ...]
    tables: tuple[str, ...]
    """As Cassandra calls them, with their keyspace."""
    gc_grace_s: int
    now_s: int
    to: Path
    tools: Tools
    cache: Path

    def files(self) -> list[SSTable]:
        return [each for table in self.tables for each in sstables_of(self.data, *_parts(table))]


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)

    def measured() -> dict[str, Any]:
        spark = LazySpark("sstable_statistics")
        summary = write_statistics(_order(given), spark)
        if spark.seconds is not None:
            spark().stop()
        return summary

    return reported(measured, given.summary)


def write_statistics(order: StatisticsOrder, spark: Callable[[], SparkSession]) -> dict[str, Any]:
    """The summary. A line for each file is written, in the order of their names; without files no Spark is started."""
    files = order.files()
    summary: dict[str, Any] = {"files": len(files), "droppable": 0, "waiting": 0, GONE: [], UNREADABLE: []}
    with _draft(order.to) as out:
        if files:
            out.writelines(f"{line}\n" for line in _lines(_statistics(spark(), order, files), summary))
    return summary


@contextmanager
def _draft(to: Path) -> Iterator[TextIO]:
    """A file that takes its place when it is complete."""
    draft = to.with_name(f"{to.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as out:
            yield out
        draft.replace(to)
    except OSError as error:
        raise BadValue("to", f"{to} can't be written: {error.strerror}; name a file in a folder that exists") from error
    finally:
        draft.unlink(missing_ok=True)


def _statistics(spark: SparkSession, order: StatisticsOrder, files: list[SSTable]) -> DataFrame:
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(measuring(order, files), ddl(STATISTICS))


def _lines(found: DataFrame, summary: dict[str, Any]) -> Iterator[str]:
    """All files are measured at once by the count; their lines then come from disk, one by one."""
    kept = found.persist(StorageLevel.DISK_ONLY)
    try:
        kept.count()
        for row in kept.toLocalIterator():
            if row.line is None:
                summary[row.kind].append(row.problem)
                continue
            summary["droppable"] += row.droppable
            summary["waiting"] += row.waiting
            yield row.line
    finally:
        kept.unpersist()


def measuring(order: StatisticsOrder, files: list[SSTable]) -> Worker:
    """Takes a frame of numbers, each standing for a file; gives its statistics."""

    def measured(batches: Batches) -> Iterator[pa.RecordBatch]:
        cache = Cache(order.cache)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield pa.RecordBatch.from_pylist([_measured(order, files[number], cache)], schema=_STATISTICS)

    return measured


def _measured(order: StatisticsOrder, sstable: SSTable, cache: Cache) -> dict[str, Any]:
    try:
        found = measure(sstable, order.tools, order.gc_grace_s, order.now_s, cache=cache)
    except (SSTableGone, SSTableUnreadable) as error:
        kind = GONE if isinstance(error, SSTableGone) else UNREADABLE
        return {"file": str(sstable.data), "kind": kind, "problem": str(error)}
    return {
        "file": str(sstable.data),
        "line": found.json_line(),
        "droppable": found.droppable.tombstones,
        "waiting": found.waiting.tombstones,
    }


def _parts(table: str) -> tuple[str, str]:
    keyspace, dot, name = table.partition(".")
    if not (keyspace and dot and name):
        raise BadValue("tables", f"{table[:60]!r} is not a table; write it with its keyspace, like store.app__items")
    return keyspace, name


def _order(given: argparse.Namespace) -> StatisticsOrder:
    tables = tuple(each.strip() for each in given.tables.split(",") if each.strip())
    if not tables:
        raise BadValue("tables", "names none; write keyspace and table, several separated by commas")
    return StatisticsOrder(
        data=tuple(given.data),
        tables=tables,
        gc_grace_s=given.gc_grace,
        now_s=SystemClock().now_ms() // 1_000,
        to=given.to,
        tools=Tools(tuple(shlex.split(given.sstabledump))),
        cache=load_settings().cache_folder.expanduser() / "sstables",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sstable_statistics.py", description="Count the tombstones in SSTables.")
    parser.add_argument("--data", required=True, nargs="+", type=Path, metavar="FOLDER", help="a node's data folders")
    parser.add_argument("--tables", required=True, metavar="NAMES", help="keyspace.table, separated by commas")
    parser.add_argument("--gc-grace", required=True, type=int, metavar="SECONDS", help="of these tables")
    parser.add_argument("--to", required=True, type=Path, metavar="FILE", help="where the lines go")
    parser.add_argument("--sstabledump", default="sstabledump", metavar="COMMAND", help="how that tool is started")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there as well")
    return parser


if __name__ == "__main__":
    configure_logs_by_settings()
    sys.exit(main())
