"""What goes of a cell whose versions come by one after another, newest first. Pure: versions in, a plan out.

The queue tells the targeted sweep that a cell was written; here every stored version is such an entry, and the rules
that judge it are the same (`sweep/rules.py`). Because the newest comes first, the first version of each segment between
protections is the one that acts, and whatever it dooms has yet to come by. So a cell is never held in memory: what must
be remembered of it between two pages of a scan is its place, and the few entries that act.

Nothing is parked. What has to stay, because of a protection, a retention or a copy that is away, stays in the table,
and the next scan finds it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from sweep_tasks.legacy.counts import Counts
from sweep_tasks.model import SENTINEL_TS, Cell, StoredVersion, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Protection, Protections
from sweep_tasks.sweep.rules import Entry, Looked, Marker, Plan, TableView, going, holder, too_young
from sweep_tasks.transactions.commits import ABORTED

_NO_ID = 0
"""Ids are only needed to park."""


class Acting(NamedTuple):
    """A version that dooms others of its cell."""

    start: int
    commit: int
    delete: bool


class Place(NamedTuple):
    """Where a scan stands, and what it must remember of the cell and of the row it stands in."""

    cell: Cell
    ts: int
    acting: tuple[Acting, ...] = ()
    sentinel: bool = False
    """The cell has been given one."""
    tombstones: int = 0
    """Written into the row so far."""
    held: bool = False
    """A protection holds something in the cell."""


class Judged(NamedTuple):
    plan: Plan
    place: Place | None
    """None at the end."""
    counts: Counts
    with_marker: dict[Cell, int]
    """Versions counted as deleted that are not if the delete marker of their cell has to wait."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """What is decided by, the same for all who scan the table in one run. Views and protections were read after the
    sweep timestamp was published."""

    table: TableRef
    view: TableView
    sweep_ts: int
    protections: Protections
    tombstones_per_row: int = 0
    """A Cassandra read fails at 100 000 tombstones in a partition; what is over the cap is left to the next run."""

    def starts(self, versions: Iterable[StoredVersion]) -> set[int]:
        """Of the transactions whose outcome decides about these."""
        return {each.ts for each in versions if SENTINEL_TS < each.ts < self.sweep_ts}

    def judged(
        self, place: Place | None, versions: Sequence[StoredVersion], outcomes: Mapping[int, int], at_end: bool
    ) -> Judged:
        """A page of a scan. Of the last cell more may come with the next page, unless this is the end."""
        page = _Page(self)
        under_way = _CellUnderWay.at(place, page) if place else None
        for cell, found in groupby(versions, key=lambda each: each.cell):
            if under_way is None or under_way.cell != cell:
                if under_way:
                    under_way.finish()
                page.enter(cell, under_way.cell.row if under_way else None)
                under_way = _CellUnderWay(cell, page)
            under_way.see(found, outcomes)
        if under_way and at_end:
            under_way.finish()
        elif under_way:
            under_way.emit()
        going_on = under_way.place() if under_way and not at_end else None
        counts = Counts(versions=len(versions), batches=1, **page.counted)
        return Judged(page.plan, going_on, counts, page.with_marker)


@dataclass(slots=True)
class _Page:
    """What is decided about one page."""

    rules: TableRules
    plan: Plan = field(default_factory=Plan)
    counted: Counter[str] = field(default_factory=Counter)
    with_marker: dict[Cell, int] = field(default_factory=dict)
    tombstones: int = 0
    """In the row under way."""

    def enter(self, cell: Cell, row: bytes | None) -> None:
        self.counted["cells"] += 1
        if cell.row != row:
            self.tombstones = 0

    def may_write(self, tombstones: int, versions: int) -> bool:
        cap = self.rules.tombstones_per_row
        if cap and self.tombstones + tombstones > cap:
            self.counted["left"] += versions
            return False
        self.tombstones += tombstones
        self.counted["deleted"] += versions
        return True


@dataclass(slots=True)
class _Run:
    """Versions of a cell, one behind the other, that go for the same reason."""

    looked: Looked | None
    newest: int
    oldest: int
    versions: int = 0
    sentinel: bool = False
    """Something goes that somebody could have seen, and nothing but a sentinel would tell."""


class _CellUnderWay:
    """A cell whose versions are coming by."""

    def __init__(self, cell: Cell, page: _Page) -> None:
        self.cell = cell
        self._page = page
        self._rules = page.rules
        self._acting: dict[Protection | None, Acting] = {}
        self._doomed: list[Looked] = []
        self._marker: Marker | None = None
        self._runs: list[_Run] = []
        self._sentinel = False
        self._held = False
        self._last: int | None = None

    @classmethod
    def at(cls, place: Place, page: _Page) -> _CellUnderWay:
        """Who goes on may know of other protections, but only of fewer: those that act are judged anew."""
        page.tombstones = place.tombstones
        found = cls(place.cell, page)
        found._sentinel, found._last, found._held = place.sentinel, place.ts, place.held
        for each in place.acting:
            found._act(each)
        return found

    def place(self) -> Place:
        assert self._last is not None  # noqa: S101
        acting = tuple(self._acting.values())
        return Place(self.cell, self._last, acting, self._sentinel, self._page.tombstones, self._held)

    # --- deciding -------------------------------------------------------------------------------------------------

    def see(self, versions: Iterable[StoredVersion], outcomes: Mapping[int, int]) -> None:
        run: _Run | None = None
        for _, ts, empty in versions:
            looked = self._dooming(ts)
            if ts >= self._rules.sweep_ts:
                goes = False
            elif ts == SENTINEL_TS:
                goes = looked is not None or self._speaks_for_nobody()
            elif outcomes[ts] == ABORTED:
                goes = True
                self._page.counted["aborted"] += 1
            else:
                goes = looked is not None
                if not goes:
                    self._held |= any(self._acting)  # without the protection, what acts would have taken it along
                    self._act(Acting(ts, outcomes[ts], empty))
            self._last = ts
            run = self._extended(run, looked, ts) if goes else None
            if run and looked and looked.sentinel and outcomes[ts] != ABORTED:
                run.sentinel = True

    def _dooming(self, ts: int) -> Looked | None:
        return next((each for each in self._doomed if each.range.first <= ts < each.range.end), None)

    def _speaks_for_nobody(self) -> bool:
        """A sentinel of a table that is thorough by now, whatever else its cell holds: it could only tell readers below
        the threshold of the sweep that wrote it, and those are turned away by the threshold. Where sentinels are
        written, only one that is alone in a cell of a table that was emptied."""
        view = self._rules.view
        return view.strategy is SweepStrategy.THOROUGH or (view.mark > 0 and self._last is None)

    def _act(self, found: Acting) -> None:
        """Only what committed below the sweep timestamp hides what is older from every reader there. In each segment
        the greatest start acts: the first that comes by."""
        rules = self._rules
        entry = Entry(rules.table, _NO_ID, self.cell, *found)
        if found.commit >= rules.sweep_ts or too_young(entry, rules.view):
            return
        held_by = holder(entry, rules.protections)
        if held_by in self._acting:
            return
        self._acting[held_by] = found
        self._held |= held_by is not None and found.delete and rules.view.strategy is SweepStrategy.THOROUGH
        looked = going(entry, held_by, rules.view.strategy, rules.view)
        if looked:
            self._doomed.append(looked)
            self._marker = looked.marker or self._marker

    def _extended(self, run: _Run | None, looked: Looked | None, ts: int) -> _Run:
        if run is None or looked is None or run.looked is not looked:
            run = _Run(looked, ts, ts)
            self._runs.append(run)
        run.oldest = ts
        run.versions += 1
        return run

    # --- planning -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All versions have come by: a delete marker goes together with what is left below it."""
        self._page.counted["held"] += self._held
        if self._marker:
            below = [run for run in self._runs if run.looked and run.looked.marker]
            self._runs = [run for run in self._runs if not (run.looked and run.looked.marker)]
            versions = 1 + sum(run.versions for run in below)
            if self._page.may_write(2, versions):
                self._page.plan.markers.setdefault(self._rules.table, []).append(self._marker)
                self._page.with_marker[self.cell] = versions
        self.emit()

    def emit(self) -> None:
        """What has come by so far. The delete marker stays: it may go only when nothing is left below it."""
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
                gone = VersionRange(self.cell, run.oldest, run.newest + 1)
                plan.ranges.setdefault(table, []).append(gone)
        self._runs = []
