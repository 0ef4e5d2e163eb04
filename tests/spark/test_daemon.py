"""Spark's Python workers are forked from a daemon of ours, which has done the imports of our jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
from pyarrow import RecordBatch
from pyspark.sql import SparkSession

DAEMON = "spark_jobs.daemon"
FACTS = f"import {DAEMON}, sys, threading; print(threading.active_count(), 'spark_jobs.workers' in sys.modules)"


def parent(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    list(batches)
    yield RecordBatch.from_pydict({"command": [" ".join(psutil.Process(os.getppid()).cmdline())]})


def test_workers_are_forked_from_it(spark: SparkSession) -> None:
    commands = [row.command for row in spark.range(1).mapInArrow(parent, "command string").collect()]
    assert commands
    assert all(DAEMON in command.split() for command in commands)


def test_it_has_imported_the_jobs_and_started_no_thread() -> None:
    """A thread would not be there in the workers, and what it had locked would stay locked."""
    output = subprocess.run([sys.executable, "-c", FACTS], capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["1", "True"]
