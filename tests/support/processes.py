"""Real processes for tests of what several do at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.conftest", "sweep_tasks.protection.catalog", "sweep_tasks.transactions"])
"""Processes are forked from one that has imported the library and opened nothing. Each has memory of its own, as after
a start from nothing, and needs not import for a second what the test imports."""


def in_processes(count: int, work: Callable[..., T], *arguments: Any) -> list[T]:
    """`work(number, *arguments)` in as many processes, started together; their results."""
    with ProcessPoolExecutor(count, _context, _take_over, (dict(os.environ),)) as pool:
        running = [pool.submit(work, number, *arguments) for number in range(count)]
        return [each.result(timeout=240) for each in running]


def _take_over(environment: dict[str, str]) -> None:
    """Have the variables that the test has now, not those of when the first process was started."""
    os.environ.clear()
    os.environ.update(environment)
