"""An index of protections by row and timestamp: which one has the greatest timestamp at or below a commit.

The protections are numbered in the order of their timestamps. The starts and ends of their row ranges cut the rows into
intervals, and within an interval every row is covered by the same protections: a set, stored as the bits of an integer.
So a look-up is a binary search for the row, another for the commit, and the highest bit that is left. No look-up visits
the protections one by one, and 4096 overlapping ranges take 16 megabytes at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sweep_tasks.model import Span

if TYPE_CHECKING:
    from sweep_tasks.protection.records import Protection


class RangeIndex:
    """Protections of one table, at least one, each with the rows that it covers, which are not none."""

    def __init__(self, placed: Iterable[tuple[Span, Protection]]) -> None:
        ordered = sorted(((held, rows) for rows, held in placed), key=lambda each: each[0])
        self._held = [held for held, _ in ordered]
        self._timestamps = [held.ts for held in self._held]
        starting: dict[bytes, int] = defaultdict(int)
        ending: dict[bytes, int] = defaultdict(int)
        for number, (_, rows) in enumerate(ordered):
            starting[rows.start] |= 1 << number
            if rows.end:
                ending[rows.end] |= 1 << number
        self._edges = sorted({b"", *starting, *ending})
        """The first row of each interval."""
        self._covering: list[int] = []
        """The protections that cover each interval."""
        self._started: list[int] = []
        """The protections whose rows start in each interval or before it."""
        covering = started = 0
        for edge in self._edges:
            started |= starting[edge]
            covering = covering & ~ending[edge] | starting[edge]
            self._covering.append(covering)
            self._started.append(started)

    def greatest(self, row: bytes, ts: int) -> Protection | None:
        """Return the greatest protection at or below a timestamp that covers a row."""
        if ts < self._timestamps[0]:
            return None
        found = self._covering[bisect_right(self._edges, row) - 1]
        if found:
            found &= (1 << bisect_right(self._timestamps, ts)) - 1
        return self._held[found.bit_length() - 1] if found else None

    def descending(self, row: bytes, ts: int) -> Iterator[Protection]:
        """Yield the protections at or below a timestamp that cover a row, the greatest first."""
        covering = self._covering[bisect_right(self._edges, row) - 1]
        return self._numbered(covering & ((1 << bisect_right(self._timestamps, ts)) - 1))

    def overlapping(self, rows: Span) -> Iterator[Protection]:
        """Yield the protections that cover some of these rows."""
        if rows.is_empty:
            return iter(())
        first = bisect_right(self._edges, rows.start) - 1
        last = bisect_left(self._edges, rows.end) - 1 if rows.end else -1
        return self._numbered(self._covering[first] | self._started[last] & ~self._started[first])

    def _numbered(self, numbers: int) -> Iterator[Protection]:
        while numbers:
            number = numbers.bit_length() - 1
            yield self._held[number]
            numbers ^= 1 << number
