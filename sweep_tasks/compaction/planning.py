"""Which compactions a run begins, in what order, and what keeps the other candidates from being compacted. Pure.

Candidates come in the order of the rules. One that takes along a file which an earlier one takes too joins it: a large
old file would otherwise be rewritten once for each young file of tombstones above it. What the run may rewrite is
counted down as they are taken; a candidate that does not fit is left for the next run, and smaller ones may follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from sweep_tasks.compaction.proof import Blocked, Blocker, Proven, TableFacts, droppable_in, prove
from sweep_tasks.compaction.rules import Reason, Verdict

_WEEK_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Compaction:
    candidate: str
    table: str
    reason: Reason
    rank: int
    files: tuple[str, ...]
    bytes: int
    """That will be rewritten."""
    tombstones: int
    """That will go."""
    points: int
    """Keys in these files: what a reader may have to step over now."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A candidate that is not compacted now."""

    candidate: str
    table: str
    reason: Reason
    by: Blocked
    tombstones: int = 0
    """That could go, but for that."""
    waiting: int = 0
    """For gc_grace to pass."""


@dataclass(frozen=True, slots=True)
class Plan:
    compactions: tuple[Compaction, ...]
    stopped: tuple[Stopped, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """Candidates that an earlier run tried for nothing, each with the cause that was found then."""

    fruitless: Mapping[str, str] = field(default_factory=dict)
    """Compacted, and nearly nothing was dropped."""
    declined: Mapping[str, str] = field(default_factory=dict)
    """Not compacted by the server, though it was asked to; or it failed at it."""
    now_s: int = 0

    def in_the_way(self, candidate: str, table: TableFacts) -> Blocker | None:
        if self.fruitless.get(candidate) == cause_of(candidate, table):
            return Blocker.FRUITLESS
        asked = self.declined.get(candidate) == declined_cause(candidate, table, self.now_s)
        return Blocker.DECLINED if asked else None


class _Draft:
    def __init__(self, tables: Mapping[str, TableFacts], budget: int, tried: Tried) -> None:
        self._tables = tables
        self._budget = self._left = budget
        self._tried = tried
        self.compactions: list[Compaction] = []
        self.stopped: list[Stopped] = []

    def consider(self, verdict: Verdict) -> None:
        table = self._tables.get(verdict.table or "")
        if table is None or verdict.file not in table.files:
            return  # it is gone, and what took its place will be measured
        if any(verdict.file in each.files for each in self.compactions):
            return
        if tried := self._tried.in_the_way(verdict.file, table):
            self._stop(verdict, table, Blocked(tried))
            return
        found = prove(verdict.file, verdict.if_not_pending or verdict.reason, table, self._budget)
        if isinstance(found, Blocked):
            self._stop(verdict, table, found)
        elif verdict.eligible:
            self._take(verdict, table, found)
        else:
            self._stop(verdict, table, Blocked(Blocker.SERVER_BUSY))

    def _take(self, verdict: Verdict, table: TableFacts, proven: Proven) -> None:
        joined = [each for each in self.compactions if not set(each.files).isdisjoint(proven.files)]
        if joined and verdict.reason is Reason.READ:
            self._stop(verdict, table, Blocked(Blocker.NEXT_ROUND))  # it must not make larger what goes before it
            return
        files = tuple(dict.fromkeys(name for part in (*(each.files for each in joined), proven.files) for name in part))
        compaction = _compaction(joined[0] if joined else None, verdict, table, files)
        more = compaction.bytes - sum(each.bytes for each in joined)
        if more > self._left:
            self._stop(verdict, table, Blocked(Blocker.NEXT_ROUND if joined else Blocker.BUDGET))
            return
        self._left -= more
        kept = [each for each in self.compactions if each not in joined]
        self.compactions = sorted([*kept, compaction], key=lambda each: each.rank)

    def _stop(self, verdict: Verdict, table: TableFacts, by: Blocked) -> None:
        facts = table.files[verdict.file].facts
        counts = (facts.tombstones, facts.waiting) if facts else (0, 0)
        reason = verdict.if_not_pending or verdict.reason
        self.stopped.append(Stopped(verdict.file, table.name, reason, by, *counts))


def planned(verdicts: Iterable[Verdict], tables: Mapping[str, TableFacts], budget: int, tried: Tried) -> Plan:
    draft = _Draft(tables, budget, tried)
    for verdict in verdicts:
        if verdict.worth_it:
            draft.consider(verdict)
    taken = {name for each in draft.compactions for name in each.files}  # along with a later one, some of them
    return Plan(tuple(draft.compactions), tuple(each for each in draft.stopped if each.candidate not in taken))


def all_stopped(plan: Plan, blocker: Blocker) -> Plan:
    """What would have been compacted is blocked as well."""
    more = (kept_by(blocker, each) for each in plan.compactions)
    return replace(plan, compactions=(), stopped=(*more, *plan.stopped))


def kept_by(blocker: Blocker, compaction: Compaction) -> Stopped:
    return Stopped(compaction.candidate, compaction.table, compaction.reason, Blocked(blocker), compaction.tombstones)


def cause_of(candidate: str, table: TableFacts) -> str:
    """The same for as long as nothing changes that could make a second attempt end otherwise: the file itself, what its
    table says about dropping, and the files that may keep its tombstones."""
    known = table.files[candidate]
    parts: list[object] = [table.gc_grace_s, sorted(table.compaction.items()), known.metadata.repaired]
    if known.facts and known.facts.droppable:
        last = known.facts.last_written
        older = (name for name, other in table.files.items() if other.metadata.min_timestamp <= last)
        parts += [known.facts.identity, known.facts.tombstones, *sorted(older)]
    return sha256(repr(parts).encode()).hexdigest()[:32]


def declined_cause(candidate: str, table: TableFacts, now_s: int) -> str:
    """The same for a week at most: why a server declines is not known, so it may be over without a trace."""
    return f"{cause_of(candidate, table)} {week_of(now_s)}"


def week_of(now_s: int) -> int:
    return now_s // _WEEK_S


def _compaction(first: Compaction | None, verdict: Verdict, table: TableFacts, files: tuple[str, ...]) -> Compaction:
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
