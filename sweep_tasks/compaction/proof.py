"""Whether a compaction of a file would drop its tombstones, before it is started. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.sstables.files import Identity
from sweep_tasks.sstables.nodes import FileMetadata
from sweep_tasks.sstables.tombstones import FileFacts

# ---------------------------------------------------------------------------------------------------------------------
# What a user-defined compaction does under each compaction strategy of Cassandra 5.0.
#
# Observed on a real server:
#
# - size-tiered and unified: all named files are compacted together, into as many files as the strategy would write;
# - leveled: one file alone keeps its level; several become one file of level 0, which the server has to write a second
#   time into the levels above;
# - time windows: all named files are merged, whatever window they belong to. That would undo the separation by windows
#   for good, so files of different windows are never put into one compaction here.
#
# Under every strategy, repaired files are compacted apart from unrepaired ones, and the files of each data folder apart
# from those of the others.
# ---------------------------------------------------------------------------------------------------------------------

_UNITS_S = {"MINUTES": 60, "HOURS": 3_600, "DAYS": 86_400}
_A_SECOND = {"SECONDS": 1, "MILLISECONDS": 10**3, "MICROSECONDS": 10**6, "NANOSECONDS": 10**9}
_TABLE_FOLDERS = 3
"""Levels below the data folder: keyspace, table and file."""


class StrategyKind(StrEnum):
    SIZE_TIERED = "SizeTieredCompactionStrategy"
    LEVELED = "LeveledCompactionStrategy"
    TIME_WINDOWS = "TimeWindowCompactionStrategy"
    UNIFIED = "UnifiedCompactionStrategy"


class Apart(NamedTuple):
    """What two files must have in common to be compacted together."""

    folder: Path
    repaired: bool
    window: int | None


@dataclass(frozen=True, slots=True)
class Strategy:
    kind: StrategyKind
    options: Mapping[str, str]

    @property
    def enabled(self) -> bool:
        return self.options.get("enabled", "true").lower() != "false"

    @property
    def only_purges_repaired(self) -> bool:
        return self.options.get("only_purge_repaired_tombstones", "false").lower() == "true"

    def cost(self, size: int, files: int) -> int:
        """The bytes that are rewritten in the end."""
        return 2 * size if self.kind is StrategyKind.LEVELED and files > 1 else size

    def apart(self, file: Path, metadata: FileMetadata) -> Apart:
        return Apart(file.parents[_TABLE_FOLDERS - 1], metadata.repaired, self._window(metadata.max_timestamp))

    def _window(self, timestamp: int) -> int | None:
        """The number of the time window that the latest write of a file belongs to."""
        if self.kind is not StrategyKind.TIME_WINDOWS:
            return None
        unit = _UNITS_S[self.options.get("compaction_window_unit", "DAYS").upper()]
        size = unit * int(self.options.get("compaction_window_size", "1"))
        return timestamp // _A_SECOND[self.options.get("timestamp_resolution", "MICROSECONDS").upper()] // size


def strategy_of(options: Mapping[str, str]) -> Strategy | None:
    """The strategy of a table; None if it is not one of Cassandra 5.0, so that its effect is not known."""
    name = options.get("class", "").rpartition(".")[2]
    return Strategy(StrategyKind(name), options) if name in set(StrategyKind) else None


# ---------------------------------------------------------------------------------------------------------------------
# The proof that a compaction of a file would drop its tombstones. Pure: facts in, a verdict out.
#
# Cassandra drops a tombstone if gc_grace has passed since its deletion, and if nothing outside of the compaction that
# may hold the same partition, in another file or in memory, was written as early as the tombstone or earlier. So the
# files that would keep a candidate's tombstones are compacted with it, if they may be and if the budget allows it. If
# less than half of its droppable tombstones would be dropped, the candidate is blocked, and the blocker is named.
# ---------------------------------------------------------------------------------------------------------------------

LEAST_SHARE = 2
"""One in this many of the droppable tombstones must be dropped."""


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
class KnownFile:
    """What is known about a file; its contents are not known if it could not be measured."""

    identity: Identity
    metadata: FileMetadata
    facts: FileFacts | None

    @property
    def size(self) -> int:
        return self.identity.size


@dataclass(frozen=True, slots=True)
class TableFiles:
    name: str
    gc_grace_s: int
    compaction: Mapping[str, str]
    compacting: bool
    """Automatic compaction is enabled."""
    files: Mapping[str, KnownFile]

    @property
    def strategy(self) -> Strategy | None:
        return strategy_of(self.compaction)


@dataclass(frozen=True, slots=True)
class Blocked:
    blocker: Blocker
    files: tuple[str, ...] = ()
    """The files that block, if files do."""
    until_s: int | None = None
    first_s: int | None = None


@dataclass(frozen=True, slots=True)
class Proven:
    """Files whose tombstones are dropped if they are compacted together."""

    files: tuple[str, ...]


def prove(candidate: str, reason: CandidateReason, table: TableFiles, budget: int) -> Proven | Blocked:
    """Prove that compacting the candidate drops tombstones, or name the blocker. `budget`: the bytes of the whole
    run."""
    known, strategy = table.files[candidate], table.strategy
    if strategy is None:
        return Blocked(Blocker.STRATEGY)
    if known.facts is None:
        return Blocked(Blocker.NOT_MEASURED)
    marks = known.metadata.repaired, known.metadata.pending_repair
    blocked = by_the_table(strategy, table.compacting, *marks) or _by_gc_grace(known.facts, reason)
    return blocked or _with_older_files(candidate, known.facts, table, strategy, budget)


def _with_older_files(
    candidate: str, facts: FileFacts, table: TableFiles, strategy: Strategy, budget: int
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


def droppable_in(files: Collection[str], table: TableFiles) -> int:
    """The number of tombstones that are dropped if these files are compacted together."""
    outside = [known for name, known in table.files.items() if name not in files]
    return sum(
        facts.written_before(_least(other for other in outside if _keeps(other, facts)))
        for name in files
        if (facts := table.files[name].facts) and facts.droppable
    )


def by_the_table(
    strategy: Strategy, compacting: bool, repaired: bool = False, pending_repair: bool = False
) -> Blocked | None:
    """Return what blocks the compaction of a file: the schema of its table, a switch on the node, or a repair."""
    if not (strategy.enabled and compacting):
        return Blocked(Blocker.COMPACTION_DISABLED)
    if pending_repair:
        return Blocked(Blocker.REPAIR)
    if strategy.only_purges_repaired and not repaired:
        return Blocked(Blocker.ONLY_PURGE_REPAIRED)
    return None


def _by_gc_grace(facts: FileFacts, reason: CandidateReason) -> Blocked | None:
    waits = Blocked(Blocker.GC_GRACE, until_s=facts.all_from_s, first_s=facts.first_from_s)
    if not facts.tombstones:
        return waits if facts.waiting else Blocked(Blocker.NOTHING_DROPPABLE)
    # Blocks count droppable tombstones; a run of dead cells, and a read over it, count those within gc_grace too.
    counts_all = reason in (CandidateReason.LONG_RUN, CandidateReason.READ)
    return waits if counts_all and facts.tombstones < facts.waiting else None


def _keeps(other: KnownFile, facts: FileFacts) -> bool:
    """Whether another file, left out, may keep some of these tombstones. A file that is not measured may hold
    anything."""
    early = other.metadata.min_timestamp <= facts.last_written
    return early and (other.facts is None or facts.shares_partitions_with(other.facts))


def _affordable(
    candidate: str, taken: Collection[str], table: TableFiles, strategy: Strategy, budget: int
) -> set[str] | None:
    """As many of those files as the budget allows, without the largest; None if it is too small for the candidate."""
    kept = sorted(taken, key=lambda name: (table.files[name].size, name))
    while True:
        size = sum(table.files[name].size for name in (candidate, *kept))
        if strategy.cost(size, 1 + len(kept)) <= budget:
            return set(kept)
        if not kept:
            return None
        kept.pop()


def _least(files: Iterable[KnownFile]) -> int:
    return min((known.metadata.min_timestamp for known in files), default=2**63)


def _why_left(place: Apart, left: Mapping[str, KnownFile], places: Mapping[str, Apart]) -> Blocker:
    """The blocker that most needs an operator, of all reasons for which files were left out."""
    if any(known.metadata.min_timestamp < 0 for known in left.values()):
        return Blocker.OLD_SENTINELS
    if any(known.metadata.pending_repair for known in left.values()):
        return Blocker.REPAIR
    if any(places[name].window != place.window for name in left):
        return Blocker.TIME_WINDOWS
    return Blocker.APART if any(places[name] != place for name in left) else Blocker.OVERLAP_TOO_LARGE
