"""Which compactions a run starts, in what order, and what blocks the other candidates. Pure.

Candidates come in the order of the rules. A candidate that needs a file of an earlier compaction joins that one: a
large old file would otherwise be rewritten once for each young file of tombstones above it. Each compaction uses a part
of the budget of the run. A candidate that does not fit is left for the next run, and smaller ones may follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from sweep_tasks.compaction.proof import Blocked, Blocker, Proven, TableFiles, droppable_in, prove
from sweep_tasks.compaction.rules import AssessedFile, CandidateReason

_WEEK_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Compaction:
    candidate: str
    table: str
    reason: CandidateReason
    rank: int
    files: tuple[str, ...]
    bytes: int
    """The bytes that will be rewritten."""
    tombstones: int
    """The tombstones that will be dropped."""
    points: int
    """The keys in these files, which a reader may have to step over now."""


@dataclass(frozen=True, slots=True)
class BlockedCandidate:
    """A candidate that is not compacted now."""

    candidate: str
    table: str
    reason: CandidateReason
    by: Blocked
    tombstones: int = 0
    """The tombstones that could be dropped without the blocker."""
    waiting: int = 0
    """The tombstones for which gc_grace has not passed."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    compactions: tuple[Compaction, ...]
    blocked: tuple[BlockedCandidate, ...]


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """Candidates that an earlier run attempted without success, each with the cause that was found then."""

    fruitless: Mapping[str, str] = field(default_factory=dict)
    """Compacted, and almost nothing was dropped."""
    declined: Mapping[str, str] = field(default_factory=dict)
    """Declined by the server, or failed."""
    now_s: int = 0

    def blocker(self, candidate: str, table: TableFiles) -> Blocker | None:
        if self.fruitless.get(candidate) == cause_of(candidate, table):
            return Blocker.FRUITLESS
        declined = self.declined.get(candidate) == declined_cause(candidate, table, self.now_s)
        return Blocker.DECLINED if declined else None


class _Draft:
    def __init__(self, tables: Mapping[str, TableFiles], budget: int, attempts: EarlierAttempts) -> None:
        self._tables = tables
        self._budget = self._left = budget
        self._attempts = attempts
        self.compactions: list[Compaction] = []
        self.blocked: list[BlockedCandidate] = []

    def consider(self, verdict: AssessedFile) -> None:
        table = self._tables.get(verdict.table or "")
        if table is None or verdict.file not in table.files:
            return  # it was replaced, and the next run measures the new file
        if any(verdict.file in each.files for each in self.compactions):
            return
        if blocker := self._attempts.blocker(verdict.file, table):
            self._block(verdict, table, Blocked(blocker))
            return
        found = prove(verdict.file, verdict.if_not_pending or verdict.reason, table, self._budget)
        if isinstance(found, Blocked):
            self._block(verdict, table, found)
        elif verdict.eligible:
            self._take(verdict, table, found)
        else:
            self._block(verdict, table, Blocked(Blocker.SERVER_BUSY))

    def _take(self, verdict: AssessedFile, table: TableFiles, proven: Proven) -> None:
        joined = [each for each in self.compactions if not set(each.files).isdisjoint(proven.files)]
        if joined and verdict.reason is CandidateReason.READ:
            self._block(verdict, table, Blocked(Blocker.NEXT_ROUND))  # it must not enlarge a compaction of higher rank
            return
        files = tuple(dict.fromkeys(name for part in (*(each.files for each in joined), proven.files) for name in part))
        compaction = _compaction(joined[0] if joined else None, verdict, table, files)
        more = compaction.bytes - sum(each.bytes for each in joined)
        if more > self._left:
            self._block(verdict, table, Blocked(Blocker.NEXT_ROUND if joined else Blocker.BUDGET))
            return
        self._left -= more
        kept = [each for each in self.compactions if each not in joined]
        self.compactions = sorted([*kept, compaction], key=lambda each: each.rank)

    def _block(self, verdict: AssessedFile, table: TableFiles, by: Blocked) -> None:
        facts = table.files[verdict.file].facts
        counts = (facts.tombstones, facts.waiting) if facts else (0, 0)
        reason = verdict.if_not_pending or verdict.reason
        self.blocked.append(BlockedCandidate(verdict.file, table.name, reason, by, *counts))


def planned(
    verdicts: Iterable[AssessedFile], tables: Mapping[str, TableFiles], budget: int, attempts: EarlierAttempts
) -> CompactionPlan:
    draft = _Draft(tables, budget, attempts)
    for verdict in verdicts:
        if verdict.worth_it:
            draft.consider(verdict)
    # Some candidates that were blocked are part of a later compaction.
    taken = {name for each in draft.compactions for name in each.files}
    return CompactionPlan(
        tuple(draft.compactions), tuple(each for each in draft.blocked if each.candidate not in taken)
    )


def with_all_blocked(plan: CompactionPlan, blocker: Blocker) -> CompactionPlan:
    """The same plan with its compactions blocked as well."""
    more = (blocked_by(blocker, each) for each in plan.compactions)
    return replace(plan, compactions=(), blocked=(*more, *plan.blocked))


def blocked_by(blocker: Blocker, compaction: Compaction) -> BlockedCandidate:
    return BlockedCandidate(
        compaction.candidate, compaction.table, compaction.reason, Blocked(blocker), compaction.tombstones
    )


def cause_of(candidate: str, table: TableFiles) -> str:
    """Return a fingerprint of all that decides the outcome of an attempt: the file itself, the options of its table,
    and the files that may keep its tombstones. While it stays the same, a retry would end in the same way."""
    known = table.files[candidate]
    parts: list[object] = [table.gc_grace_s, sorted(table.compaction.items()), known.metadata.repaired]
    if known.facts and known.facts.droppable:
        last = known.facts.last_written
        older = (name for name, other in table.files.items() if other.metadata.min_timestamp <= last)
        parts += [known.facts.identity, known.facts.tombstones, *sorted(older)]
    return sha256(repr(parts).encode()).hexdigest()[:32]


def declined_cause(candidate: str, table: TableFiles, now_s: int) -> str:
    """Return `cause_of` with the number of the week: why a server declines is not known, so it is retried weekly."""
    return f"{cause_of(candidate, table)} {week_of(now_s)}"


def week_of(now_s: int) -> int:
    return now_s // _WEEK_S


def _compaction(
    first: Compaction | None, verdict: AssessedFile, table: TableFiles, files: tuple[str, ...]
) -> Compaction:
    strategy = table.strategy
    size = sum(table.files[name].size for name in files)
    return Compaction(
        candidate=first.candidate if first else verdict.file,
        table=table.name,
        reason=first.reason if first else verdict.reason,
        rank=first.rank if first else verdict.rank or 0,
        files=files,
        bytes=strategy.cost(size, len(files)) if strategy else size,
        tombstones=droppable_in(files, table),
        points=sum(facts.keys for name in files if (facts := table.files[name].facts)),
    )
