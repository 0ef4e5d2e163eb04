"""The longest run of dead cells in a partition: what a reader really steps over before it meets something alive.

A server counts the tombstones that one read steps over, warns at some number of them and gives the read up at another.
Blocks say nothing of that: a file may hold few dense ones and all of them in a row. A partition is measured in pieces,
as it is read, and the pieces are joined in their order: a run may go on from one into the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from heapq import nsmallest
from typing import NamedTuple

from sweep_tasks.compaction.thresholds import Thresholds, reaches_count


class Piece(NamedTuple):
    """A piece of a partition: how many cells, how many of them dead at its start and at its end, the longest run."""

    cells: int = 0
    leading: int = 0
    trailing: int = 0
    longest: int = 0

    def then(self, after: Piece) -> Piece:
        """Both as one piece."""
        all_dead, all_dead_after = self.leading == self.cells, after.trailing == after.cells
        return Piece(
            cells=self.cells + after.cells,
            leading=self.leading + after.leading if all_dead else self.leading,
            trailing=self.trailing + after.trailing if all_dead_after else after.trailing,
            longest=max(self.longest, after.longest, self.trailing + after.leading),
        )


def dead(cells: int = 1) -> Piece:
    return Piece(cells, cells, cells, cells)


def live(cells: int = 1) -> Piece:
    return Piece(cells)


def joined(pieces: Iterable[Piece]) -> Piece:
    """The pieces of one partition, in their order."""
    whole = Piece()
    for piece in pieces:
        whole = whole.then(piece)
    return whole


class PartitionRun(NamedTuple):
    """A partition by its token, which tells nothing of its key."""

    token: int
    longest: int


def worst(partitions: Iterable[PartitionRun], most: int) -> list[PartitionRun]:
    """The partitions with the longest runs, the longest first; holds no more than that many at a time."""
    return nsmallest(most, partitions, key=lambda partition: (-partition.longest, partition.token))


class Reads(StrEnum):
    """What a server that goes by these thresholds makes of a read over a run."""

    FINE = "fine"
    WARNED = "warned"
    FAILING = "failing"


def reads_over(longest: int, thresholds: Thresholds) -> Reads:
    if reaches_count(longest, thresholds.run_fail):
        return Reads.FAILING
    return Reads.WARNED if reaches_count(longest, thresholds.run_warn) else Reads.FINE
