"""Scans one range of a table, page by page.

    page → commit timestamps → sentinels → tombstones → delete markers → progress

Progress is stored last: a scan that resumes after a crash repeats at most one page, and repeating a page changes
nothing. Values are never read, and only one page is held in memory, even if a row or a cell has more versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from sweep_tasks import retries
from sweep_tasks.clock import Clock
from sweep_tasks.errors import StoreError
from sweep_tasks.legacy.progress import RangeState, Run
from sweep_tasks.legacy.rules import NOTHING, ScanCounts, ScanPosition, TableRules
from sweep_tasks.model import Cell, StoredVersion
from sweep_tasks.processes import collect_garbage_seldom
from sweep_tasks.store.contract import ScanRange, Store
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.tables.deletions import DeleteTally, Deletions
from sweep_tasks.transactions.outcomes import CommitTable

# ---------------------------------------------------------------------------------------------------------------------
# The size of a page and the rate: pages shrink when the store is overloaded and grow back, and the number of versions
# per second is limited.
# ---------------------------------------------------------------------------------------------------------------------

LEAST_BATCH = 50


class BatchSize:
    """The size of the next page: halved by each failure, a quarter larger after each success, up to a maximum."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._failures = 0
        self.now = most

    def grow(self) -> None:
        """Grow the page after a success."""
        self._failures = 0
        self.now = min(self._most, self.now + max(1, self.now // 4))

    def shrink(self) -> float | None:
        """Shrink the page. Returns the seconds to wait before the next attempt, or None if there should be none."""
        self._failures += 1
        self.now = max(min(LEAST_BATCH, self._most), self.now // 2)
        if self._failures >= retries.SCANNED_PAGE.attempts:
            return None
        return retries.SCANNED_PAGE.pause_s(self._failures - 1)


class RateLimit:
    """Limits the average number of versions per second; 0 means no limit."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._due_ms = float(clock.now_ms())

    def wait_for(self, versions: int) -> None:
        """Wait for as long as these versions should have taken. Unused time is not saved for later."""
        if not self._per_s:
            return
        now = self._clock.now_ms()
        self._due_ms = max(self._due_ms, now) + 1000 * versions / self._per_s
        self._clock.sleep((self._due_ms - now) / 1000)


log = structlog.get_logger(__name__)

CELLS, SECONDS = "cells", "seconds"


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The limits of one scan. 0 or None means no limit."""

    batch: int
    versions_per_s: float = 0
    cells: int = 0
    until_ms: int | None = None
    dry_run: bool = False


class ScanLedger(Protocol):
    """Stores the progress of each range. `Runs` keeps it in the store."""

    def range(self, run: Run, number: int) -> RangeState: ...

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState: ...

    def stop_reason(self, run: Run) -> str | None:
        """Return why this run must stop, or None to continue."""


class MemoryLedger:
    """Keeps the progress in memory, for a dry run, which stores nothing."""

    def __init__(self) -> None:
        self._ranges: dict[int, RangeState] = {}

    def range(self, run: Run, number: int) -> RangeState:  # noqa: ARG002
        return self._ranges.get(number, RangeState())

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:  # noqa: ARG002
        self._ranges[number] = new
        return new

    def stop_reason(self, run: Run) -> str | None:  # noqa: ARG002
        return None


class Scanned(NamedTuple):
    """The result of scanning a range in this attempt."""

    state: RangeState
    counts: ScanCounts
    """The counts of this attempt alone."""
    stopped: str | None = None


class Scanner:
    """Scans ranges of one table."""

    def __init__(self, store: Store, rules: TableRules, ledger: ScanLedger, limits: ScanLimits, clock: Clock) -> None:
        self._store = store
        self._rules = rules
        self._ledger = ledger
        self._limits = limits
        self._clock = clock
        self._commits = CommitTable(store)
        self._actions = Actions(store, limits.dry_run)
        self._batch = BatchSize(limits.batch)
        self._pace = RateLimit(limits.versions_per_s, clock)
        self._cells = 0
        self._deleted = DeleteTally()

    def scan(self, run: Run, number: int) -> Scanned:
        """Scan one range from its progress to its end, unless a limit or a stop ends it before."""
        scanned = Scanned(self._ledger.range(run, number), NOTHING)
        try:
            with collect_garbage_seldom():
                while not scanned.state.done and not scanned.stopped:
                    scanned = self._next(run, number, scanned)
        finally:
            Deletions(self._store).add(self._deleted.take(), self._clock.now_ms())
        return scanned

    def _next(self, run: Run, number: int, so_far: Scanned) -> Scanned:
        """Scan the next page. Retries with a smaller page if the store is overloaded: repeating a page is safe."""
        while True:
            try:
                scanned = self._page(run, number, so_far)
            except StoreError as error:
                pause_s = self._batch.shrink() if error.retryable else None
                if pause_s is None:
                    raise
                log.info("retrying a page with fewer versions", table=str(self._rules.table), versions=self._batch.now)
                self._clock.sleep(pause_s)
            else:
                self._batch.grow()
                return scanned

    def _page(self, run: Run, number: int, so_far: Scanned) -> Scanned:
        stopped = self._stop_reason(run)
        if stopped:
            return so_far._replace(stopped=stopped)
        state = so_far.state
        place, done, page = self._sweep_page(run.scan_ranges[number], state.place)
        new = RangeState(place, done, state.counts.plus(page), run.attempt, self._clock.now_ms())
        state = self._ledger.advance(run, number, state, new)
        self._cells += page.cells
        self._pace.wait_for(page.versions)
        return Scanned(state, so_far.counts.plus(page))

    def _stop_reason(self, run: Run) -> str | None:
        limits = self._limits
        if limits.cells and self._cells >= limits.cells:
            return CELLS
        if limits.until_ms is not None and self._clock.now_ms() >= limits.until_ms:
            return SECONDS
        return self._ledger.stop_reason(run)

    def _sweep_page(
        self, scan_range: ScanRange, place: ScanPosition | None
    ) -> tuple[ScanPosition | None, bool, ScanCounts]:
        table = self._rules.table
        page = self._store.scan_versions(
            table, limit=self._batch.now, after=(place.cell, place.ts) if place else None, scan_range=scan_range
        )
        versions = self._within_limit(page.items, place.cell if place else None)
        outcomes = self._commits.abort_unfinished(self._rules.starts(versions), self._limits.dry_run)
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

    def _within_limit(self, versions: list[StoredVersion], current_cell: Cell | None) -> list[StoredVersion]:
        """Return the versions up to the last cell that may still be examined, usually the whole page."""
        left = self._limits.cells - self._cells
        for number, version in enumerate(versions if self._limits.cells else ()):
            if version.cell != current_cell:
                if not left:
                    return versions[:number]
                current_cell, left = version.cell, left - 1
        return versions
