"""Runs and how far they are, kept in the store: who is cut off in the middle goes on where it was.

A table has one run at a time. It fixes its ranges when it begins, and each range has a register of its own, so that
many may work on them at once: where the scan stands, and what it has done so far. A range that is done is never
examined again. Nothing here keeps a sweep safe: two who work on one range do the same work twice, and the slower one
goes on from where the other stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from sweep_tasks.errors import NotFound, OutcomeUnknown
from sweep_tasks.legacy.counts import NOTHING, Counts
from sweep_tasks.legacy.due import Undone
from sweep_tasks.legacy.rules import Acting, Place
from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.store.contract import Change, Store, Stretch
from sweep_tasks.store.system import LEGACY_SWEEPS, scan_row
from sweep_tasks.sweep.activity import NONE, Written
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.pauses import Pauses

CANCELLED, TAKEN_OVER, SWEEPING_PAUSED = "cancelled", "taken over", "sweeping paused"
INTERRUPTED, FAILED = "interrupted", "failed"
_COLUMN = b"v"


class RunState(StrEnum):
    RUNNING = "running"
    """Or cut off: nobody can tell but by when it was last heard of."""
    PAUSED = "paused"
    """It has used up what it was given, or failed."""
    CANCELLED = "cancelled"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class LastRun:
    """What the last run that got to the end of the table found."""

    id: str
    sweep_ts: int
    ended_ms: int
    counts: Counts
    went_up_to: int | None = None
    """In its table, which may keep longer than its strategy; None in runs of before this was on record."""
    lacked: Undone | None = None
    """What it lacked to do what a change of strategy had left."""

    @property
    def reach(self) -> int:
        return self.sweep_ts if self.went_up_to is None else self.went_up_to


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    table: TableRef
    horizon: Horizon
    stretches: tuple[Stretch, ...]
    owner: str
    started_ms: int
    state: RunState = RunState.RUNNING
    attempt: int = 1
    """How often somebody took it up."""
    why: str | None = None
    """Why it is paused."""
    ended_ms: int | None = None
    counts: Counts = NOTHING
    """Of a run that is finished; of any other the ranges tell."""
    last: LastRun | None = None
    """The run before it that was finished."""
    queue_passed: int = 0
    """How far the conservative queue was judged when the run began."""
    taken_up_ms: int = 0
    """When somebody last took it up: whoever does is heard of before the first page is done."""
    written: Written = NONE
    """What sweeps had ever counted in the table when the run began: what is written while it runs is for the next."""
    strategy: SweepStrategy | None = None
    """What its sweep timestamp was found for; None in runs of before this was on record."""
    went_up_to: int = 0
    """In its table; known when it is finished."""
    lacked: Undone | None = None

    def may_go_on(self, strategy: SweepStrategy, reach: int) -> bool:
        """Whether the table is still swept as when the run began, and as far. The sweep timestamp of a thorough table
        is the present: published for conservative ones, it would cut all of them short of their retention."""
        return self.strategy is strategy and self.horizon.sweep_ts <= reach

    @property
    def is_whole(self) -> bool:
        """It began at the beginning of the table."""
        return not self.stretches[0].first

    @property
    def is_open(self) -> bool:
        """Somebody may go on with it."""
        return self.state is not RunState.FINISHED

    @property
    def last_whole(self) -> LastRun | None:
        """The last that got from the beginning of the table to its end: this one, or one before it. One that may judge
        nothing, since nothing was old enough, has found nothing out about the table and does not count."""
        if self.state is RunState.FINISHED and self.is_whole and self.went_up_to:
            ended_ms, sweep_ts = self.ended_ms or self.started_ms, self.horizon.sweep_ts
            return LastRun(self.id, sweep_ts, ended_ms, self.counts, self.went_up_to, self.lacked)
        return self.last if self.last and self.last.reach else None

    def is_of(self, other: Run) -> bool:
        """The same run, taken up by the same."""
        return (self.id, self.attempt) == (other.id, other.attempt)


class RangeState(NamedTuple):
    place: Place | None = None
    done: bool = False
    counts: Counts = NOTHING
    attempt: int = 0
    """Who worked on it last."""
    at_ms: int = 0
    """When it was last heard of."""


class Standing(NamedTuple):
    """A run as it stands now."""

    run: Run
    ranges: list[RangeState]

    @property
    def done(self) -> int:
        return sum(each.done for each in self.ranges)

    def passed(self, store: Store) -> float:
        """Ranges, and of those under way how much of their rows is behind the scan."""
        places = zip(self.run.stretches, self.ranges, strict=True)
        return sum(
            1.0 if state.done else store.share_before(stretch, state.place.cell.row) if state.place else 0.0
            for stretch, state in places
        )

    @property
    def counts(self) -> Counts:
        if self.run.state is RunState.FINISHED:
            return self.run.counts
        total = NOTHING
        for each in self.ranges:
            total = total.plus(each.counts)
        return total

    @property
    def heard_of_ms(self) -> int:
        run = self.run
        return max([run.started_ms, run.taken_up_ms, run.ended_ms or 0, *(each.at_ms for each in self.ranges)])


class Runs:
    """The registers of runs and ranges."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[bytes, Run] | None = None

    def of(self, table: TableRef) -> Run | None:
        cell = _run_cell(table)
        found = self._store.read(LEGACY_SWEEPS, [cell]).get(cell)
        return self._parsed(table, found) if found else None

    def _parsed(self, table: TableRef, value: bytes) -> Run:
        """Whoever scans looks at its run before each page, and one of ten thousand ranges takes long to parse."""
        if self._known is None or self._known[0] != value or self._known[1].table != table:
            self._known = value, _load_run(table, value)
        return self._known[1]

    def of_all(self, tables: Iterable[TableRef]) -> dict[TableRef, Run]:
        cells = {_run_cell(table): table for table in tables}
        standing = self._store.read(LEGACY_SWEEPS, list(cells))
        return {cells[cell]: _load_run(cells[cell], value) for cell, value in standing.items()}

    def standing(self, table: TableRef) -> Standing | None:
        run = self.of(table)
        return Standing(run, self.ranges(run)) if run else None

    def change(self, table: TableRef, change: Callable[[Run | None], Run]) -> Run:
        """The run that stands afterwards; `change` may refuse by raising, and may be called several times."""

        def changed(current: bytes | None) -> bytes:
            return _dump_run(change(_load_run(table, current) if current else None))

        return _load_run(table, self._store.update(LEGACY_SWEEPS, _run_cell(table), changed))

    def change_own(self, run: Run, **fields: Any) -> Run:
        """Unless somebody else has taken it up, or another has begun."""

        def changed(current: Run | None) -> Run:
            if current is None:
                raise NotFound(f"run: {run.id} of {run.table} is gone")
            return replace(current, **fields) if current.is_of(run) else current

        return self.change(run.table, changed)

    def had_turn(self, table: TableRef, now_ms: int) -> None:
        """However it ends: whoever can't even begin waits for its next turn behind all others, too."""
        self._store.update(LEGACY_SWEEPS, _turn_cell(table), lambda _: str(now_ms).encode())

    def last_turns(self, tables: Iterable[TableRef]) -> dict[TableRef, int]:
        cells = {_turn_cell(table): table for table in tables}
        return {cells[cell]: int(value) for cell, value in self._store.read(LEGACY_SWEEPS, list(cells)).items()}

    def ranges(self, run: Run) -> list[RangeState]:
        """In the order of the table. A finished run has done all of them; what each has done is forgotten."""
        if run.state is RunState.FINISHED:
            return [RangeState(done=True) for _ in run.stretches]
        cells = [_range_cell(run, number) for number in range(len(run.stretches))]
        standing = self._store.read(LEGACY_SWEEPS, cells)
        return [_load_range(standing.get(cell)) for cell in cells]

    def range(self, run: Run, number: int) -> RangeState:
        cell = _range_cell(run, number)
        return _load_range(self._store.read(LEGACY_SWEEPS, [cell]).get(cell))

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:
        """From the state we know of; if another got ahead of us, from there on: the state that stands."""
        cell = _range_cell(run, number)
        expected = _dump_range(known) if known.attempt else None
        with suppress(OutcomeUnknown):
            if self._set(cell, expected, new):
                return new
            standing = self._store.read(LEGACY_SWEEPS, [cell]).get(cell)
            # The same state in other words: those of a program that knew of fewer counts.
            if standing and _load_range(standing) == known and self._set(cell, standing, new):
                return new
        return self.range(run, number)

    def _set(self, cell: Cell, expected: bytes | None, new: RangeState) -> bool:
        change = {cell.column: Change(expected, _dump_range(new))}
        return self._store.compare_and_set(LEGACY_SWEEPS, cell.row, change)

    def stopped(self, run: Run) -> str | None:
        """Why nobody should go on with this run, if so."""
        now = self.of(run.table)
        if now is None or not now.is_of(run):
            return TAKEN_OVER
        if now.state is RunState.CANCELLED:
            return CANCELLED
        if now.state is RunState.PAUSED:
            return INTERRUPTED
        return SWEEPING_PAUSED if Pauses(self._store).standing().holds(run.table) else None

    def forget(self, table: TableRef) -> None:
        """Of a table that is gone: how far its run was. That there was one, a table that is created by the same name
        forgets, whoever got to do this or not."""
        run = self.of(table)
        if run:
            self.forget_ranges(run)

    def forget_ranges(self, run: Run) -> None:
        self._store.remove(LEGACY_SWEEPS, [_range_cell(run, number) for number in range(len(run.stretches))])


def _run_cell(table: TableRef) -> Cell:
    return Cell(scan_row(b"run", table), _COLUMN)


def _turn_cell(table: TableRef) -> Cell:
    return Cell(scan_row(b"turn", table), _COLUMN)


def _range_cell(run: Run, number: int) -> Cell:
    """A row each: those who work side by side do not stand in each other's way."""
    return Cell(b"range:%s:%06d" % (run.id.encode(), number), _COLUMN)


# --- as bytes -------------------------------------------------------------------------------------------------------


def _dump_run(run: Run) -> bytes:
    plain = asdict(run) | {
        "table": None,
        "horizon": list(run.horizon),
        "stretches": [[first.hex(), end.hex()] for first, end in run.stretches],
        "counts": run.counts._asdict(),
        "last": asdict(run.last) | {"counts": run.last.counts._asdict()} if run.last else None,
    }
    return _json(plain)


def _load_run(table: TableRef, value: bytes) -> Run:
    plain = json.loads(value)
    last = plain["last"]
    return Run(
        **plain
        | {
            "table": table,
            "horizon": Horizon(*plain["horizon"]),
            "stretches": tuple(Stretch(bytes.fromhex(first), bytes.fromhex(end)) for first, end in plain["stretches"]),
            "state": RunState(plain["state"]),
            "counts": Counts(**plain["counts"]),
            "written": Written(*plain.get("written", NONE)),
            "strategy": SweepStrategy(plain["strategy"]) if plain.get("strategy") else None,
            "lacked": _load_lacked(plain),
            "went_up_to": plain.get("went_up_to", plain["horizon"][0]),
            "last": LastRun(**last | {"counts": Counts(**last["counts"]), "lacked": _load_lacked(last)})
            if last
            else None,
        }
    )


def _load_lacked(plain: dict[str, Any]) -> Undone | None:
    return Undone(plain["lacked"]) if plain.get("lacked") else None


def _dump_range(state: RangeState) -> bytes:
    place = state.place
    at = [place.cell.row.hex(), place.cell.column.hex(), *place[1:]] if place else None
    return _json(state._asdict() | {"place": at, "counts": state.counts._asdict()})


def _load_range(value: bytes | None) -> RangeState:
    if value is None:
        return RangeState()
    plain = json.loads(value)
    place: Place | None = None
    if plain["place"]:
        row, column, ts, acting, *rest = plain["place"]
        place = Place(
            Cell(bytes.fromhex(row), bytes.fromhex(column)), ts, tuple(Acting(*each) for each in acting), *rest
        )
    return RangeState(**plain | {"place": place, "counts": Counts(**plain["counts"])})


def _json(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
