"""A file's tombstones against the keys that lie in the same place: its own, and those of the files it overlaps.

A tombstone can be dropped only together with whatever it hides, so a compaction takes the files of the same token range
along. Tombstones for keys rewritten is what it gains for what it costs. That finds files whose tombstones lie too thin
for any single block to be dense: one for every live row of a few hundred bytes, say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple


class Spread(NamedTuple):
    """The keys of a file, dead ones included, and the tokens of its first and its last."""

    keys: int
    first_token: int
    last_token: int


def keys_in_reach(files: Sequence[Spread]) -> list[int]:
    """For each of the files the keys of all that share a token with its range, its own among them.

    Two files are apart if one begins after the other has ended. So it is all that begin by the end of a file, less
    those that end before its start: two lookups instead of a comparison with every other.
    """
    begun = _Sums((file.first_token, file.keys) for file in files)
    ended = _Sums((file.last_token, file.keys) for file in files)
    return [begun.up_to(file.last_token) - ended.before(file.first_token) for file in files]


def overlap(tombstones: int, keys: int) -> Fraction:
    """Tombstones for each key in reach. A row may hold several, but more than all of it can't be dead."""
    return Fraction(min(tombstones, keys), keys) if keys > 0 else Fraction(0)


class _Sums:
    """Keys by token, summed from the least token on."""

    def __init__(self, keys: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(keys)
        self._tokens = [token for token, _ in ordered]
        self._sums = [0, *accumulate(count for _, count in ordered)]

    def up_to(self, token: int) -> int:
        return self._sums[bisect_right(self._tokens, token)]

    def before(self, token: int) -> int:
        return self._sums[bisect_left(self._tokens, token)]
