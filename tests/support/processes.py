"""Real processes for tests of concurrent work."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_PATIENCE_S = 240

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.conftest", "sweep_tasks.protection.catalog", "sweep_tasks.transactions"])
"""Processes are forked from one that has imported the library and opened nothing. Each has its own memory, as after a
normal start, and does not spend a second on imports."""


def in_processes(count: int, work: Callable[..., T], *arguments: Any) -> list[T]:
    """Run `work(number, *arguments)` in this many processes, started together, and return their results. A process that
    never ends fails its test alone: the pool would wait for it."""
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, _context, _take_over, (dict(os.environ),)) as pool:
        running = [pool.submit(work, number, *arguments) for number in range(count)]
        try:
            return [each.result(timeout=_PATIENCE_S) for each in running]
        except BaseException:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            raise


def _take_over(environment: dict[str, str]) -> None:
    """Use the environment that the test has now, not that of the first process."""
    os.environ.clear()
    os.environ.update(environment)
