"""The tombstones counted in an SSTable, and which of them may be dropped at a moment."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf, PlainSerializer, TypeAdapter, ValidationError

from sweep_tasks.errors import BadValue
from sweep_tasks.sstables.files import Chunks, Identity, SSTable
from sweep_tasks.sstables.statistics import Block, FileStatistics, HeldRun, PartitionRun, Spread
from sweep_tasks.tables.deletions import TokenHistogram

# ---------------------------------------------------------------------------------------------------------------------
# The facts about one file that a proof needs: how many tombstones may be dropped, when they were written, and where on
# the ring they are.
#
# Whether a compaction drops a tombstone depends on other files as well: on each that may hold the same partition and
# has something as old as the tombstone, or older. So the facts hold the write times of the tombstones and the places of
# the partitions, both coarse enough to stay small: write times that are joined count as the later one, and places that
# are joined as the wider range.
# ---------------------------------------------------------------------------------------------------------------------

MOST_WRITE_TIMES = 32
MOST_RANGES = 256


class WrittenTombstones(NamedTuple):
    """A number of tombstones, none of them written later than `at`."""

    at: int
    tombstones: int


class Places(NamedTuple):
    """Ranges of the ring, out of 2**bits, in which a file has something. Those of many files are in memory at once, so
    the numbers are kept in an array."""

    bits: int
    ranges: Sequence[int]
    """In ascending order."""

    @classmethod
    def of(cls, bits: int, ranges: Iterable[int]) -> Self:
        return cls(bits, array("Q", ranges))

    def meets(self, other: Places) -> bool:
        """Whether both may have something in the same place. True is a guess, as ranges count whole; False is
        certain."""
        bits = min(self.bits, other.bits)
        ours = {number >> (self.bits - bits) for number in self.ranges}
        return any(number >> (other.bits - bits) in ours for number in other.ranges)


def _places(value: Any) -> Places:
    try:
        return value if isinstance(value, Places) else Places.of(*value)
    except (TypeError, OverflowError) as error:
        raise ValueError("not a list of ranges of the ring") from error


StoredPlaces = Annotated[
    InstanceOf[Places],
    BeforeValidator(_places),
    PlainSerializer(lambda places: [places.bits, list(places.ranges)]),
]


@dataclass(frozen=True, slots=True)
class FileFacts:
    identity: Identity
    keys: int
    """All that a compaction has to merge, and a reader may have to step over."""
    droppable: Sequence[WrittenTombstones]
    """Tombstones for which gc_grace has passed, the first written first."""
    waiting: int
    """Tombstones for which gc_grace has not passed."""
    first_from_s: int | None
    """The moment from which the first of those may be dropped."""
    all_from_s: int | None
    longest_run: int
    run_token: int | None
    holds: StoredPlaces
    """Where on the ring its partitions are."""
    buries: StoredPlaces
    """Where on the ring its tombstones are."""

    @property
    def tombstones(self) -> int:
        return sum(each.tombstones for each in self.droppable)

    @property
    def last_written(self) -> int:
        return self.droppable[-1].at

    def written_before(self, timestamp: int) -> int:
        return sum(each.tombstones for each in self.droppable if each.at < timestamp)

    def shares_partitions_with(self, other: FileFacts) -> bool:
        """Whether the other may hold a partition that this one has tombstones in."""
        return self.buries.meets(other.holds)

    def as_json(self) -> dict[str, Any]:
        """The field `proof` of a line of statistics."""
        document: dict[str, Any] = _FACTS.dump_python(self, mode="json")
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileFacts:
        try:
            return _FACTS.validate_python(document)
        except ValidationError:
            problem = "is not what this version measures; measure the node again"
            raise BadValue("proof", problem, reason="not_a_proof") from None


_FACTS = TypeAdapter(FileFacts)


def join_write_times(written: Mapping[int, int]) -> list[WrittenTombstones]:
    """Join the closest write times until few enough are left; joined ones count as the later."""
    kept = dict(written)
    while len(kept) > MOST_WRITE_TIMES:
        spare = len(kept) - MOST_WRITE_TIMES
        closest = sorted(pairwise(sorted(kept)), key=lambda pair: pair[1] - pair[0])[: max(1, spare // 2)]
        for earlier, later in sorted(closest):
            kept[later] += kept.pop(earlier)
    return [WrittenTombstones(at, kept[at]) for at in sorted(kept)]


# ---------------------------------------------------------------------------------------------------------------------
# The counts of an SSTable, and what they mean at a moment.
#
# `MeasuredFile` never changes, except when cells expire, and is kept in the cache. `SSTableStatistics` is derived from
# it for one gc_grace and one moment. A tombstone may be dropped when its deletion and gc_grace are in the past.
# ---------------------------------------------------------------------------------------------------------------------


class Pile(NamedTuple):
    """Tombstones of one block and one age. One that starts in the block before counts there, and its remaining bytes
    here."""

    deleted_s: int
    tombstones: int
    bytes: int
    written: int
    """The greatest write time among them."""


class Total(NamedTuple):
    tombstones: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, piles: Iterator[Pile]) -> Self:
        tombstones = size = 0
        for pile in piles:
            tombstones += pile.tombstones
            size += pile.bytes
        return cls(tombstones, size)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """A histogram of tokens as it is stored: counts in some of 2**bits ranges of the ring."""

    most_ranges: int
    bits: int
    deleted: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, histogram: TokenHistogram) -> Self:
        document = histogram.document()
        counts = [(number, count) for number, count in document["deleted"]]
        return cls(document["most_ranges"], document["bits"], counts)

    @property
    def places(self) -> Places:
        return Places.of(self.bits, (number for number, _ in self.deleted))


@dataclass(frozen=True, slots=True)
class MeasuredFile:
    chunks: Chunks
    piles: Annotated[
        Mapping[int, list[Pile]],
        BeforeValidator(dict),
        PlainSerializer(lambda piles: [[*each] for each in piles.items()]),
    ]
    """By block, without the blocks that have no tombstone."""
    partitions: int
    rows: int
    """Dead ones included."""
    bounds: int
    """Starts and ends of deleted ranges; an end that is also the next start counts once."""
    deleted_partitions: int
    longest_run: int
    run_token: int | None
    """The token of the partition with that run."""
    runs: list[PartitionRun]
    """The longest runs of the partitions, without short ones."""
    first_token: int
    last_token: int
    first_deleted_s: int | None
    last_deleted_s: int | None
    holds_since_s: int
    holds_until_s: int | None
    """Before and after these moments other cells are expired than were counted as expired."""
    holds: TokenCounts
    """Where on the ring its partitions are."""
    buries: TokenCounts
    """Where on the ring its tombstones are."""

    def holds_at(self, now_s: int) -> bool:
        return self.holds_since_s <= now_s and (self.holds_until_s is None or now_s < self.holds_until_s)

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _MEASURED.dump_python(self, mode="json")
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MeasuredFile:
        """Raises ValueError if the document is not one of `as_json`."""
        return _MEASURED.validate_python(document)


_MEASURED = TypeAdapter(MeasuredFile)


class FileSummary(BaseModel, defer_build=True):
    """The figures of one file that are added up over a node. A Spark worker hands it to the driver."""

    model_config = ConfigDict(frozen=True)

    file: str
    table: str
    bytes: int
    droppable: int
    waiting: int
    droppable_from_s: int | None
    runs: tuple[HeldRun, ...]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.model_validate(json.loads(text))


@dataclass(frozen=True, slots=True)
class SSTableStatistics:
    sstable: SSTable
    identity: Identity
    measured: MeasuredFile
    gc_grace_s: int
    now_s: int

    @property
    def size_bytes(self) -> int:
        """The size on disk; `measured.chunks` has the uncompressed size."""
        return self.identity.size

    @property
    def blocks(self) -> list[Block]:
        """The blocks with droppable tombstones, counting only those; a file may have millions of others."""
        chunks = self.measured.chunks
        found = (self._block(number, chunks.size(number)) for number in sorted(self.measured.piles))
        return [each for each in found if each.tombstones or each.tombstone_bytes]

    @property
    def droppable(self) -> Total:
        return Total.of(pile for pile in self._piles() if self._may_be_dropped(pile))

    @property
    def waiting(self) -> Total:
        """Tombstones for which gc_grace has not passed."""
        return Total.of(pile for pile in self._piles() if not self._may_be_dropped(pile))

    @property
    def all_droppable_from_s(self) -> int | None:
        """The moment at which gc_grace will have passed for all tombstones; None without tombstones."""
        last = self.measured.last_deleted_s
        return None if last is None else last + self.gc_grace_s + 1

    @property
    def keys(self) -> int:
        """All that a compaction has to merge."""
        return self.measured.rows + self.measured.bounds + self.measured.deleted_partitions

    def for_plan(self) -> FileStatistics:
        blocks = self.blocks
        return FileStatistics(
            file=str(self.sstable.data),
            table=self.sstable.qualified_table,
            blocks=blocks,
            clean_blocks=len(self.measured.chunks) - len(blocks),
            longest_run=self.measured.longest_run,
            tombstones=self.droppable.tombstones,
            spread=Spread(self.keys, self.measured.first_token, self.measured.last_token),
            proof=self.facts().as_json(),
        )

    def facts(self) -> FileFacts:
        droppable = Counter[int]()
        for pile in self._piles():
            if self._may_be_dropped(pile) and pile.tombstones:
                droppable[pile.written] += pile.tombstones
        waiting = [pile.deleted_s for pile in self._piles() if not self._may_be_dropped(pile)]
        return FileFacts(
            identity=self.identity,
            keys=self.keys,
            droppable=join_write_times(droppable),
            waiting=self.waiting.tombstones,
            first_from_s=min(waiting) + self.gc_grace_s + 1 if waiting else None,
            all_from_s=max(waiting) + self.gc_grace_s + 1 if waiting else None,
            longest_run=self.measured.longest_run,
            run_token=self.measured.run_token,
            holds=self.measured.holds.places,
            buries=self.measured.buries.places,
        )

    def summary(self) -> FileSummary:
        facts = self.facts()
        return FileSummary(
            file=str(self.sstable.data),
            table=self.sstable.qualified_table,
            bytes=self.size_bytes,
            droppable=facts.tombstones,
            waiting=facts.waiting,
            droppable_from_s=facts.all_from_s,
            runs=tuple(self._held(run, facts.waiting) for run in self.measured.runs),
        )

    def json_line(self) -> str:
        """The line that `sweepflow compaction plan --stats` reads."""
        given = self.for_plan()
        spread = given.spread._asdict() if given.spread else {}
        names = ("file", "table", "blocks", "clean_blocks", "longest_run", "tombstones", "proof")
        return json.dumps({**{name: getattr(given, name) for name in names}, **spread}, separators=(",", ":"))

    def _block(self, number: int, size: int) -> Block:
        total = Total.of(pile for pile in self.measured.piles.get(number, ()) if self._may_be_dropped(pile))
        return Block(total.tombstones, min(total.bytes, size), size)

    def _held(self, run: PartitionRun, waiting: int) -> HeldRun:
        """A run no longer counts once gc_grace has passed for the youngest tombstone of its partition."""
        passed = run.last_deleted_s + self.gc_grace_s < self.now_s
        return HeldRun(run.token, run.longest, 0 if passed else min(run.longest, waiting))

    def _piles(self) -> Iterator[Pile]:
        return (pile for piles in self.measured.piles.values() for pile in piles)

    def _may_be_dropped(self, pile: Pile) -> bool:
        return pile.deleted_s + self.gc_grace_s < self.now_s
