"""Compares the Spark job with the in-process sweep, measures how it scales, and its cost when there is little to do.

Both sweep the same SQLite store, filled the same way: every cell is written four times. The job is a real
`spark-submit` on `local[2]` with 512 MB for the driver, and its start is included. On one machine with one SQLite
writer, Spark is not expected to be faster: it is meant for several machines and bounded memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared.timing import alternately, seconds
from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import initialise_store
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.run import Sweeper, sweep_idle
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
ORDER = SweepOrder(SweepStrategy.THOROUGH, 0)
WRITES = 50
SMALL, LARGE = 100_000, 1_000_000
TRIVIAL = 100
BARE = "from pyspark.sql import SparkSession\nprint(SparkSession.builder.getOrCreate().range(1).count())\n"


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {entries: _filled(folder / f"{entries}.db", entries) for entries in (TRIVIAL, SMALL, LARGE)}
        small, _ = _job(_copy(stores[SMALL]))
        large, summary = _job(_copy(stores[LARGE]))
        engine = _in_process(_copy(stores[LARGE]))
        started = summary["seconds"]["spark"]
        return {
            "entries": LARGE,
            "job_s": round(large, 1),
            "in_process_s": round(engine, 1),
            "ratio": round(large / engine, 2),
            "ratio_without_start": round((large - started) / engine, 2),
            "phases_s": summary["seconds"],
            "growth": {
                "entries": [SMALL, LARGE],
                "job_s": [round(small, 1), round(large, 1)],
                "of_linear": round(large / small / (LARGE / SMALL), 2),
                "goal": 1.1,
            },
            "trivial": _trivial(folder, stores[TRIVIAL]),
            "idle_s": round(_idle(_copy(stores[TRIVIAL])), 2),
        }


def _job(store: Path) -> tuple[float, dict[str, Any]]:
    return run_job(_url(store))


def run_job(url: str) -> tuple[float, dict[str, Any]]:
    """Return the seconds and the summary, which must account for all the work."""
    ended: list[subprocess.CompletedProcess[str]] = []
    arguments = ["--order", ORDER.document(), "--store", url]
    took = seconds(lambda: ended.append(_submit(str(TARGETED_SWEEP), *arguments)))
    summary: dict[str, Any] = json.loads(ended[0].stdout.splitlines()[-1])
    assert summary["entries"], summary  # noqa: S101
    assert summary["stopped"] is None, summary  # noqa: S101
    return took, summary


def _submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["--master", "local[2]", "--driver-memory", "512m"]
    environment = {**os.environ, **spark_environment()}
    return subprocess.run(
        [spark_submit(), *options, *arguments], env=environment, capture_output=True, text=True, check=True
    )


def _in_process(store: Path) -> float:
    settings = load_settings(store=_url(store))
    with open_store(settings.store, settings) as opened:
        sweeper = Sweeper(opened, settings, SystemClock())
        return seconds(lambda: list(sweeper.sweep([ORDER.strategy], [ORDER.shard])))


def _trivial(folder: Path, store: Path) -> dict[str, Any]:
    bare = folder / "bare.py"
    bare.write_text(BARE, encoding="utf-8")
    ours, theirs = alternately(lambda: _job(_copy(store)), lambda: _submit(str(bare)), rounds=3)
    return {
        "entries": TRIVIAL,
        "job_s": round(ours, 1),
        "bare_s": round(theirs, 1),
        "ratio": round(ours / theirs, 2),
        "goal": 1.5,
    }


def _idle(store: Path) -> float:
    """Sweep a shard again that is already swept: the whole cost of such a task besides Airflow."""
    _in_process(store)
    settings = load_settings(store=_url(store))
    with open_store(settings.store, settings) as opened:
        return seconds(lambda: _checked(sweep_idle(opened, settings, SystemClock(), ORDER)))


def _checked(summary: object) -> None:
    assert summary is not None  # noqa: S101


def _filled(path: Path, entries: int) -> Path:
    settings = Settings(store=_url(path), sqlite_durability="normal")
    initialise_store(settings.store, settings)
    with open_store(settings.store, settings) as store:
        metadata = TableMetadata(ORDER.strategy)
        store.create_table(TABLE, metadata)
        queue, commits = QueueWriter(store), CommitTable(store)
        cells = max(1, entries // 4)
        for number in range(entries // WRITES):
            start, first = 10 * number + 1, number * WRITES
            values = {Cell(b"%010d" % ((first + n) * 7919 % cells), b"c"): b"v" * 100 for n in range(WRITES)}
            queue.enqueue(start, {TABLE: values}, {TABLE: metadata})
            store.put(start, {TABLE: values})
            commits.decide(start, start + 1)
        TimestampService(store).move_past(10 * entries)
    return path


def _copy(store: Path) -> Path:
    copy = store.with_name(f"copy-{store.name}")
    for old in store.parent.glob(f"{copy.name}*"):
        old.unlink()
    shutil.copy(store, copy)
    return copy


def _url(path: Path) -> str:
    return f"sqlite:///{path}"
