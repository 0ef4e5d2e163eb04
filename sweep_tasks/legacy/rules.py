"""The rules of a table scan: which versions of a cell are removable. Pure: versions in, a plan out.

In a targeted sweep, an entry of the queue says that a cell was written. Here every stored version is such an entry, and
the same rules judge it (`sweep/rules.py`). Versions are read newest first, so the first version of each segment between
protections is the one that acts, and the versions that it makes removable come after it. So a cell is never held in
memory: between two pages, a scan only keeps its position and the few versions that act.

Nothing is parked. Versions that have to stay, because of a protection, a retention or an unavailable replica, stay in
the table, and the next scan finds them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from sweep_tasks.model import SENTINEL_TS, Cell, StoredVersion, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Protection, Protections
from sweep_tasks.sweep.rules import (
    Entry,
    Marker,
    Plan,
    Removal,
    TableView,
    holder,
    is_truncated,
    removal_for,
    too_young,
    truncated,
)
from sweep_tasks.transactions.outcomes import ABORTED

# ---------------------------------------------------------------------------------------------------------------------
# The counts of a scan, which can be added up.
# ---------------------------------------------------------------------------------------------------------------------


class ScanCounts(NamedTuple):
    """What a scan has examined and deleted."""

    cells: int = 0
    versions: int = 0
    """Versions that were examined."""
    deleted: int = 0
    aborted: int = 0
    """Examined versions of transactions that never committed. They are deleted too."""
    sentinels: int = 0
    held: int = 0
    """Cells in which a protection keeps versions that would be removed without it."""
    waiting: int = 0
    """Delete markers whose removal not every replica has confirmed."""
    left: int = 0
    """Removable versions that are left, because this run has written the most tombstones allowed in their row."""
    batches: int = 0
    tombstones: int = 0
    """Tombstones that were written; none in a store that has no tombstones."""

    def plus(self, other: ScanCounts) -> ScanCounts:
        return ScanCounts(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING = ScanCounts()


_NO_ID = 0
"""Ids are only needed to park, and a scan parks nothing."""


class Acting(NamedTuple):
    """A version that makes older versions of its cell removable."""

    start: int
    commit: int
    delete: bool


class ScanPosition(NamedTuple):
    """The position of a scan, and what it must remember of the current cell and row."""

    cell: Cell
    ts: int
    acting: tuple[Acting, ...] = ()
    sentinel: bool = False
    """A sentinel was written for the cell."""
    tombstones: int = 0
    """Tombstones written into the row so far."""
    held: bool = False
    """A protection keeps versions of the cell."""


class Judged(NamedTuple):
    """What was decided about one page."""

    plan: Plan
    place: ScanPosition | None
    """The position after the page; None at the end of the range."""
    counts: ScanCounts
    with_marker: dict[Cell, int]
    """Versions by cell that are counted as deleted, but are not if the cell's delete marker has to wait."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """What a scan decides with, the same for all workers of a run. The view and the protections were read after the
    sweep timestamp was published."""

    table: TableRef
    view: TableView
    sweep_ts: int
    protections: Protections
    tombstones_per_row: int = 0
    """A Cassandra read fails at 100 000 tombstones in a partition. The next run removes what is above this limit."""

    def starts(self, versions: Iterable[StoredVersion]) -> set[int]:
        """Return the start timestamps of the transactions whose outcome decides about these versions."""
        return {each.ts for each in versions if SENTINEL_TS < each.ts < self.sweep_ts}

    def judged(
        self, place: ScanPosition | None, versions: Sequence[StoredVersion], outcomes: Mapping[int, int], at_end: bool
    ) -> Judged:
        """Decide about one page. The last cell may continue on the next page, unless this is the end."""
        page = _Page(self)
        current = CurrentCell.at(place, page) if place else None
        for cell, found in groupby(versions, key=lambda each: each.cell):
            if current is None or current.cell != cell:
                if current:
                    current.finish()
                page.start_cell(cell, current.cell.row if current else None)
                current = CurrentCell(cell, page)
            current.add_versions(found, outcomes)
        if current and at_end:
            current.finish()
        elif current:
            current.emit()
        position = current.place() if current and not at_end else None
        counts = ScanCounts(versions=len(versions), batches=1, **page.counted)
        return Judged(page.plan, position, counts, page.with_marker)


@dataclass(slots=True)
class _Page:
    """Collects what is decided about one page."""

    rules: TableRules
    plan: Plan = field(default_factory=Plan)
    counted: Counter[str] = field(default_factory=Counter)
    with_marker: dict[Cell, int] = field(default_factory=dict)
    tombstones: int = 0
    """Tombstones in the current row."""

    def start_cell(self, cell: Cell, row: bytes | None) -> None:
        self.counted["cells"] += 1
        if cell.row != row:
            self.tombstones = 0

    def may_write(self, tombstones: int, versions: int) -> bool:
        """Reserve tombstones in the current row, and return False if that exceeds the limit."""
        cap = self.rules.tombstones_per_row
        if cap and self.tombstones + tombstones > cap:
            self.counted["left"] += versions
            return False
        self.tombstones += tombstones
        self.counted["deleted"] += versions
        return True


@dataclass(slots=True)
class _Run:
    """Consecutive versions of a cell that are removable for the same reason."""

    removal: Removal | None
    newest: int
    oldest: int
    versions: int = 0
    sentinel: bool = False
    """A committed version is removed that a reader could have read, so a sentinel is needed."""


class CurrentCell:
    """The cell whose versions are being read."""

    def __init__(self, cell: Cell, page: _Page) -> None:
        self.cell = cell
        self._page = page
        self._rules = page.rules
        self._acting: dict[Protection | None, Acting] = {}
        self._removals: list[Removal] = []
        self._truncated: Removal | None = None
        self._marker: Marker | None = None
        self._runs: list[_Run] = []
        self._sentinel = False
        self._held = False
        self._last: int | None = None

    @classmethod
    def at(cls, place: ScanPosition, page: _Page) -> CurrentCell:
        """Return the cell at a stored position. There may be fewer protections now than then, never more, so the acting
        versions are judged again."""
        page.tombstones = place.tombstones
        found = cls(place.cell, page)
        found._sentinel, found._last, found._held = place.sentinel, place.ts, place.held
        for each in place.acting:
            found.act(each)
        return found

    def place(self) -> ScanPosition:
        assert self._last is not None  # noqa: S101
        acting = tuple(self._acting.values())
        return ScanPosition(self.cell, self._last, acting, self._sentinel, self._page.tombstones, self._held)

    # --- deciding -------------------------------------------------------------------------------------------------

    def add_versions(self, versions: Iterable[StoredVersion], outcomes: Mapping[int, int]) -> None:
        """Decide about the next versions of the cell, newest first."""
        run: _Run | None = None
        for _, ts, empty in versions:
            removal = self._removal_of(ts)
            was_visible = False
            if ts >= self._rules.sweep_ts:
                remove = False
            elif ts == SENTINEL_TS:
                remove = removal is not None or self._is_obsolete_sentinel()
            elif removal and removal.truncated:
                remove = True
            elif outcomes[ts] == ABORTED:
                remove = True
                self._page.counted["aborted"] += 1
            else:
                remove = was_visible = removal is not None
                if not remove:
                    self._held |= any(self._acting)  # without the protection, the acting version would remove it
                    self.act(Acting(ts, outcomes[ts], empty))
            self._last = ts
            run = self._extend(run, removal, ts) if remove else None
            if run and removal and removal.sentinel and was_visible:
                run.sentinel = True

    def _removal_of(self, ts: int) -> Removal | None:
        if ts != SENTINEL_TS and is_truncated(ts, self._rules.view):
            self._truncated = self._truncated or truncated(self.cell, self._rules.view)
            return self._truncated
        return next((each for each in self._removals if each.range.first <= ts < each.range.end), None)

    def _is_obsolete_sentinel(self) -> bool:
        """Return True if the sentinel of this cell is not needed any more. In a table that is thorough now, none is
        needed: it is for readers below the threshold of the sweep that wrote it, and the threshold already refuses
        those. In a conservative table, one that is alone in its cell after a truncation is not needed."""
        view = self._rules.view
        return view.strategy is SweepStrategy.THOROUGH or (view.mark > 0 and self._last is None)

    def act(self, found: Acting) -> None:
        """Let a version act: it makes older versions removable if it committed below the sweep timestamp. In each
        segment only the greatest start acts, which is the first one that is read."""
        rules = self._rules
        entry = Entry(rules.table, _NO_ID, self.cell, *found)
        if found.commit >= rules.sweep_ts or too_young(entry, rules.view):
            return
        held_by = holder(entry, rules.view, rules.protections)
        if held_by in self._acting:
            return
        self._acting[held_by] = found
        self._held |= held_by is not None and found.delete and rules.view.strategy is SweepStrategy.THOROUGH
        removal = removal_for(entry, held_by, rules.view.strategy, rules.view)
        if removal:
            self._removals.append(removal)
            self._marker = removal.marker or self._marker

    def _extend(self, run: _Run | None, removal: Removal | None, ts: int) -> _Run:
        if run is None or removal is None or run.removal is not removal:
            run = _Run(removal, ts, ts)
            self._runs.append(run)
        run.oldest = ts
        run.versions += 1
        return run

    # --- planning -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Plan the end of a cell whose versions are all read: a delete marker is removed with the versions below it."""
        self._page.counted["held"] += self._held
        if self._marker:
            below = [run for run in self._runs if run.removal and run.removal.marker]
            self._runs = [run for run in self._runs if not (run.removal and run.removal.marker)]
            versions = 1 + sum(run.versions for run in below)
            if self._page.may_write(2, versions):
                self._page.plan.markers.setdefault(self._rules.table, []).append(self._marker)
                self._page.with_marker[self.cell] = versions
        self.emit()

    def emit(self) -> None:
        """Plan what was decided so far. A delete marker stays until all versions below it are read."""
        table, plan = self._rules.table, self._page.plan
        for run in self._runs:
            if not self._page.may_write(1, run.versions):
                continue
            if run.sentinel and not self._sentinel:
                self._sentinel = True
                plan.sentinels.setdefault(table, []).append(self.cell)
                self._page.counted["sentinels"] += 1
            if run.versions == 1:
                plan.exact.setdefault(table, []).append((self.cell, run.newest))
            else:
                plan.ranges.setdefault(table, []).append(VersionRange(self.cell, run.oldest, run.newest + 1))
        self._runs = []
