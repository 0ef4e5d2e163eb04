"""How many shards of a strategy one machine sweeps at the same time.

Airflow's scheduler holds back tasks by pool, by run and by executor; a pool is the lock of a shard already, and none of
the others knows strategies. So a task that is about to start Spark takes one of the machine's slots for its strategy:
a locked file, which the kernel frees however the task ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy

_LOOK_AGAIN_S = 0.5


def task_folder(settings: Settings) -> Path:
    """Where tasks keep files while they run; the user's own, if it is in a place that all users share."""
    folder = settings.task_folder or Path(tempfile.gettempdir(), f"sweepflow-{os.getuid()}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@contextmanager
def machine_slot(settings: Settings, strategy: SweepStrategy, waiting: Callable[[str], None]) -> Iterator[None]:
    """One of the strategy's slots on this machine; `waiting` is told once if none is free."""
    told = False
    while (held := _free_slot(task_folder(settings), strategy, settings.sweep_tasks_at_once)) is None:
        if not told:
            told = True
            waiting(
                f"waiting: {settings.sweep_tasks_at_once} {strategy} shards are swept on this machine already, "
                "as many as the setting sweep_tasks_at_once allows"
            )
        time.sleep(_LOOK_AGAIN_S)
    with held:
        yield


def _free_slot(folder: Path, strategy: SweepStrategy, slots: int) -> BinaryIO | None:
    for slot in range(slots):
        file = (folder / f"{strategy}-{slot}.slot").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return file
    return None
