"""What a proof needs to know of one file's tombstones: how many may go, how they were written, and where they lie.

Whether a compaction drops a tombstone depends on other files as well: on each that may hold the same partition and has
something as old as the tombstone, or older. So a file tells the write times of its tombstones and the places of its
partitions, both coarsely enough to stay small: what is joined counts as written later, and lies in the wider range.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple, Self

from sweep_tasks.compaction.sstables import Identity

MOST_WRITE_TIMES = 32
MOST_RANGES = 256
_PLACES = ("holds", "buries")


class Written(NamedTuple):
    """So many tombstones, none of them written later than this."""

    at: int
    tombstones: int


class Places(NamedTuple):
    """Ranges of the ring, 2**bits of them, in which a file has something. Of many files these are held at once, so they
    take no more room than their numbers do."""

    bits: int
    ranges: Sequence[int]
    """In their order."""

    @classmethod
    def of(cls, bits: int, ranges: Iterable[int]) -> Self:
        return cls(bits, array("Q", ranges))

    @classmethod
    def in_histogram(cls, document: Mapping[str, Any]) -> Self:
        """As `TokenHistogram.document` tells it."""
        return cls.of(document["bits"], (number for number, _ in document["deleted"]))

    def meets(self, other: Places) -> bool:
        """Whether both may have something in the same place. Yes is a guess, as ranges count whole; no is certain."""
        bits = min(self.bits, other.bits)
        ours = {number >> (self.bits - bits) for number in self.ranges}
        return any(number >> (other.bits - bits) in ours for number in other.ranges)


@dataclass(frozen=True, slots=True)
class Facts:
    identity: Identity
    keys: int
    """All that a compaction has to merge, and a reader may have to step over."""
    droppable: Sequence[Written]
    """gc_grace has passed for them; the first written first."""
    waiting: int
    """For gc_grace to pass."""
    first_from_s: int | None
    """The moment from which the first of those may be dropped."""
    all_from_s: int | None
    longest_run: int
    run_token: int | None
    holds: Places
    """Where on the ring its partitions are."""
    buries: Places
    """And where its tombstones are."""

    @property
    def tombstones(self) -> int:
        return sum(each.tombstones for each in self.droppable)

    @property
    def last_written(self) -> int:
        return self.droppable[-1].at

    def written_before(self, timestamp: int) -> int:
        return sum(each.tombstones for each in self.droppable if each.at < timestamp)

    def shares_partitions_with(self, other: Facts) -> bool:
        """Whether the other may hold a partition that this one has tombstones in."""
        return self.buries.meets(other.holds)

    def as_json(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        places = {name: [plain[name].bits, list(plain[name].ranges)] for name in _PLACES}
        return {
            **plain,
            **places,
            "identity": list(self.identity),
            "droppable": [list(each) for each in self.droppable],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        droppable = [Written(*each) for each in kept["droppable"]]
        places = {name: Places.of(*kept[name]) for name in _PLACES}
        return cls(**{**kept, **places, "identity": Identity(*kept["identity"]), "droppable": droppable})


def later_joined(written: Mapping[int, int]) -> list[Written]:
    """At most so many as are kept, the closest taken for the later one."""
    kept = dict(written)
    while len(kept) > MOST_WRITE_TIMES:
        spare = len(kept) - MOST_WRITE_TIMES
        closest = sorted(pairwise(sorted(kept)), key=lambda pair: pair[1] - pair[0])[: max(1, spare // 2)]
        for earlier, later in sorted(closest):
            kept[later] += kept.pop(earlier)
    return [Written(at, kept[at]) for at in sorted(kept)]
