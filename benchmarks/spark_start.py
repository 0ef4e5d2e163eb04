"""Measures the start of a Spark job with and without the archive of Java classes, alternately.

Reports seconds and processor seconds. Also measures the first task of a Python worker that is forked from Spark's own
daemon and from ours, in processor seconds. On a machine with other load, processor seconds are the reliable figure.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import RecordBatch

from spark_jobs import archive
from spark_jobs.environment import ARCHIVE, spark_environment, spark_submit
from spark_jobs.job import spark_session

ROUNDS = 5
DAEMONS = {"stock": "pyspark.daemon", "ours": "spark_jobs.daemon"}


def measure() -> dict[str, Any]:
    if not ARCHIVE.exists():
        archive.make_archive()
    started: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    for _ in range(ROUNDS):
        started["without"].append(_start(None))
        started["with"].append(_start(ARCHIVE))
    tasks = {name: [_first_task(module) for _ in range(ROUNDS)] for name, module in DAEMONS.items()}
    worker = {name: statistics.median(each) for name, each in tasks.items()}
    wall, processor = ({name: statistics.median(column) for name, column in _columns(started, n)} for n in (0, 1))
    return {
        "rounds": ROUNDS,
        "archive_mb": round(ARCHIVE.stat().st_size / 1e6),
        "seconds": {name: round(value, 1) for name, value in wall.items()},
        "processor_seconds": {name: round(value, 1) for name, value in processor.items()},
        "ratio": round(wall["with"] / wall["without"], 2),
        "processor_ratio": round(processor["with"] / processor["without"], 2),
        "worker_processor_seconds": {name: round(value, 2) for name, value in worker.items()},
        "worker_processor_ratio": round(worker["ours"] / worker["stock"], 2),
    }


def _columns(started: dict[str, list[tuple[float, float]]], number: int) -> list[tuple[str, list[float]]]:
    return [(name, [each[number] for each in rounds]) for name, rounds in started.items()]


def _start(used: Path | None) -> tuple[float, float]:
    """Return the seconds, and the processor seconds of all started processes."""
    environment = {**os.environ, **spark_environment(used)}
    command = [str(spark_submit()), "--master", "local[2]", archive.__file__, "job"]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used_s


def _first_task(daemon: str) -> float:
    """Return the processor seconds that a worker has used after importing what a task needs."""
    command = [str(spark_submit()), "--master", "local[1]", "--conf", f"spark.python.daemon.module={daemon}", __file__]
    environment = {**os.environ, **spark_environment()}
    output = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    return float(json.loads(output.splitlines()[-1])["processor_seconds"])


def _run_first_task() -> None:
    def first(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import spark_jobs.workers  # noqa: F401

        list(batches)
        yield RecordBatch.from_pydict({"seconds": [time.process_time()]})

    session = spark_session("first task")
    (row,) = session.range(1).mapInArrow(first, "seconds double").collect()
    print(json.dumps({"processor_seconds": row.seconds}))
    session.stop()


if __name__ == "__main__":
    _run_first_task()
