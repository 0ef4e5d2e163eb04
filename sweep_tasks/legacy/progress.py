"""The runs of scans and their progress, stored in registers, and whether a run has done a scan that was due."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import structlog

from sweep_tasks.errors import NotFound, OutcomeUnknown, StoreError
from sweep_tasks.legacy.rules import NOTHING, Acting, ScanCounts, ScanPosition
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store.contract import Change, ScanRange, Store
from sweep_tasks.store.schema import LEGACY_SWEEPS, scan_row
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.activity import NONE, WriteCounts
from sweep_tasks.tables.deletions import Deletions
from sweep_tasks.tables.pauses import Pauses

# ---------------------------------------------------------------------------------------------------------------------
# Does a scan complete a change of strategy? Pure.
#
# The answer is the same for a run that has ended, for scans that are to be scheduled, and for `doctor`, which
# recommends scans: it must not recommend one that completes nothing. A scan goes up to the sweep timestamp that it
# published, or as far as the table's own retention allows. If sentinels have to be removed, the conservative queue must
# have passed that point before the scan started: its entries are judged by the rules of their queue and would write new
# sentinels after the scan, and so would parked entries until they are judged.
# ---------------------------------------------------------------------------------------------------------------------


class Undone(StrEnum):
    """Why a scan that is due stays due."""

    REACH = "reach"
    QUEUE = "queue"
    PARKED = "parked"
    PART = "part"
    HELD = "held"
    WAITING = "waiting"
    LEFT = "left"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Undone.REACH: "sweeps of the table do not reach the time of the change yet",
    Undone.QUEUE: "the conservative queue was not swept up to the change before the scan",
    Undone.PARKED: "entries of the table are parked in the conservative queue and may write sentinels",
    Undone.PART: "only part of the table was scanned",
    Undone.HELD: "protections keep some versions",
    Undone.WAITING: "not every replica confirmed that delete markers are gone",
    Undone.LEFT: "some rows reached the limit of tombstones of one scan",
}


def short_of(metadata: TableMetadata, sweep_ts: int, passed: int, parked: bool) -> Undone | None:
    """Return what a scan up to `sweep_ts` lacks to complete a change of strategy, or None if it completes it or none is
    due. `passed` is the progress of the conservative queue before the scan started."""
    due = metadata.scan_due
    if due is None:
        return None
    if due.since is None or sweep_ts < due.since:
        return Undone.REACH
    if not metadata.scan_waits_for_queue:
        return None
    if passed < due.since:
        return Undone.QUEUE
    return Undone.PARKED if parked else None


# ---------------------------------------------------------------------------------------------------------------------
# Runs and their progress, stored in registers: a scan that is cut off resumes where it was.
#
# A table has one run at a time. The run fixes its ranges when it starts. Each range has its own register with the
# position of the scan and its counts, so that many workers can work on ranges at once. A range that is done is never
# examined again. Safety does not depend on any of this: two workers on one range do the same work twice, and the slower
# one continues from the position of the other.
# ---------------------------------------------------------------------------------------------------------------------

CANCELLED, TAKEN_OVER, SWEEPING_PAUSED = "cancelled", "taken over", "sweeping paused"
INTERRUPTED, FAILED = "interrupted", "failed"
_COLUMN = b"v"


class RunState(StrEnum):
    RUNNING = "running"
    """Active, or cut off: the only difference is the time of its last report."""
    PAUSED = "paused"
    """It has used up its budget, or failed."""
    CANCELLED = "cancelled"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The result of the last run that reached the end of the table."""

    id: str
    sweep_ts: int
    ended_ms: int
    counts: ScanCounts
    went_up_to: int | None = None
    """The timestamp that it reached in its table, which may have a longer retention than its strategy; None in old
    runs."""
    lacked: Undone | None = None
    """What it lacked to complete a change of strategy."""

    @property
    def table_sweep_ts(self) -> int:
        return self.sweep_ts if self.went_up_to is None else self.went_up_to


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    table: TableRef
    horizon: Horizon
    scan_ranges: tuple[ScanRange, ...]
    owner: str
    started_ms: int
    state: RunState = RunState.RUNNING
    attempt: int = 1
    """How often the run was started or resumed."""
    why: str | None = None
    """Why it is paused."""
    ended_ms: int | None = None
    counts: ScanCounts = NOTHING
    """The counts of a finished run; those of an unfinished one are in its ranges."""
    last: FinishedRun | None = None
    """The last finished run before it."""
    queue_passed: int = 0
    """The progress of the conservative queue when the run started."""
    taken_up_ms: int = 0
    """When it was last resumed. That counts as a report, before the first page is done."""
    written: WriteCounts = NONE
    """The writes that sweeps had ever counted in the table when the run started; later ones are for the next run."""
    strategy: SweepStrategy | None = None
    """The strategy that its sweep timestamp was computed for; None in old runs."""
    went_up_to: int = 0
    """The timestamp that it reached in its table; known when it is finished."""
    lacked: Undone | None = None
    retention_s: int | None = None
    """The retention that its sweep timestamp was computed with; None in old runs."""
    own_retention_s: int | None = None
    """The table's own retention when the run was started or last resumed, if it had one."""

    def may_continue(self, strategy: SweepStrategy, sweep_ts: int) -> bool:
        """Return whether the table is still swept with the same strategy, and at least as far. The sweep timestamp of a
        thorough table is the present: published for conservative tables, it would end their retention early."""
        return self.strategy is strategy and self.horizon.sweep_ts <= sweep_ts

    @property
    def is_whole(self) -> bool:
        """Return whether the run started at the beginning of the table."""
        return not self.scan_ranges[0].first

    @property
    def is_open(self) -> bool:
        """Return whether the run can be resumed."""
        return self.state is not RunState.FINISHED

    @property
    def last_whole(self) -> FinishedRun | None:
        """Return the last run that scanned the whole table: this one, or one before it. A run that could judge nothing,
        since nothing was old enough, does not count."""
        if self.state is RunState.FINISHED and self.is_whole and self.went_up_to:
            ended_ms, sweep_ts = self.ended_ms or self.started_ms, self.horizon.sweep_ts
            return FinishedRun(self.id, sweep_ts, ended_ms, self.counts, self.went_up_to, self.lacked)
        return self.last if self.last and self.last.table_sweep_ts else None

    def is_of(self, other: Run) -> bool:
        """Return whether both are the same attempt of the same run."""
        return (self.id, self.attempt) == (other.id, other.attempt)


class RangeState(NamedTuple):
    place: ScanPosition | None = None
    done: bool = False
    counts: ScanCounts = NOTHING
    attempt: int = 0
    """The attempt that worked on it last."""
    at_ms: int = 0
    """The time of its last report."""


class RunProgress(NamedTuple):
    """A run with the current state of its ranges."""

    run: Run
    ranges: list[RangeState]

    @property
    def done(self) -> int:
        return sum(each.done for each in self.ranges)

    def passed(self, store: Store) -> float:
        """Return the number of ranges that are scanned, counting an unfinished range by the share of its rows."""
        places = zip(self.run.scan_ranges, self.ranges, strict=True)
        return sum(
            1.0 if state.done else store.share_before(scan_range, state.place.cell.row) if state.place else 0.0
            for scan_range, state in places
        )

    @property
    def counts(self) -> ScanCounts:
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
        """Parse the run, or return the one parsed before: a scan reads its run before each page, and one with ten
        thousand ranges takes long to parse."""
        if self._known is None or self._known[0] != value or self._known[1].table != table:
            self._known = value, _load_run(table, value)
        return self._known[1]

    def of_all(self, tables: Iterable[TableRef]) -> dict[TableRef, Run]:
        cells = {_run_cell(table): table for table in tables}
        existing = self._store.read(LEGACY_SWEEPS, list(cells))
        return {cells[cell]: _load_run(cells[cell], value) for cell, value in existing.items()}

    def progress(self, table: TableRef) -> RunProgress | None:
        run = self.of(table)
        return RunProgress(run, self.ranges(run)) if run else None

    def change(self, table: TableRef, change: Callable[[Run | None], Run]) -> Run:
        """Change the run and return the new one. `change` may raise to refuse, and may be called several times."""

        def changed(current: bytes | None) -> bytes:
            return _dump_run(change(_load_run(table, current) if current else None))

        return _load_run(table, self._store.update(LEGACY_SWEEPS, _run_cell(table), changed))

    def change_own(self, run: Run, **fields: Any) -> Run:
        """Change the run, unless another process has resumed or replaced it. Return the current one."""

        def changed(current: Run | None) -> Run:
            if current is None:
                raise NotFound(f"run: {run.id} of {run.table} no longer exists")
            return replace(current, **fields) if current.is_of(run) else current

        return self.change(run.table, changed)

    def record_scheduled(self, table: TableRef, now_ms: int) -> None:
        """Record that the table was scheduled, whatever the result: a table that can't be scanned also goes to the end
        of the rotation."""
        self._store.update(LEGACY_SWEEPS, _turn_cell(table), lambda _: str(now_ms).encode())

    def last_scheduled(self, tables: Iterable[TableRef]) -> dict[TableRef, int]:
        cells = {_turn_cell(table): table for table in tables}
        return {cells[cell]: int(value) for cell, value in self._store.read(LEGACY_SWEEPS, list(cells)).items()}

    def ranges(self, run: Run) -> list[RangeState]:
        """Return the ranges in the order of the table. A finished run has done all of them and keeps no details."""
        if run.state is RunState.FINISHED:
            return [RangeState(done=True) for _ in run.scan_ranges]
        cells = [_range_cell(run, number) for number in range(len(run.scan_ranges))]
        existing = self._store.read(LEGACY_SWEEPS, cells)
        return [_load_range(existing.get(cell)) for cell in cells]

    def range(self, run: Run, number: int) -> RangeState:
        cell = _range_cell(run, number)
        return _load_range(self._store.read(LEGACY_SWEEPS, [cell]).get(cell))

    def advance(self, run: Run, number: int, known: RangeState, new: RangeState) -> RangeState:
        """Replace the known state by the new one, unless another worker was faster. Return the current state."""
        cell = _range_cell(run, number)
        expected = _dump_range(known) if known.attempt else None
        with suppress(OutcomeUnknown):
            if self._set(cell, expected, new):
                return new
            existing = self._store.read(LEGACY_SWEEPS, [cell]).get(cell)
            # The same state, encoded by an older version that knew fewer counts.
            if existing and _load_range(existing) == known and self._set(cell, existing, new):
                return new
        return self.range(run, number)

    def _set(self, cell: Cell, expected: bytes | None, new: RangeState) -> bool:
        change = {cell.column: Change(expected, _dump_range(new))}
        return self._store.compare_and_set(LEGACY_SWEEPS, cell.row, change)

    def stop_reason(self, run: Run) -> str | None:
        """Return why this run must stop, or None."""
        now = self.of(run.table)
        if now is None or not now.is_of(run):
            return TAKEN_OVER
        if now.state is RunState.CANCELLED:
            return CANCELLED
        if now.state is RunState.PAUSED:
            return INTERRUPTED
        return SWEEPING_PAUSED if Pauses(self._store).current().holds(run.table) else None

    def forget(self, table: TableRef) -> None:
        """Remove the ranges of a dropped table's run. The run itself is ignored by a new table with the same name."""
        run = self.of(table)
        if run:
            self.forget_ranges(run)

    def forget_ranges(self, run: Run) -> None:
        self._store.remove(LEGACY_SWEEPS, [_range_cell(run, number) for number in range(len(run.scan_ranges))])


def forget_dropped(store: Store, table: TableRef) -> None:
    """Remove what is recorded about a dropped table: statistics of its deletes, and the ranges of its last scan."""
    Deletions(store).forget(table)
    Runs(store).forget(table)


def _run_cell(table: TableRef) -> Cell:
    return Cell(scan_row(b"run", table), _COLUMN)


def _turn_cell(table: TableRef) -> Cell:
    return Cell(scan_row(b"turn", table), _COLUMN)


def _range_cell(run: Run, number: int) -> Cell:
    """Return the cell of a range. Each has its own row, so that workers do not contend."""
    return Cell(b"range:%s:%06d" % (run.id.encode(), number), _COLUMN)


# --- as bytes -------------------------------------------------------------------------------------------------------


def _dump_run(run: Run) -> bytes:
    plain = asdict(run) | {
        "table": None,
        "horizon": list(run.horizon),
        "stretches": [[first.hex(), end.hex()] for first, end in run.scan_ranges],
        "counts": run.counts._asdict(),
        "last": asdict(run.last) | {"counts": run.last.counts._asdict()} if run.last else None,
    }
    del plain["scan_ranges"]  # stored as "stretches", as by earlier versions
    return _json(plain)


def _load_run(table: TableRef, value: bytes) -> Run:
    plain = json.loads(value)
    last, stored_ranges = plain["last"], plain.pop("stretches")
    return Run(
        **plain
        | {
            "table": table,
            "horizon": Horizon(*plain["horizon"]),
            "scan_ranges": tuple(ScanRange(bytes.fromhex(first), bytes.fromhex(end)) for first, end in stored_ranges),
            "state": RunState(plain["state"]),
            "counts": ScanCounts(**plain["counts"]),
            "written": WriteCounts(*plain.get("written", NONE)),
            "strategy": SweepStrategy(plain["strategy"]) if plain.get("strategy") else None,
            "lacked": _load_lacked(plain),
            "went_up_to": plain.get("went_up_to", plain["horizon"][0]),
            "last": FinishedRun(**last | {"counts": ScanCounts(**last["counts"]), "lacked": _load_lacked(last)})
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
    place: ScanPosition | None = None
    if plain["place"]:
        row, column, ts, acting, *rest = plain["place"]
        place = ScanPosition(
            Cell(bytes.fromhex(row), bytes.fromhex(column)), ts, tuple(Acting(*each) for each in acting), *rest
        )
    return RangeState(**plain | {"place": place, "counts": ScanCounts(**plain["counts"])})


def _json(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


# ---------------------------------------------------------------------------------------------------------------------
# The progress of a scan for a log, read from the store, where the workers record it.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)


class ScanLog:
    def __init__(self, store: Store, run: Run, dry_run: bool) -> None:
        self._store = store
        self._run = run
        self._dry_run = dry_run

    def log_progress(self, **more: object) -> None:
        """Log the counts of the run, unless the store is too busy to be asked. A dry run records no counts."""
        if self._dry_run:
            log.info("scanning", dry_run=True, **more)
            return
        try:
            existing = RunProgress(self._run, Runs(self._store).ranges(self._run))
        except StoreError as error:
            log.info("the progress of the scan is not available now", code=error.code, why=str(error))
            return
        cells, versions, deleted, *_ = existing.counts
        log.info(
            "scanning",
            done=f"{existing.passed(self._store) / len(existing.ranges):.0%}",
            ranges_done=existing.done,
            ranges=len(existing.ranges),
            cells=cells,
            versions=versions,
            deleted=deleted,
            **more,
        )
