"""Signs of life from a driver that waits for its workers: a log line every few seconds, with Spark's own counts.

A batch may keep the workers busy for minutes, and the driver hears of it at its end. So a thread asks Spark meanwhile.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark import SparkContext

from sweep_tasks.sweep.watching import EVERY_S


class Says(Protocol):
    """What is to be told of the work itself."""

    def say(self, **more: object) -> None: ...


@contextmanager
def pulse(log: Says, context: Callable[[], SparkContext | None], every_s: float = EVERY_S) -> Iterator[None]:
    """Until the block ends. `context` is None for as long as no Spark was needed."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            spark = context()
            if spark is not None:
                try:
                    log.say(**tasks(spark))
                except (Py4JError, OSError):  # Java is gone; whoever waits for its answer says so
                    return

    # With the names that are bound to the lines of this thread.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat,), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tasks(spark: SparkContext) -> dict[str, int]:
    """Of the stages that are being worked on."""
    tracker = spark.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return {
        "tasks": sum(stage.numTasks for stage in known),
        "tasks_running": sum(stage.numActiveTasks for stage in known),
        "tasks_done": sum(stage.numCompletedTasks for stage in known),
    }
