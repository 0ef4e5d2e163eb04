"""Spark drivers on this machine, and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP


def while_running(airflow: LocalAirflow, run: str, what: str, done: Callable[[], Any]) -> Any:
    """The first answer that is true; a run that ends before there is one has not done what the test is about. Airflow
    is asked about that once a second: each question takes its time from the run."""
    asked = time.monotonic()

    def answer() -> Any:
        nonlocal asked
        found = done()
        if not found and time.monotonic() > asked + 1:
            asked = time.monotonic()
            state = airflow.run_state(TARGETED_SWEEP, run)
            assert state in ("queued", "running"), airflow.describe_run(TARGETED_SWEEP, run)
        return found

    return airflow.wait(
        f"{what} of run {run}", answer, explain=lambda: airflow.describe_run(TARGETED_SWEEP, run), every_s=0.1
    )


def driver(tasks: Path, strategy: SweepStrategy, shard: int) -> list[psutil.Process]:
    """Known by the name of the file with its order. Java first, then the Python it started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        text = " ".join(words)
        if f"-{strategy}.shard_{shard}-" in text and str(tasks) in text and "targeted_sweep.py" in text:
            found.append(process)
    return sorted(found, key=lambda process: "java" not in Path(process.info["cmdline"][0]).name)


def java_and_python(tasks: Path, strategy: SweepStrategy, shard: int) -> list[psutil.Process]:
    """The driver once both are there, none before."""
    found = driver(tasks, strategy, shard)
    kinds = [Path(process.info["cmdline"][0]).name for process in found]
    return found if len(found) == 2 and kinds[0] == "java" and kinds[1].startswith("python") else []
