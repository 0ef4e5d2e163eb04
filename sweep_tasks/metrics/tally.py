"""The tally: totals of what runs have done, kept in the store as sums, a time line and the last runs.

The process of a task ends before a monitoring system could read its figures, so they are recorded here when its work
ends. One compare-and-set changes the sums, the time line and the line of the run together. Each attempt of a task is
recorded once: the sums remember the last attempts that were added, so a lost answer or a second call adds nothing.

The size is bounded: one series for each set of labels (strategy and shard, a table), one week of the time line, the
last few runs. Rows, columns and values of user tables are never stored here.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import OutcomeUnknown, StoreBusy
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import OBSERVATIONS

STEP_MS = 900_000
"""One step of the time line: a quarter of an hour."""
KEPT_MS = 7 * 86_400_000
RUNS_KEPT = 24
TASKS_NAMED = 5
"""Task names kept for each run, the first that ended: a run may have hundreds of tasks."""
_ATTEMPTS_REMEMBERED = 16
_ROWS = [b"tally:%d" % number for number in range(8)]
"""Several rows, so that tasks which end at the same time seldom compete for one."""
_SERIES, _TIME, _RUN = b"s:", b"t:", b"r:"

SWEEP = "sweep"
DRY_RUN = "dry_run"
"""What dry runs of sweeps would do. Shown with the runs, and not part of any total."""
RECONCILE = "reconcile"
OPERATIONS = "protection_operations"
LEGACY = "legacy"
COMPACTION = "compaction"

COMMAND, PAGE, LIBRARY = "command", "page", "library"
"""Take the place of a DAG id for work that was started in a terminal, in the browser or by a program."""

Sums = dict[str, int | float]


class TaskAttempt(NamedTuple):
    """One attempt of a task in a DAG run. Work that a user started in a terminal or on
    the page counts as a run of its own."""

    dag: str
    run: str
    task: str
    number: int = 1
    map_index: int = -1
    """The index of a mapped task; -1 for a task that is not mapped."""

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:16]


# --- what is kept of the last run of a series, by kind of work --------------------------------------------------------


class SweepDetails(BaseModel, frozen=True, defer_build=True):
    entries: int = 0
    range_deletes: int = 0
    progress: int = -1
    stopped: str | None = None
    """Why the sweep ended before everything was swept."""
    engine: str = "local"


class ReconciliationDetails(BaseModel, frozen=True, defer_build=True):
    records: int = 0
    spans: int = 0
    oldest_age_s: int = 0
    problems: int = 0
    """Records that need a decision."""


class ScanDetails(BaseModel, frozen=True, defer_build=True):
    ranges: int = 0
    ranges_done: int = 0
    stopped: str | None = None


class CompactionDetails(BaseModel, frozen=True, defer_build=True):
    tombstones: int = 0
    near_failing: int = 0
    kept: dict[str, int] = {}


Details = SweepDetails | ReconciliationDetails | ScanDetails | CompactionDetails


class LastRun(BaseModel, frozen=True, defer_build=True):
    """The last run of a series: which attempt, when it ended and how long it took."""

    dag: str
    run: str
    task: str
    number: int = 1
    map_index: int = -1
    ended_ms: int
    took_s: int | float = 0.0


class LastSweep(LastRun, SweepDetails, frozen=True):
    pass


class LastReconciliation(LastRun, ReconciliationDetails, frozen=True):
    pass


class LastScan(LastRun, ScanDetails, frozen=True):
    pass


class LastCompaction(LastRun, CompactionDetails, frozen=True):
    pass


_LAST: dict[str, type[LastRun]] = {
    SWEEP: LastSweep,
    DRY_RUN: LastSweep,
    RECONCILE: LastReconciliation,
    LEGACY: LastScan,
    COMPACTION: LastCompaction,
}


@dataclass(frozen=True, slots=True)
class AttemptFigures:
    """The figures of one attempt of a task, to be added to the sums."""

    job: str
    labels: Mapping[str, str]
    by: TaskAttempt
    amounts: Mapping[str, float]
    """Added to the sums."""
    ended_ms: int
    took_s: float = 0.0
    details: Details | None = None
    """Replace those of the run before."""

    @property
    def series(self) -> bytes:
        return _SERIES + json.dumps([self.job, dict(sorted(self.labels.items()))]).encode()

    @property
    def time_series(self) -> str:
        """Return the key in the time line: all shards of a strategy share one."""
        return line_of(self.job, self.labels.get("strategy"))


# --- the names of lines: stored, and keys of the JSON form, so a text and not a pair ----------------------------------


def line_of(job: str, strategy: str | None) -> str:
    return job if strategy is None else f"{job}:{strategy}"


def swept_strategy(line: str) -> str | None:
    """Return the strategy of a line of sweeps, None for other work."""
    job, found, strategy = line.partition(":")
    return strategy if found and job == SWEEP else None


# --- what is recorded -------------------------------------------------------------------------------------------------


class Series(NamedTuple):
    """The totals of one kind of work with one set of labels."""

    job: str
    labels: dict[str, str]
    sums: Sums
    last: LastRun


class RecordedRun(BaseModel, frozen=True, defer_build=True):
    """One DAG run, as stored: its tasks and what they did, by kind of work."""

    tasks: int
    named: list[str] = []
    """The names of its first tasks; empty in runs that older versions recorded."""
    began_ms: int
    ended_ms: int
    jobs: dict[str, Sums]

    def merged(self, other: RecordedRun) -> RecordedRun:
        jobs = sorted({*self.jobs, *other.jobs})
        return RecordedRun(
            tasks=self.tasks + other.tasks,
            named=list(dict.fromkeys([*self.named, *other.named]))[:TASKS_NAMED],
            began_ms=min(self.began_ms, other.began_ms),
            ended_ms=max(self.ended_ms, other.ended_ms),
            jobs={job: _added(self.jobs.get(job, {}), other.jobs.get(job, {})) for job in jobs},
        )


@dataclass(slots=True)
class Recorded:
    """Everything that the tally holds."""

    series: list[Series] = field(default_factory=list)
    timeline: dict[int, dict[str, Sums]] = field(default_factory=dict)
    """By the beginning of each step in milliseconds, then by series (see `AttemptFigures.time_series`)."""
    runs: dict[tuple[str, str], RecordedRun] = field(default_factory=dict)
    """By DAG and run."""


class Tally:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def record(self, figures: AttemptFigures) -> bool:
        """Add the work of one attempt. Return False if this attempt was recorded before."""
        row = _ROWS[zlib.crc32(figures.series) % len(_ROWS)]
        for attempt in range(retries.RUN_TOTALS.attempts):
            if attempt > 1:
                self._clock.sleep(retries.RUN_TOTALS.pause_s(attempt))
            found = {cell.column: value for cell, value in self._store.read_rows(OBSERVATIONS, [row]).items()}
            changed = _changed(found, figures)
            if not changed:
                return False
            changes = {column: Change(found.get(column), value) for column, value in changed.items()}
            try:
                if self._store.compare_and_set(OBSERVATIONS, row, changes):
                    return True
            except OutcomeUnknown:
                continue  # the next read shows whether it was written
        raise StoreBusy(
            "run totals: other writers changed them at every attempt to record a run; its figures are not counted"
        )

    def read(self) -> Recorded:
        """Read everything in one call."""
        recorded = Recorded()
        for cell, value in self._store.read_rows(OBSERVATIONS, _ROWS).items():
            kind, rest, plain = cell.column[:2], cell.column[2:], json.loads(value)
            if kind == _SERIES:
                job, labels = json.loads(rest)
                last = _LAST.get(job, LastRun).model_validate(plain["last"])
                recorded.series.append(Series(job, labels, plain["sums"], last))
            elif kind == _TIME:
                lines = recorded.timeline.setdefault(read_var_long(rest)[0] * STEP_MS, {})
                for line, sums in plain.items():
                    lines[line] = _added(lines.get(line, {}), sums)
            else:
                dag, run = json.loads(rest)
                found, known = RecordedRun.model_validate(plain), recorded.runs.get((dag, run))
                recorded.runs[dag, run] = known.merged(found) if known else found
        return recorded


# --- the stored form: one JSON object in each column ------------------------------------------------------------------


def _changed(found: Mapping[bytes, bytes], figures: AttemptFigures) -> dict[bytes, bytes | None]:
    """Return the new values of the columns of a row; nothing if this attempt was added before."""
    series = _load(found.get(figures.series)) or {"seen": [], "sums": {}}
    if figures.by.key in series["seen"]:
        return {}
    time = _TIME + var_long(figures.ended_ms // STEP_MS)
    run = _RUN + json.dumps([figures.by.dag, figures.by.run]).encode()
    lines = _load(found.get(time)) or {}
    new = {
        figures.series: {
            "seen": [*series["seen"], figures.by.key][-_ATTEMPTS_REMEMBERED:],
            "sums": _added(series["sums"], figures.amounts),
            "last": _last(figures),
        },
        time: {**lines, figures.time_series: _added(lines.get(figures.time_series, {}), figures.amounts)},
        run: _run_with(found.get(run), figures).model_dump(),
    }
    kept = {column: json.dumps(plain, sort_keys=True, separators=(",", ":")).encode() for column, plain in new.items()}
    return {**dict.fromkeys(_outdated({**found, **kept}, figures.ended_ms)), **kept}


def _last(figures: AttemptFigures) -> dict[str, Any]:
    details = figures.details.model_dump() if figures.details else {}
    return {**details, **figures.by._asdict(), "ended_ms": figures.ended_ms, "took_s": round(figures.took_s, 3)}


def _run_with(stored: bytes | None, figures: AttemptFigures) -> RecordedRun:
    new = RecordedRun(
        tasks=1,
        named=[figures.by.task],
        began_ms=figures.ended_ms - round(figures.took_s * 1000),
        ended_ms=figures.ended_ms,
        jobs={figures.job: _added({}, figures.amounts)},
    )
    return RecordedRun.model_validate_json(stored).merged(new) if stored else new


def _outdated(found: Mapping[bytes, bytes], now_ms: int) -> list[bytes]:
    oldest = _TIME + var_long(max(0, now_ms - KEPT_MS) // STEP_MS)
    times = [column for column in found if column.startswith(_TIME) and column < oldest]
    runs = [column for column in found if column.startswith(_RUN)]
    runs.sort(key=lambda column: json.loads(found[column])["ended_ms"])
    return [*times, *runs[:-RUNS_KEPT]]


def _added(sums: Mapping[str, float], more: Mapping[str, float]) -> Sums:
    """Add two sets of sums; those that are 0 are left out."""
    added = {name: round(sums.get(name, 0) + more.get(name, 0), 3) for name in {**sums, **more}}
    return {name: number for name, number in sorted(added.items()) if number}


def _load(value: bytes | None) -> dict[str, Any] | None:
    return json.loads(value) if value else None
