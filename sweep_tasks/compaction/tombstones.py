"""What was counted in an SSTable, and what that means at a moment: which of its tombstones may be dropped.

`Measured` is the same for ever, or until a cell's time is up, and is what the cache keeps. `SSTableStatistics` is its
answer for one gc_grace and one moment. A tombstone may be dropped when its deletion and gc_grace lie in the past.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Self

from sweep_tasks.compaction.chunks import Chunks
from sweep_tasks.compaction.facts import Facts, Places, later_joined
from sweep_tasks.compaction.overlaps import Spread
from sweep_tasks.compaction.rules import Block, FileStatistics
from sweep_tasks.compaction.runs import Held, PartitionRun
from sweep_tasks.compaction.sstables import Identity, SSTable

Document = Mapping[str, Any]


class Pile(NamedTuple):
    """Tombstones of one block and one age. One that reaches over from the block before counts there, its rest here."""

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
class Measured:
    chunks: Chunks
    piles: Mapping[int, Sequence[Pile]]
    """By block, those without a tombstone left out."""
    partitions: int
    rows: int
    """Dead ones included."""
    bounds: int
    """Starts and ends of deleted ranges; where one ends as the next begins, that is one."""
    deleted_partitions: int
    longest_run: int
    run_token: int | None
    """Of the partition with that run."""
    runs: Sequence[PartitionRun]
    """The longest of the partitions, except for short ones."""
    first_token: int
    last_token: int
    first_deleted_s: int | None
    last_deleted_s: int | None
    holds_since_s: int
    holds_until_s: int | None
    """Outside of these moments other cells are expired than were counted so."""
    holds: Document
    """Where on the ring its partitions are, as a histogram of tokens."""
    buries: Document
    """And where its tombstones are."""

    def holds_at(self, now_s: int) -> bool:
        return self.holds_since_s <= now_s and (self.holds_until_s is None or now_s < self.holds_until_s)

    def as_json(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "chunks": asdict(self.chunks), "piles": [[*each] for each in self.piles.items()]}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        piles = {number: [Pile(*pile) for pile in piles] for number, piles in kept["piles"]}
        runs = [PartitionRun(*run) for run in kept["runs"]]
        return cls(**{**kept, "chunks": Chunks(**kept["chunks"]), "piles": piles, "runs": runs})


@dataclass(frozen=True, slots=True)
class SSTableStatistics:
    sstable: SSTable
    identity: Identity
    measured: Measured
    gc_grace_s: int
    now_s: int

    @property
    def size_bytes(self) -> int:
        """On disk; `measured.chunks` knows how much it is when unpacked."""
        return self.identity.size

    @property
    def blocks(self) -> list[Block]:
        """Those with tombstones that may be dropped, with those alone; all others are only counted, as a file may have
        millions of them."""
        chunks = self.measured.chunks
        found = (self._block(number, chunks.size(number)) for number in sorted(self.measured.piles))
        return [each for each in found if each.tombstones or each.tombstone_bytes]

    @property
    def droppable(self) -> Total:
        return Total.of(pile for pile in self._piles() if self._may_go(pile))

    @property
    def waiting(self) -> Total:
        """For gc_grace to pass."""
        return Total.of(pile for pile in self._piles() if not self._may_go(pile))

    @property
    def all_droppable_from_s(self) -> int | None:
        """The moment at which gc_grace will have passed for all of them; none if there is none."""
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

    def facts(self) -> Facts:
        gone = Counter[int]()
        for pile in self._piles():
            if self._may_go(pile) and pile.tombstones:
                gone[pile.written] += pile.tombstones
        waiting = [pile.deleted_s for pile in self._piles() if not self._may_go(pile)]
        return Facts(
            identity=self.identity,
            keys=self.keys,
            droppable=later_joined(gone),
            waiting=self.waiting.tombstones,
            first_from_s=min(waiting) + self.gc_grace_s + 1 if waiting else None,
            all_from_s=max(waiting) + self.gc_grace_s + 1 if waiting else None,
            longest_run=self.measured.longest_run,
            run_token=self.measured.run_token,
            holds=Places.in_histogram(self.measured.holds),
            buries=Places.in_histogram(self.measured.buries),
        )

    def brief(self) -> dict[str, Any]:
        """What is summed up over many files, or told of the worst."""
        facts = self.facts()
        return {
            "file": str(self.sstable.data),
            "table": self.sstable.qualified_table,
            "bytes": self.size_bytes,
            "droppable": facts.tombstones,
            "waiting": facts.waiting,
            "droppable_from_s": facts.all_from_s,
            "runs": [self._held(run, facts.waiting) for run in self.measured.runs],
        }

    def json_line(self) -> str:
        """As `sweepflow compaction plan --stats` reads it."""
        given = self.for_plan()
        spread = given.spread._asdict() if given.spread else {}
        names = ("file", "table", "blocks", "clean_blocks", "longest_run", "tombstones", "proof")
        return json.dumps({**{name: getattr(given, name) for name in names}, **spread}, separators=(",", ":"))

    def _block(self, number: int, size: int) -> Block:
        total = Total.of(pile for pile in self.measured.piles.get(number, ()) if self._may_go(pile))
        return Block(total.tombstones, min(total.bytes, size), size)

    def _held(self, run: PartitionRun, waiting: int) -> Held:
        """None of a run counts once gc_grace has passed for the youngest of its partition."""
        passed = run.last_deleted_s + self.gc_grace_s < self.now_s
        return Held(run.token, run.longest, 0 if passed else min(run.longest, waiting))

    def _piles(self) -> Iterator[Pile]:
        return (pile for piles in self.measured.piles.values() for pile in piles)

    def _may_go(self, pile: Pile) -> bool:
        return pile.deleted_s + self.gc_grace_s < self.now_s
