"""Where on the token ring a sweep deleted how much: statistics for nodes whose files cannot be read from here.

A histogram of equal ranges that is as fine as its size allows. It starts with a range for each token; when there are
more than it may hold, neighbours are joined, all of them, until they fit. How fine it ends depends only on what was
added, never on the order or on how the work was shared out: so every task of a sweep keeps one, and they are merged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import add, sub
from typing import Any, NamedTuple

from sweep_tasks.errors import BadValue
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN
from sweep_tasks.store.chunks import chunks

RING_BITS = 64

Both = Callable[[Counter[int], Counter[int]], Counter[int]]


class DeletedRange(NamedTuple):
    """Both ends belong to it."""

    first_token: int
    last_token: int
    deleted: int


class TokenHistogram:
    def __init__(self, most_ranges: int = 4_096) -> None:
        if most_ranges < 1:
            raise BadValue("most_ranges", f"{most_ranges} is not enough; give at least 1")
        self._most = most_ranges
        self._bits = RING_BITS
        self._deleted: Counter[int] = Counter()

    def add(self, token: int, count: int = 1) -> None:
        if not LEAST_TOKEN <= token <= GREATEST_TOKEN:
            raise BadValue("token", f"must be from {LEAST_TOKEN} to {GREATEST_TOKEN}")
        if count < 0:
            raise BadValue("count", "is negative; give what was deleted, or nothing")
        if count:
            self._deleted[_range_of(token, self._bits)] += count
            self._fit()

    def add_all(self, tokens: Collection[int]) -> None:
        """One for each, the same as adding them one by one; several times as fast."""
        if tokens and not (min(tokens) >= LEAST_TOKEN and max(tokens) <= GREATEST_TOKEN):
            raise BadValue("tokens", f"must be from {LEAST_TOKEN} to {GREATEST_TOKEN}")
        for part in chunks(tokens, 4 * self._most):
            shift = RING_BITS - self._bits
            self._deleted.update([(token - LEAST_TOKEN) >> shift for token in part])
            self._fit()

    def merge(self, other: TokenHistogram) -> None:
        """Afterwards this is what it would be had everything been added to it; the smaller of the two sizes holds."""
        both = self._with(other, add)
        self._most, self._bits, self._deleted = both._most, both._bits, both._deleted

    def less(self, other: TokenHistogram) -> TokenHistogram:
        """What is left when all of the other is taken away."""
        return self._with(other, sub)

    @property
    def deleted(self) -> int:
        return self._deleted.total()

    def deleted_between(self, first_token: int, last_token: int) -> int:
        """At most this much was deleted there: ranges that reach across an end are counted whole."""
        first, last = _range_of(first_token, self._bits), _range_of(last_token, self._bits)
        return sum(count for number, count in self._deleted.items() if first <= number <= last)

    def within(self, first_token: int, last_token: int) -> TokenHistogram:
        """What certainly goes when all between these is compacted: nothing of ranges that reach across an end."""
        found = TokenHistogram(self._most)
        found._bits = self._bits
        for number, count in self._deleted.items():
            first, last, _ = _tokens_of(number, count, self._bits)
            if first_token <= first <= last <= last_token:
                found._deleted[number] = count
        return found

    def dense_ranges(self, at_least: int, bits: int = 16) -> list[DeletedRange]:
        """Where that much was deleted within one of 2**bits parts of the ring; neighbours as one. Zero or less: none.

        A histogram that is coarser than that answers by the parts it has.
        """
        seen_at = min(bits, self._bits)
        counts = _coarser(self._deleted, self._bits - seen_at)
        dense = sorted((number, count) for number, count in counts.items() if 0 < at_least <= count)
        return _neighbours_joined(_tokens_of(number, count, seen_at) for number, count in dense)

    def document(self) -> dict[str, Any]:
        """Plain, to be handed from one task to the next."""
        counts = [[number, count] for number, count in sorted(self._deleted.items())]
        return {"most_ranges": self._most, "bits": self._bits, "deleted": counts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TokenHistogram:
        histogram = cls(document["most_ranges"])
        histogram._bits = document["bits"]
        histogram._deleted = Counter(dict(document["deleted"]))
        return histogram

    def _with(self, other: TokenHistogram, both: Both) -> TokenHistogram:
        """Both as fine as the coarser of them is."""
        made = TokenHistogram(min(self._most, other._most))
        made._bits = min(self._bits, other._bits)
        made._deleted = both(
            _coarser(self._deleted, self._bits - made._bits), _coarser(other._deleted, other._bits - made._bits)
        )
        made._fit()
        return made

    def _fit(self) -> None:
        """As fine as it may be. Looked for by halves: tokens are all over the ring, so that most steps join nothing."""
        if len(self._deleted) > self._most:
            fewest = 1 + bisect_left(range(1, self._bits + 1), True, key=self._would_fit)
            self._deleted = _coarser(self._deleted, fewest)
            self._bits -= fewest

    def _would_fit(self, by_bits: int) -> bool:
        return len({number >> by_bits for number in self._deleted}) <= self._most


def _range_of(token: int, bits: int) -> int:
    return (token - LEAST_TOKEN) >> (RING_BITS - bits)


def _tokens_of(number: int, count: int, bits: int) -> DeletedRange:
    width = 1 << (RING_BITS - bits)
    first = LEAST_TOKEN + number * width
    return DeletedRange(first, first + width - 1, count)


def _coarser(deleted: Counter[int], by_bits: int) -> Counter[int]:
    if not by_bits:
        return deleted
    counts: Counter[int] = Counter()
    for number, count in deleted.items():
        counts[number >> by_bits] += count
    return counts


def _neighbours_joined(ranges: Iterable[DeletedRange]) -> list[DeletedRange]:
    joined: list[DeletedRange] = []
    for each in ranges:
        if joined and joined[-1].last_token + 1 == each.first_token:
            before = joined.pop()
            each = DeletedRange(before.first_token, each.last_token, before.deleted + each.deleted)
        joined.append(each)
    return joined
