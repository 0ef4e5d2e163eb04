"""Measures two things so that their ratio is meaningful on a noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process. Other load on the machine hardly changes them."""
    began = time.process_time()
    work()
    return time.process_time() - began


def alternately(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 5,
    choose: Callable[[list[float]], float] = median,
) -> tuple[float, float]:
    """Return the median seconds of each function, or what else is chosen, measured alternately, after one warm-up."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds + 1)][1:]
    return choose([a for a, _ in pairs]), choose([b for _, b in pairs])
