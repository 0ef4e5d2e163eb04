"""The scan of one range: a page of versions, how their transactions ended, what goes, and where it stands.

    page → commit timestamps → sentinels → tombstones → delete markers → progress

Progress comes last: whoever goes on after a crash repeats at most one page, and repeating changes nothing. Values are
never fetched, and no more than a page is held at a time, however many versions a row or a cell has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from sweep_tasks.clock import Clock
from sweep_tasks.collecting import collected_seldom
from sweep_tasks.errors import StoreError
from sweep_tasks.legacy.counts import NOTHING, Counts
from sweep_tasks.legacy.pace import BatchSize, Pace
from sweep_tasks.legacy.progress import RangeState, Run
from sweep_tasks.legacy.rules import Place, TableRules
from sweep_tasks.model import Cell, StoredVersion
from sweep_tasks.store.contract import Store, Stretch
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.sweep.deletions import Deletions
from sweep_tasks.sweep.tally import Tally
from sweep_tasks.transactions.commits import CommitTable

log = structlog.get_logger(__name__)

CELLS, SECONDS = "cells", "seconds"


@dataclass(frozen=True, slots=True)
class Limits:
    """What those who scan one after the other may do. 0 or None is no limit."""

    batch: int
    versions_per_s: float = 0
    cells: int = 0
    until_ms: int | None = None
    dry_run: bool = False


class Ledger(Protocol):
    """Where it is kept how far each range is: `Runs`, in the store."""

    def range(self, run: Run, number: int) -> RangeState: ...

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState: ...

    def stopped(self, run: Run) -> str | None:
        """Why nobody should go on with this run, if so."""


class Passing:
    """A ledger in memory, for a dry run, which leaves nothing behind."""

    def __init__(self) -> None:
        self._ranges: dict[int, RangeState] = {}

    def range(self, run: Run, number: int) -> RangeState:  # noqa: ARG002
        return self._ranges.get(number, RangeState())

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:  # noqa: ARG002
        self._ranges[number] = new
        return new

    def stopped(self, run: Run) -> str | None:  # noqa: ARG002
        return None


class Scanned(NamedTuple):
    """What became of a range in this attempt."""

    state: RangeState
    counts: Counts
    """Of this attempt alone."""
    stopped: str | None = None


class Scanner:
    def __init__(self, store: Store, rules: TableRules, ledger: Ledger, limits: Limits, clock: Clock) -> None:
        self._store = store
        self._rules = rules
        self._ledger = ledger
        self._limits = limits
        self._clock = clock
        self._commits = CommitTable(store)
        self._actions = Actions(store, limits.dry_run)
        self._batch = BatchSize(limits.batch)
        self._pace = Pace(limits.versions_per_s, clock)
        self._cells = 0
        self._deleted = Tally()

    def scan(self, run: Run, number: int) -> Scanned:
        """One range, from where it stands to its end, unless something ends it before."""
        scanned = Scanned(self._ledger.range(run, number), NOTHING)
        try:
            with collected_seldom():
                while not scanned.state.done and not scanned.stopped:
                    scanned = self._next(run, number, scanned)
        finally:
            Deletions(self._store).add(self._deleted.taken(), self._clock.now_ms())
        return scanned

    def _next(self, run: Run, number: int, so_far: Scanned) -> Scanned:
        """A page further. Again with less at a time where the store can't keep up: all of it may be done twice."""
        while True:
            try:
                scanned = self._page(run, number, so_far)
            except StoreError as error:
                pause_s = self._batch.failed() if error.retryable else None
                if pause_s is None:
                    raise
                log.info("a page is tried again", table=str(self._rules.table), versions=self._batch.now)
                self._clock.sleep(pause_s)
            else:
                self._batch.succeeded()
                return scanned

    def _page(self, run: Run, number: int, so_far: Scanned) -> Scanned:
        stopped = self._stopped(run)
        if stopped:
            return so_far._replace(stopped=stopped)
        state = so_far.state
        place, done, page = self._sweep_page(run.stretches[number], state.place)
        new = RangeState(place, done, state.counts.plus(page), run.attempt, self._clock.now_ms())
        state = self._ledger.advance(run, number, state, new)
        self._cells += page.cells
        self._pace.passed(page.versions)
        return Scanned(state, so_far.counts.plus(page))

    def _stopped(self, run: Run) -> str | None:
        limits = self._limits
        if limits.cells and self._cells >= limits.cells:
            return CELLS
        if limits.until_ms is not None and self._clock.now_ms() >= limits.until_ms:
            return SECONDS
        return self._ledger.stopped(run)

    def _sweep_page(self, stretch: Stretch, place: Place | None) -> tuple[Place | None, bool, Counts]:
        table = self._rules.table
        page = self._store.scan_versions(
            table, limit=self._batch.now, after=(place.cell, place.ts) if place else None, stretch=stretch
        )
        versions = self._within_limit(page.items, place.cell if place else None)
        outcomes = self._commits.settled(self._rules.starts(versions), self._limits.dry_run)
        done = page.resume is None and len(versions) == len(page.items)
        judged = self._rules.judged(place, versions, outcomes, at_end=done)
        applied = self._actions.apply(judged.plan, {table: self._rules.view})
        self._deleted.merge(applied.deleted)
        waiting = applied.waiting
        kept = sum(judged.with_marker[entry.cell] for entry in waiting)
        counts = judged.counts._replace(
            waiting=len(waiting),
            deleted=judged.counts.deleted - kept,
            tombstones=sum(tally.tombstones for _, tally in applied.deleted),
        )
        return judged.place, done, counts

    def _within_limit(self, versions: list[StoredVersion], under_way: Cell | None) -> list[StoredVersion]:
        """Up to the last cell that may still be examined: the whole page, as a rule."""
        left = self._limits.cells - self._cells
        for number, version in enumerate(versions if self._limits.cells else ()):
            if version.cell != under_way:
                if not left:
                    return versions[:number]
                under_way, left = version.cell, left - 1
        return versions
