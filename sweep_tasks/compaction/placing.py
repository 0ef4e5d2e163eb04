"""Where entries lie, and how many bytes are theirs: from the positions of those that have one.

The head of a partition and each row have a position; the bounds of deleted ranges behind them have none. Their size is
computed, and what is left up to the next position belongs to the row before them. Of a long stretch of bounds only so
many are kept at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from sweep_tasks.compaction.entries import Reading

_KEPT = 1_024
Place = Callable[[int, int, Reading], None]
"""Is told the position, the size and what was read there, in the order of the file."""


class Placing:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._start = 0
        self._first: Reading | None = None
        self._about = 0
        self._behind: list[tuple[int, Reading]] = []
        self._bytes_behind = 0

    def at(self, position: int, reading: Reading, about: int) -> None:
        """An entry with a position; `about`: its size, for when it is not known in time."""
        self.end(position)
        self._start, self._first, self._about = position, reading, about

    def behind(self, size: int, reading: Reading) -> None:
        self._behind.append((size, reading))
        self._bytes_behind += size
        if len(self._behind) == _KEPT:
            self._settle(self._about)

    def end(self, position: int) -> None:
        """Nothing placed so far reaches beyond."""
        self._settle(max(0, position - self._start - self._bytes_behind))
        self._first, self._about = None, 0

    def _settle(self, own: int) -> None:
        if self._first is not None:
            self._place(self._start, own, self._first)
            self._start += own
        for size, reading in self._behind:
            self._place(self._start, size, reading)
            self._start += size
        self._first, self._about, self._behind, self._bytes_behind = None, 0, [], 0
