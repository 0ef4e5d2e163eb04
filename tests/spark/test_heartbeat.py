"""A driver that waits for its workers gives signs of life."""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from spark_jobs.job import heartbeat
from sweep_tasks.logs import bind_log_names
from sweep_tasks.model import SweepStrategy
from sweep_tasks.sweep.summary import LogEvery, Reached

PATIENCE_S = 60


def test_the_log_reports_finished_tasks_while_workers_are_busy(spark: SparkSession, tmp_path: Path) -> None:
    reported = tmp_path / "reported"

    def busy_until_signalled(batches: Iterator[object]) -> Iterator[object]:
        until = time.monotonic() + PATIENCE_S
        while not reported.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield from batches

    log = LogEvery()
    log(Reached(SweepStrategy.THOROUGH, 3, "queue", -1, 49, 100, 7, 1))
    frame = spark.range(0, 2, 1, 2).mapInArrow(busy_until_signalled, "id long")
    beating = heartbeat(log, lambda: spark.sparkContext, every_s=0.1)
    with capture_logs() as lines, bind_log_names(shard=3), beating, ThreadPoolExecutor(1) as pool:
        work = pool.submit(frame.collect)
        while not (work.done() or _busy(lines)):
            time.sleep(0.05)
        reported.touch()
        work.result()
    first = _busy(lines)[0]
    assert (first["tasks"], first["phase"], first["done"], first["entries"]) == (2, "queue", "50%", 7)


def _busy(lines: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["tasks_running"]]


@pytest.mark.parametrize("every_s", [0.01])
def test_without_spark_nothing_is_logged(every_s: float) -> None:
    log = LogEvery()
    with capture_logs() as lines, heartbeat(log, lambda: None, every_s):
        time.sleep(0.1)
    assert lines == []
