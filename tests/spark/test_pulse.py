"""A driver that waits for its workers gives signs of life."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from spark_jobs.pulse import pulse
from sweep_tasks.logs import at_work
from sweep_tasks.model import SweepStrategy
from sweep_tasks.sweep.watching import LogEvery, Reached


def slow(batches: Iterator[object]) -> Iterator[object]:
    time.sleep(6)  # Spark tells of running tasks a little late, on a busy machine by seconds
    yield from batches


def test_while_workers_are_busy_the_log_tells_how_many_tasks_are_done(spark: SparkSession) -> None:
    log = LogEvery()
    log(Reached(SweepStrategy.THOROUGH, 3, "queue", -1, 49, 100, 7, 1))
    with capture_logs() as lines, at_work(shard=3), pulse(log, lambda: spark.sparkContext, every_s=0.1):
        spark.range(0, 2, 1, 2).mapInArrow(slow, "id long").collect()
    busy = [line for line in lines if line["tasks_running"]]
    assert busy
    assert (busy[0]["tasks"], busy[0]["phase"], busy[0]["done"], busy[0]["entries"]) == (2, "queue", "50%", 7)


@pytest.mark.parametrize("every_s", [0.01])
def test_without_spark_nothing_is_said(every_s: float) -> None:
    log = LogEvery()
    with capture_logs() as lines, pulse(log, lambda: None, every_s):
        time.sleep(0.1)
    assert lines == []
