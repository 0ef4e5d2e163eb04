"""Runs of dead cells in a partition: what a reader really steps over before it meets something alive.

A server counts the tombstones that one read steps over, warns at some number of them and gives the read up at another.
Blocks say nothing of that: a file may hold few dense ones and all of them in a row. And no file alone says it either:
a reader merges all files that hold the partition: so the longest runs of a partition are added up over its files. That
is an estimate. It is too much where something alive in one file lies between the dead of another, and too little where
something alive in one file is hidden by another, so that two runs of the first become one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from heapq import heappush, heapreplace, nlargest
from typing import NamedTuple

from sweep_tasks.compaction.thresholds import Thresholds, reaches_count

MOST_OF_A_FILE = 256
SHORT = 16
"""A run that is not longer is of no account: thousands of files would have to hold the like of it."""
_MOST_OF_A_TABLE = 50_000


class PartitionRun(NamedTuple):
    """The longest run of a partition in one file; the partition by its token, which tells nothing of its key."""

    longest: int
    token: int
    last_deleted_s: int
    """When the youngest tombstone of the partition was written."""


class Longest:
    """The longest runs of a file, of which there may be one in each of millions of partitions."""

    def __init__(self, most: int = MOST_OF_A_FILE) -> None:
        self._most = most
        self._kept: list[tuple[int, int, PartitionRun]] = []

    def add(self, run: PartitionRun) -> None:
        placed = run.longest, -run.token, run
        if len(self._kept) < self._most:
            heappush(self._kept, placed)
        elif placed > self._kept[0]:
            heapreplace(self._kept, placed)

    def found(self) -> list[PartitionRun]:
        """The longest first; ties go by token."""
        return [run for *_, run in sorted(self._kept, reverse=True)]


class Held(NamedTuple):
    """A run in one file as it counts at a moment."""

    token: int
    longest: int
    held: int
    """As much of it as gc_grace may still hold: that alone counts against the server's thresholds."""


class Combined(NamedTuple):
    """A partition over all files of its table."""

    token: int
    longest: int
    held: int
    files: int
    file: str
    """The one with the longest run of all."""
    longest_of_file: int


class PartitionRuns:
    """Those of one table, added up by partition. Where there are too many, the shortest are forgotten."""

    def __init__(self, most: int = _MOST_OF_A_TABLE) -> None:
        self._most = most
        self._kept: dict[int, Combined] = {}

    def add(self, file: str, runs: Iterable[Held]) -> None:
        for run in runs:
            new = Combined(run.token, run.longest, run.held, 1, file, run.longest)
            known = self._kept.get(run.token)
            self._kept[run.token] = _both(known, new) if known else new
        if len(self._kept) > self._most:
            longest = nlargest(self._most // 2, self._kept.values(), key=lambda each: (each.held, each.longest))
            self._kept = {each.token: each for each in longest}

    def found(self) -> Iterable[Combined]:
        return self._kept.values()


def _both(one: Combined, other: Combined) -> Combined:
    worst = max(one, other, key=lambda each: (each.longest_of_file, each.file))
    return Combined(
        token=one.token,
        longest=one.longest + other.longest,
        held=one.held + other.held,
        files=one.files + other.files,
        file=worst.file,
        longest_of_file=worst.longest_of_file,
    )


class Reads(StrEnum):
    """What a server that goes by these thresholds makes of a read over a run."""

    FINE = "fine"
    WARNED = "warned"
    FAILING = "failing"


def reads_over(longest: int, thresholds: Thresholds) -> Reads:
    if reaches_count(longest, thresholds.run_fail):
        return Reads.FAILING
    return Reads.WARNED if reaches_count(longest, thresholds.run_warn) else Reads.FINE
