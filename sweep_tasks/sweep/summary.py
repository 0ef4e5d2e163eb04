"""What a sweep of one shard did, and its progress while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NamedTuple

import structlog
from pydantic import TypeAdapter

from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.tables.activity import NONE, WriteCounts
from sweep_tasks.tables.deletions import DeleteTally

# ---------------------------------------------------------------------------------------------------------------------
# What a sweep of one shard did. Between processes and in an XCom it is one JSON document.
# ---------------------------------------------------------------------------------------------------------------------


LOCAL, SPARK, IDLE = "local", "spark", "idle"
"""Engines: this process, Spark, and none because there was nothing to do."""


@dataclass(slots=True)
class Summary:
    strategy: SweepStrategy
    shard: int
    sweep_ts: int
    dry_run: bool = False
    progress_before: int = -1
    progress: int = -1
    entries: int = 0
    range_deletes: int = 0
    sentinels: int = 0
    aborted_deletes: int = 0
    parked: int = 0
    unparked: int = 0
    blocked: int = 0
    quarantined: int = 0
    cleaned_partitions: int = 0
    batches: int = 0
    stopped: str | None = None
    """Why it ended before everything was swept: blocked, entries, seconds, tombstones or paused."""
    workers: int = 0
    """The number of Spark processes that read and deleted; 0 if one process did everything."""
    tombstones: dict[str, int] = field(default_factory=dict)
    """The number of tombstones written, by table; empty for a store that has none."""
    seconds: dict[str, float] = field(default_factory=dict)
    engine: str | None = None
    """What carried out the steps. The document of a sweep in this process has no such key."""

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON types. `parse` is the inverse."""
        plain = asdict(self) | {"seconds": {phase: round(took, 3) for phase, took in self.seconds.items()}}
        plain["strategy"] = self.strategy.value
        return {name: value for name, value in plain.items() if name != "engine" or value is not None}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Summary:
        return _validator().validate_python(document)


@cache
def _validator() -> TypeAdapter[Summary]:
    """Built when it is needed, which takes longer than importing this module."""
    return TypeAdapter(Summary)


def written(entries: Collection[Entry]) -> dict[TableRef, WriteCounts]:
    """Count the cells that were written or deleted, by table: each cell once, as its latest entry left it."""
    latest: dict[tuple[TableRef, Cell], Entry] = {}
    for entry in entries:
        known = latest.get((entry.table, entry.cell))
        if known is None or entry.start > known.start:
            latest[entry.table, entry.cell] = entry
    found: dict[TableRef, WriteCounts] = {}
    for (table, _), entry in latest.items():
        found[table] = found.get(table, NONE).plus(WriteCounts(not entry.delete, entry.delete))
    return found


class DistinctCells:
    """Counts distinct cells, however many batches touch them."""

    def __init__(self) -> None:
        self._seen: dict[TableRef, set[Cell]] = {}

    def add(self, by_table: dict[TableRef, set[Cell]]) -> None:
        for table, cells in by_table.items():
            self._seen.setdefault(table, set()).update(cells)

    def __len__(self) -> int:
        return sum(map(len, self._seen.values()))

    def __iter__(self) -> Iterator[tuple[TableRef, Cell]]:
        return ((table, cell) for table, cells in self._seen.items() for cell in cells)


@dataclass(slots=True)
class SweepCounts:
    """What a sweep counts: distinct cells over all shards of one operation, the entries judged of each table, and every
    write to the store."""

    ranged: DistinctCells = field(default_factory=DistinctCells)
    sentinels: DistinctCells = field(default_factory=DistinctCells)
    written: dict[TableRef, WriteCounts] = field(default_factory=dict)
    deleted: DeleteTally = field(default_factory=DeleteTally)

    def add_written(self, found: Mapping[TableRef, WriteCounts]) -> None:
        for table, more in found.items():
            self.written[table] = self.written.get(table, NONE).plus(more)


# ---------------------------------------------------------------------------------------------------------------------
# The progress of a running sweep, for a progress bar or a log. Numbers, never cells.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

EVERY_S = 5.0


class Reached(NamedTuple):
    strategy: SweepStrategy
    shard: int
    phase: str
    begin: int
    """The progress when the sweep started."""
    progress: int
    sweep_ts: int
    entries: int
    batches: int

    @property
    def share(self) -> float:
        """Return the share of the timestamps to sweep that are swept."""
        whole = self.sweep_ts - 1 - self.begin
        return 1.0 if whole <= 0 else min(1.0, max(0.0, (self.progress - self.begin) / whole))


ProgressListener = Callable[[Reached], None]


def ignore_progress(_: Reached) -> None:
    """Do nothing: the default listener."""


class LogEvery:
    """Logs the progress of a sweep every few seconds, however often it is called; a short sweep logs nothing."""

    def __init__(self, seconds: float = EVERY_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now_s = now_s
        self._logged_s = now_s()
        self.last: Reached | None = None

    def __call__(self, reached: Reached) -> None:
        self.last = reached
        if self._now_s() - self._logged_s >= self._seconds:
            self.log_progress()

    def log_progress(self, **more: object) -> None:
        """Log the latest progress, if there is any."""
        self._logged_s = self._now_s()
        if self.last is not None:
            _, _, phase, _, progress, sweep_ts, entries, batches = self.last
            log.info(
                "sweeping",
                phase=phase,
                done=f"{self.last.share:.0%}",
                progress=progress,
                sweep_ts=sweep_ts,
                entries=entries,
                batches=batches,
                **more,
            )
