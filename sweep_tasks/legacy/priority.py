"""Which tables are scanned next, and for how long. Pure: facts about the tables in, scheduled slots out.

A scan reads all of a table, so the tables where it is likely to find something come first: tables that the settings
name, then tables that were never scanned completely, then those with an incomplete change of strategy, then by the
writes and deletes since the last scan, weighted by how much that scan found; and last by time. Tables that were scanned
recently wait, unless that scan stopped far below the current horizon; so do tables of which nothing may be swept yet.

Fair: an hour is divided among several tables, and the last slot goes to the table that has waited longest, whatever
else is known about it. So each of n tables is scanned at least once in n rounds, however much others promise and
however often they fail: a table that takes weeks does not keep the others waiting for ever. A table that is too large
for its slot resumes in its next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

from sweep_tasks.model import ScanDue, SweepStrategy, TableRef
from sweep_tasks.protection.records import Target
from sweep_tasks.tables.activity import NONE, WriteCounts

_LEAST_FOUND = 0.001
"""The assumed share if the last scan found nothing: very many writes since then are worth a scan."""


class FinishedScan(NamedTuple):
    """The result of the last scan of a whole table."""

    sweep_ts: int
    """The timestamp that it reached in its table."""
    ended_ms: int
    versions: int
    deleted: int
    lacked: bool = False
    """It could not complete a change of strategy: it did not go far enough, or waits for the queue."""

    @property
    def found(self) -> float:
        """Return the share of the examined versions that were removable."""
        return max(_LEAST_FOUND, self.deleted / max(1, self.versions))


class Candidate(NamedTuple):
    table: TableRef
    strategy: SweepStrategy
    last: FinishedScan | None = None
    last_scheduled_ms: int = 0
    """When a scan of it was last scheduled or worked on."""
    written: WriteCounts = NONE
    """Since the last scan."""
    due: ScanDue | None = None
    sweep_ts: int = 0
    """The timestamp that it may be swept to now."""
    running: bool = False
    cancelled: bool = False
    """Its run was cancelled, and no scan was requested since."""
    lacks: bool = False
    """A scan now would not complete a change of strategy."""
    stale: int = 0
    """The timestamp that a scan could have reached one rest period ago."""

    @property
    def expected(self) -> float:
        """Estimate the versions that a scan removes: the writes, weighted by what the last scan found; in a thorough
        table also each delete marker, in a conservative one the versions that its deletes have hidden."""
        if self.last is None:
            return float(sum(self.written))
        deletes = 1.0 if self.strategy is SweepStrategy.THOROUGH else self.last.found
        return self.last.found * self.written.writes + deletes * self.written.deletes


class ScanCause(IntEnum):
    """Why a table is scanned, the most urgent reason first."""

    ASKED_FOR = 0
    NEVER_SCANNED = 1
    STRATEGY_CHANGED = 2
    WRITTEN = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


class Policy(NamedTuple):
    first: Collection[Target] = ()
    """Tables that are scanned before all others."""
    never: Collection[Target] = ()
    pause_ms: int = 0
    """How long a table rests after a complete scan."""
    tables_per_slot: int = 4
    """The number of tables that share one worker slot in a run."""
    patience_ms: int = 86_400_000
    """If there is only one slot: how long other tables wait at most before the longest waiting one gets it."""


class ScheduledScan(NamedTuple):
    """A scan that is scheduled next, with its share of the time."""

    table: TableRef
    why: ScanCause
    seconds: float


def scheduled_scans(
    candidates: Iterable[Candidate], policy: Policy, budget_s: float, now_ms: int
) -> list[ScheduledScan]:
    """Return the next scans of a worker slot in order. All have the same time; one may use what the last one left."""
    waiting = [(why, each) for each in candidates if (why := reason(each, policy, now_ms)) is not None]
    ordered = sorted(waiting, key=lambda found: _rank(*found))
    chosen, rest = ordered[: policy.tables_per_slot - 1], ordered[policy.tables_per_slot - 1 :]
    if rest:
        longest = min(rest, key=lambda found: found[1].last_scheduled_ms)
        is_owed = policy.tables_per_slot > 1 or now_ms - longest[1].last_scheduled_ms >= policy.patience_ms
        chosen.append(longest if is_owed else rest[0])
    return [ScheduledScan(each.table, why, budget_s / len(chosen)) for why, each in chosen]


def reason(table: Candidate, policy: Policy, now_ms: int) -> ScanCause | None:
    """Return why the table should be scanned now, or None if it should not."""
    if table.running or table.cancelled or table.strategy is SweepStrategy.NOTHING or _named(table, policy.never):
        return None
    if not table.sweep_ts:
        return None
    rested = table.last is None or now_ms - table.last.ended_ms >= policy.pause_ms or _fell_short(table, table.last)
    if _named(table, policy.first) and rested:
        return ScanCause.ASKED_FOR
    if table.last is None:
        return ScanCause.NEVER_SCANNED
    if completes_change(table):
        return ScanCause.STRATEGY_CHANGED
    return ScanCause.WRITTEN if rested else None


def completes_change(table: Candidate) -> bool:
    """Return whether a scan now would complete a change of strategy that the last one could not."""
    since = table.due.since if table.due else None
    if since is None or table.last is None or table.lacks:
        return False
    return table.last.sweep_ts < since or table.last.lacked


def _fell_short(table: Candidate, last: FinishedScan) -> bool:
    """Return whether the last scan stopped far below what was possible, and a scan now can go further. A table does not
    rest after a scan that a manual timestamp or an open transaction kept from most of it."""
    return last.sweep_ts < min(table.sweep_ts, table.stale)


def _named(table: Candidate, targets: Collection[Target]) -> bool:
    return any(target.covers(table.table) for target in targets)


def _rank(why: ScanCause, table: Candidate) -> tuple[object, ...]:
    """Return the sort key. Tables that were never scanned completely rotate; of the others, the one with the
    greatest expected result comes first."""
    in_rotation = why in (ScanCause.ASKED_FOR, ScanCause.NEVER_SCANNED)
    promise = (table.last_scheduled_ms, -table.expected) if in_rotation else (-table.expected, table.last_scheduled_ms)
    return (why, *promise, table.table)
