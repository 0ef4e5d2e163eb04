"""Which table is scanned next, and for how long. Pure: what is known of the tables in, turns out.

A scan reads all of a table, so it goes where it is likely to find something: first tables that somebody asked for, then
those that never were scanned to their end, then those of which a change of strategy has left something, then by what
was written and deleted since the last scan, weighed by how much that one found; and last by time, so that none is
forgotten. Tables that were scanned not long ago wait, unless that scan stopped far short of what may be swept; so do
those of which nothing may be swept yet.

Fair: an hour's time is divided among several tables, and the last of their turns goes to whoever had its own longest
ago, whatever else is known of it. So of n tables that could be scanned each is, once in n rounds, however much others
promise, and however often they fail: tables that take weeks, or never get to their end, keep nobody waiting for ever. A
table too large for its turn goes on at its next one, where it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

from sweep_tasks.model import ScanDue, SweepStrategy, TableRef
from sweep_tasks.protection.targets import Target
from sweep_tasks.sweep.activity import NONE, Written

_LEAST_FOUND = 0.001
"""Even where the last scan found nothing: very many writes since then are worth a look."""


class LastScan(NamedTuple):
    """What the last scan of a whole table found."""

    reach: int
    """How far it went in its table."""
    ended_ms: int
    versions: int
    deleted: int
    lacked: bool = False
    """It could not have done what a change of strategy has left: it did not go far enough, or waits for the queue."""

    @property
    def found(self) -> float:
        """The share of what it examined that could go."""
        return max(_LEAST_FOUND, self.deleted / max(1, self.versions))


class Candidate(NamedTuple):
    table: TableRef
    strategy: SweepStrategy
    last: LastScan | None = None
    last_turn_ms: int = 0
    """When somebody last worked on a scan of it."""
    written: Written = NONE
    """Since the last scan."""
    due: ScanDue | None = None
    reach: int = 0
    """How far it may be swept now."""
    running: bool = False
    cancelled: bool = False
    """Somebody has cancelled its run, and nobody has asked for another since."""
    lacks: bool = False
    """A scan now would not do what a change of strategy has left."""
    stale: int = 0
    """How far a scan could have gone when tables that rest now should have been scanned at the latest."""

    @property
    def expected(self) -> float:
        """What a scan may find: overwritten versions by what the last one found; of a thorough table also each delete
        marker, and of a conservative one what its deletes have hidden."""
        if self.last is None:
            return float(sum(self.written))
        deletes = 1.0 if self.strategy is SweepStrategy.THOROUGH else self.last.found
        return self.last.found * self.written.writes + deletes * self.written.deletes


class Why(IntEnum):
    """In this order."""

    ASKED_FOR = 0
    NEVER_SCANNED = 1
    STRATEGY_CHANGED = 2
    WRITTEN = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


class Policy(NamedTuple):
    first: Collection[Target] = ()
    """Tables that come before all others."""
    never: Collection[Target] = ()
    pause_ms: int = 0
    """How long a table that was scanned to its end is left alone."""
    turns: int = 4
    """Tables that share an hour, if there are as many."""
    patience_ms: int = 86_400_000
    """Where only one has a turn: how long the others wait at most before it goes to whoever waits longest."""


class Turn(NamedTuple):
    table: TableRef
    why: Why
    seconds: float


def turns(candidates: Iterable[Candidate], policy: Policy, budget_s: float, now_ms: int) -> list[Turn]:
    """Whose turn it is, in order. All have the same time; what one leaves over is the next one's."""
    waiting = [(why, each) for each in candidates if (why := reason(each, policy, now_ms)) is not None]
    ordered = sorted(waiting, key=lambda found: _rank(*found))
    chosen, rest = ordered[: policy.turns - 1], ordered[policy.turns - 1 :]
    if rest:
        longest = min(rest, key=lambda found: found[1].last_turn_ms)
        is_owed = policy.turns > 1 or now_ms - longest[1].last_turn_ms >= policy.patience_ms
        chosen.append(longest if is_owed else rest[0])
    return [Turn(each.table, why, budget_s / len(chosen)) for why, each in chosen]


def reason(table: Candidate, policy: Policy, now_ms: int) -> Why | None:
    """Why it should be scanned now; None if it should not."""
    if table.running or table.cancelled or table.strategy is SweepStrategy.NOTHING or _named(table, policy.never):
        return None
    if not table.reach:
        return None
    rested = table.last is None or now_ms - table.last.ended_ms >= policy.pause_ms or _fell_short(table, table.last)
    if _named(table, policy.first) and rested:
        return Why.ASKED_FOR
    if table.last is None:
        return Why.NEVER_SCANNED
    if settles(table):
        return Why.STRATEGY_CHANGED
    return Why.WRITTEN if rested else None


def settles(table: Candidate) -> bool:
    """A scan now would do what a change of strategy has left, and the last one could not have."""
    since = table.due.since if table.due else None
    if since is None or table.last is None or table.lacks:
        return False
    return table.last.reach < since or table.last.lacked


def _fell_short(table: Candidate, last: LastScan) -> bool:
    """It went less far than one could have gone that long ago, and one now can go further: a table does not rest
    because of a scan that a timestamp given by hand, or a transaction that was open, has kept from most of it."""
    return last.reach < min(table.reach, table.stale)


def _named(table: Candidate, targets: Collection[Target]) -> bool:
    return any(target.covers(table.table) for target in targets)


def _rank(why: Why, table: Candidate) -> tuple[object, ...]:
    """Whoever never was scanned to the end takes turns with the others like it; of the rest the one that promises most
    comes first."""
    by_turns = why in (Why.ASKED_FOR, Why.NEVER_SCANNED)
    promise = (table.last_turn_ms, -table.expected) if by_turns else (-table.expected, table.last_turn_ms)
    return (why, *promise, table.table)
