"""Whether a compaction of a file would drop its tombstones, before it is begun. Pure: facts in, a verdict out.

Cassandra drops a tombstone if gc_grace has passed since its deletion, and if nothing outside of the compaction that may
hold the same partition, in another file or in memory, was written as early as the tombstone or earlier. So the files
that would keep a candidate's tombstones go along with it, if they may and if that is not too much to rewrite. If not
half of what gc_grace lets go would go, the candidate is blocked, and by what is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sweep_tasks.compaction.facts import Facts
from sweep_tasks.compaction.metadata import Metadata
from sweep_tasks.compaction.rules import Reason
from sweep_tasks.compaction.sstables import Identity
from sweep_tasks.compaction.strategies import Apart, Strategy, strategy_of

LEAST_SHARE = 2
"""One in so many of the droppable tombstones must go."""


class Blocker(StrEnum):
    GC_GRACE = "gc_grace"
    OVERLAP_TOO_LARGE = "overlap_too_large"
    TOO_LARGE = "too_large"
    ONLY_PURGE_REPAIRED = "only_purge_repaired"
    REPAIR = "repair"
    OLD_SENTINELS = "old_sentinels"
    COMPACTION_DISABLED = "compaction_disabled"
    STRATEGY = "strategy"
    TIME_WINDOWS = "time_windows"
    APART = "apart"
    NOTHING_DROPPABLE = "nothing_droppable"
    NOT_MEASURED = "not_measured"
    FRUITLESS = "fruitless"
    DECLINED = "declined"
    FAILED = "failed"
    SERVER_BUSY = "server_busy"
    BUDGET = "budget"
    NEXT_ROUND = "next_round"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a file; nothing of its contents if it could not be measured."""

    identity: Identity
    metadata: Metadata
    facts: Facts | None

    @property
    def size(self) -> int:
        return self.identity.size


@dataclass(frozen=True, slots=True)
class TableFacts:
    name: str
    gc_grace_s: int
    compaction: Mapping[str, str]
    compacting: bool
    """The server compacts it of itself: nobody has switched that off."""
    files: Mapping[str, Known]

    @property
    def strategy(self) -> Strategy | None:
        return strategy_of(self.compaction)


@dataclass(frozen=True, slots=True)
class Blocked:
    blocker: Blocker
    files: tuple[str, ...] = ()
    """What blocks, where that is files."""
    until_s: int | None = None
    first_s: int | None = None


@dataclass(frozen=True, slots=True)
class Proven:
    """Compacted together, these files lose their tombstones."""

    files: tuple[str, ...]


def prove(candidate: str, reason: Reason, table: TableFacts, budget: int) -> Proven | Blocked:
    """`budget`: bytes that a run may rewrite, all of them."""
    known, strategy = table.files[candidate], table.strategy
    if strategy is None:
        return Blocked(Blocker.STRATEGY)
    if known.facts is None:
        return Blocked(Blocker.NOT_MEASURED)
    marks = known.metadata.repaired, known.metadata.pending_repair
    blocked = by_the_table(strategy, table.compacting, *marks) or _by_gc_grace(known.facts, reason)
    return blocked or _with_what_keeps_it(candidate, known.facts, table, strategy, budget)


def _with_what_keeps_it(
    candidate: str, facts: Facts, table: TableFacts, strategy: Strategy, budget: int
) -> Proven | Blocked:
    older = {name: other for name, other in table.files.items() if name != candidate and _keeps(other, facts)}
    places = {name: strategy.apart(Path(name), table.files[name].metadata) for name in (candidate, *older)}
    place = places[candidate]
    allowed = {name for name, other in older.items() if places[name] == place and not other.metadata.pending_repair}
    taken = _affordable(candidate, allowed, table, strategy, budget)
    if taken is None:
        return Blocked(Blocker.TOO_LARGE)
    left = {name: other for name, other in older.items() if name not in taken}
    if facts.written_before(_least(left.values())) * LEAST_SHARE >= facts.tombstones:
        return Proven((candidate, *sorted(taken)))
    return Blocked(_why_left(place, left, places), tuple(sorted(left)))


def droppable_in(files: Collection[str], table: TableFacts) -> int:
    """Tombstones that go if these files are compacted together."""
    outside = [known for name, known in table.files.items() if name not in files]
    return sum(
        facts.written_before(_least(other for other in outside if _keeps(other, facts)))
        for name in files
        if (facts := table.files[name].facts) and facts.droppable
    )


def by_the_table(
    strategy: Strategy, compacting: bool, repaired: bool = False, pending_repair: bool = False
) -> Blocked | None:
    """What its schema, a switch on the node and repairs say about compacting a file of it."""
    if not (strategy.enabled and compacting):
        return Blocked(Blocker.COMPACTION_DISABLED)
    if pending_repair:
        return Blocked(Blocker.REPAIR)
    if strategy.only_purges_repaired and not repaired:
        return Blocked(Blocker.ONLY_PURGE_REPAIRED)
    return None


def _by_gc_grace(facts: Facts, reason: Reason) -> Blocked | None:
    waits = Blocked(Blocker.GC_GRACE, until_s=facts.all_from_s, first_s=facts.first_from_s)
    if not facts.tombstones:
        return waits if facts.waiting else Blocked(Blocker.NOTHING_DROPPABLE)
    # Blocks count what may go; a run of dead cells, and a read over it, know no gc_grace.
    counts_all = reason in (Reason.LONG_RUN, Reason.READ)
    return waits if counts_all and facts.tombstones < facts.waiting else None


def _keeps(other: Known, facts: Facts) -> bool:
    """Whether another file, left outside, may keep some of these tombstones. One not measured may hold anything."""
    early = other.metadata.min_timestamp <= facts.last_written
    return early and (other.facts is None or facts.shares_partitions_with(other.facts))


def _affordable(
    candidate: str, taken: Collection[str], table: TableFacts, strategy: Strategy, budget: int
) -> set[str] | None:
    """As many of those as the budget allows, the largest left out first; None if it does not even do for one file."""
    kept = sorted(taken, key=lambda name: (table.files[name].size, name))
    while True:
        size = sum(table.files[name].size for name in (candidate, *kept))
        if strategy.cost(size, 1 + len(kept)) <= budget:
            return set(kept)
        if not kept:
            return None
        kept.pop()


def _least(files: Iterable[Known]) -> int:
    return min((known.metadata.min_timestamp for known in files), default=2**63)


def _why_left(place: Apart, left: Mapping[str, Known], places: Mapping[str, Apart]) -> Blocker:
    """The cause that most needs somebody to do something, of all that files were left for."""
    if any(known.metadata.min_timestamp < 0 for known in left.values()):
        return Blocker.OLD_SENTINELS
    if any(known.metadata.pending_repair for known in left.values()):
        return Blocker.REPAIR
    if any(places[name].window != place.window for name in left):
        return Blocker.TIME_WINDOWS
    return Blocker.APART if any(places[name] != place for name in left) else Blocker.OVERLAP_TOO_LARGE
