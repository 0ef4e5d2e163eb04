"""What a scan has seen and done, as numbers that can be added up."""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    cells: int = 0
    versions: int = 0
    """Examined."""
    deleted: int = 0
    aborted: int = 0
    """Of those examined, left by transactions that never committed; they are deleted too."""
    sentinels: int = 0
    held: int = 0
    """Cells in which a protection holds something that would go without it."""
    waiting: int = 0
    """Delete markers that not every copy confirmed as gone."""
    left: int = 0
    """Versions that may go and are still there, because their row has its share of tombstones from this run."""
    batches: int = 0
    tombstones: int = 0
    """That were written; none in a store that has no tombstones."""

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING = Counts()
