"""How much of the queue to read at a time, and where to cut what was read. Pure.

How many entries a fine partition holds is known only once it is read: none, or millions. So a window of a few
partitions is read first, and from what it held one guesses how many make the next. What a window holds is cut into
batches between two start timestamps, so that progress can stand there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sweep_tasks.encoding import var_long
from sweep_tasks.model import Span
from sweep_tasks.queue.encoding import FINE

_FASTEST_GROWTH = 16


class Windows:
    """The partitions of a sweep, some at a time."""

    def __init__(self, partitions: list[int], entries: int, first: int) -> None:
        self._left = partitions
        self._entries = entries
        self._size = first

    def __iter__(self) -> Iterator[list[int]]:
        while self._left:
            window, self._left = self._left[: self._size], self._left[self._size :]
            yield window

    @property
    def left(self) -> list[int]:
        return self._left

    def held(self, entries: int) -> None:
        """Tells what the last window held."""
        wanted = self._entries * self._size // max(entries, 1)
        self._size = max(1, min(wanted, self._size * _FASTEST_GROWTH))


class Cut(NamedTuple):
    """A batch within a window: everything with `after < start <= last`; None is open."""

    after: int | None
    last: int | None
    entries: int
    through: int
    """How far progress may go once it is dealt with."""
    partitions: list[int]
    """Partitions that end in it."""

    @property
    def is_whole(self) -> bool:
        return self.after is None and self.last is None

    def covers(self, start: int) -> bool:
        return (self.after is None or start > self.after) and (self.last is None or start <= self.last)


def cuts(by_start: Iterable[tuple[int, int]], size: int, window: list[int], before: int) -> Iterator[Cut]:
    """Batches of about `size` entries, from the number of entries of each start, in order; a start is never cut."""
    after: int | None = None
    last: int | None = None
    entries = 0
    left = list(window)
    for start, count in by_start:
        if last is not None and entries + count > size:
            passed = [partition for partition in left if partition < start // FINE]
            left = left[len(passed) :]
            through = max(last, min((passed[-1] + 1) * FINE, before) - 1) if passed else last
            yield Cut(after, last, entries, through, passed)
            after, entries = last, 0
        last, entries = start, entries + count
    yield Cut(after, None, entries, min((window[-1] + 1) * FINE, before) - 1, left)


def stretches(parts: int) -> list[Span]:
    """The columns of a shared row in so many stretches, all of them covered, whatever bytes somebody put there."""
    bounds = [var_long(FINE * number // parts) for number in range(1, parts)]
    return [Span(start, end) for start, end in zip([b"", *bounds], [*bounds, b""], strict=True)]
