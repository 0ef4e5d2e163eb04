"""What runs have done, added up in the store: sums, a time line, and the last runs.

A task's process is gone before anybody could ask it for its figures, so they are entered here when its work ends. One
compare-and-set changes the sums, the time line and the run's line together. Each try of a task is entered once: the
sums of a series remember the last tries that were added to them, so a lost answer or a second call adds nothing.

Bounded: a series for each set of labels (strategy and shard, a table), of the time line a week, of runs the last few.
Nothing in it is a row, a column or a value of anybody's table.
"""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import OutcomeUnknown, StoreBusy
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import OBSERVATIONS

STEP_MS = 900_000
"""The time line counts in quarters of an hour."""
KEPT_MS = 7 * 86_400_000
RUNS_KEPT = 24
TASKS_NAMED = 5
"""Of each run, the first that ended: a run of hundreds has a page of its own."""
_TRIES_REMEMBERED = 16
_ROWS = [b"tally:%d" % number for number in range(8)]
"""Spread, so that tasks which end at the same moment do not all wait for one another."""
_SERIES, _TIME, _RUN = b"s:", b"t:", b"r:"
_ATTEMPTS = 60
_LONGEST_PAUSE_S = 1.0

Sums = dict[str, float]


COMMAND, PAGE = "command", "page"
"""In the place of a DAG: done by hand, in a terminal or in the browser."""


class Try(NamedTuple):
    """Who did it: a task of a run, for the so manieth time; what is done by hand is a run of its own."""

    dag: str
    run: str
    task: str
    number: int = 1
    map_index: int = -1
    """Of a task that is one of several with the same name in a run."""

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Done:
    """What one try did."""

    job: str
    labels: Mapping[str, str]
    by: Try
    amounts: Mapping[str, float]
    ended_ms: int
    took_s: float = 0.0
    said: Mapping[str, Any] = field(default_factory=dict)
    """What a person wants to know of the last time."""

    @property
    def series(self) -> bytes:
        return _SERIES + json.dumps([self.job, dict(sorted(self.labels.items()))]).encode()

    @property
    def line(self) -> str:
        """Of the time line: all shards of a strategy together."""
        return ":".join([self.job, *([self.labels["strategy"]] if "strategy" in self.labels else [])])


class Series(NamedTuple):
    job: str
    labels: dict[str, str]
    sums: Sums
    last: dict[str, Any]


@dataclass(slots=True)
class Entered:
    """All that is on record."""

    series: list[Series] = field(default_factory=list)
    timeline: dict[int, dict[str, Sums]] = field(default_factory=dict)
    """By the beginning of each step in milliseconds, and then by line."""
    runs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By DAG and run."""


class Tally:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def enter(self, done: Done) -> bool:
        """False if this try was entered before."""
        row = _ROWS[zlib.crc32(done.series) % len(_ROWS)]
        for attempt in range(_ATTEMPTS):
            if attempt > 1:
                self._clock.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, 0.004 * 2**attempt)))  # noqa: S311
            found = {cell.column: value for cell, value in self._store.read_rows(OBSERVATIONS, [row]).items()}
            changed = _changed(found, done)
            if not changed:
                return False
            changes = {column: Change(found.get(column), value) for column, value in changed.items()}
            try:
                if self._store.compare_and_set(OBSERVATIONS, row, changes):
                    return True
            except OutcomeUnknown:
                continue  # the next look tells whether it is there
        raise StoreBusy("observations: they changed all the time while a run was entered; its figures are not counted")

    def read(self) -> Entered:
        """In one call."""
        entered = Entered()
        for cell, value in self._store.read_rows(OBSERVATIONS, _ROWS).items():
            kind, rest, plain = cell.column[:2], cell.column[2:], json.loads(value)
            if kind == _SERIES:
                job, labels = json.loads(rest)
                entered.series.append(Series(job, labels, plain["sums"], plain["last"]))
            elif kind == _TIME:
                lines = entered.timeline.setdefault(read_var_long(rest)[0] * STEP_MS, {})
                for line, sums in plain.items():
                    lines[line] = _added(lines.get(line, {}), sums)
            else:
                dag, run = json.loads(rest)
                entered.runs[dag, run] = _together(entered.runs.get((dag, run)), plain)
        return entered


def _changed(found: Mapping[bytes, bytes], done: Done) -> dict[bytes, bytes | None]:
    """The columns of a row as they are to be; nothing if this try is in them already."""
    series = _load(found.get(done.series)) or {"seen": [], "sums": {}}
    if done.by.key in series["seen"]:
        return {}
    time = _TIME + var_long(done.ended_ms // STEP_MS)
    run = _RUN + json.dumps([done.by.dag, done.by.run]).encode()
    lines = _load(found.get(time)) or {}
    new = {
        done.series: {
            "seen": [*series["seen"], done.by.key][-_TRIES_REMEMBERED:],
            "sums": _added(series["sums"], done.amounts),
            "last": {**done.said, **done.by._asdict(), "ended_ms": done.ended_ms, "took_s": round(done.took_s, 3)},
        },
        time: {**lines, done.line: _added(lines.get(done.line, {}), done.amounts)},
        run: _together(_load(found.get(run)), _alone(done)),
    }
    kept = {column: json.dumps(plain, sort_keys=True, separators=(",", ":")).encode() for column, plain in new.items()}
    return {**dict.fromkeys(_outdated({**found, **kept}, done.ended_ms)), **kept}


def _outdated(found: Mapping[bytes, bytes], now_ms: int) -> list[bytes]:
    oldest = _TIME + var_long(max(0, now_ms - KEPT_MS) // STEP_MS)
    times = [column for column in found if column.startswith(_TIME) and column < oldest]
    runs = [column for column in found if column.startswith(_RUN)]
    runs.sort(key=lambda column: json.loads(found[column])["ended_ms"])
    return [*times, *runs[:-RUNS_KEPT]]


def _alone(done: Done) -> dict[str, Any]:
    began_ms = done.ended_ms - round(done.took_s * 1000)
    sums = _added({}, done.amounts)
    named = [done.by.task]
    return {"tasks": 1, "named": named, "began_ms": began_ms, "ended_ms": done.ended_ms, "jobs": {done.job: sums}}


def _together(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    if one is None:
        return other
    jobs = sorted({*one["jobs"], *other["jobs"]})
    named = dict.fromkeys([*one.get("named", ()), *other.get("named", ())])  # lines of older versions name none
    return {
        "tasks": one["tasks"] + other["tasks"],
        "named": list(named)[:TASKS_NAMED],
        "began_ms": min(one["began_ms"], other["began_ms"]),
        "ended_ms": max(one["ended_ms"], other["ended_ms"]),
        "jobs": {job: _added(one["jobs"].get(job, {}), other["jobs"].get(job, {})) for job in jobs},
    }


def _added(sums: Mapping[str, float], more: Mapping[str, float]) -> Sums:
    """What is nought is left out."""
    added = {name: round(sums.get(name, 0) + more.get(name, 0), 3) for name in {**sums, **more}}
    return {name: number for name, number in sorted(added.items()) if number}


def _load(value: bytes | None) -> dict[str, Any] | None:
    return json.loads(value) if value else None
