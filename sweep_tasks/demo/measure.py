"""Measure a store: what it contains, how long it takes to read, what is kept and why, and whether a sweep did harm."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis import obstacles
from sweep_tasks.diagnosis.explain import explain_versions
from sweep_tasks.diagnosis.explanation import ExplainedVersion
from sweep_tasks.diagnosis.obstacles import WaitingEntry, read_conditions
from sweep_tasks.diagnosis.waiting import waiting_entries
from sweep_tasks.model import EVERYTHING, MAX_TS, SENTINEL_TS, Cell, StoredVersion, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.encoding import read_cells_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.contract import CellPage, Size, Store, VersionPage, chunks, every
from sweep_tasks.store.schema import PARKED, QUEUE_CELLS
from sweep_tasks.sweep.horizon import now_here
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

# ---------------------------------------------------------------------------------------------------------------------
# What a store contains and how long it takes to read, measured before a sweep and after it.
# ---------------------------------------------------------------------------------------------------------------------

_PAGE = 10_000
_SCANS = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """What a store contains at one moment."""

    versions: dict[TableRef, int]
    """Sentinels included: a scan reads them as well."""
    cells: int
    by_shard: dict[tuple[SweepStrategy, int], int]
    """Versions without sentinels, by the strategy and shard that sweeps them."""
    queue_entries: int
    dedicated_rows: int
    parked: int
    size: Size | None
    scan_s: float
    """Seconds to read the newest version of every cell: the fastest of a few scans."""


def measure(store: Store) -> Measured:
    tables = Catalog(store).list()
    shards = Progress(store).shards()
    versions: Counter[TableRef] = Counter()
    by_shard: Counter[tuple[SweepStrategy, int]] = Counter()
    cells = 0
    for table, metadata in tables.items():
        last = None
        for cell, ts, _ in every_version(store, table):
            versions[table] += 1
            cells += cell != last
            last = cell
            if ts != SENTINEL_TS:
                by_shard[metadata.strategy, shard_of(table, cell, shards)] += 1
    queued = list(_cells(store, QUEUE_CELLS))
    return Measured(
        {table: versions[table] for table in tables},
        cells,
        by_shard,
        len(queued),
        len({cell.row for cell in queued if read_cells_row(cell.row)[1].dedicated}),
        sum(1 for _ in _cells(store, PARKED)),
        store.size(),
        min(_scan_s(store, list(tables)) for _ in range(_SCANS)),
    )


def every_version(store: Store, table: TableRef) -> Iterator[tuple[Cell, int, bool]]:
    def page(after: tuple[Cell, int] | None) -> VersionPage:
        return store.scan_versions(table, limit=_PAGE, after=after)

    return ((cell, ts, empty) for cell, ts, empty in every(page))


def _scan_s(store: Store, tables: list[TableRef]) -> float:
    """Read from the store directly: a transaction would roll back dead writers, and measuring must change nothing. The
    CPU time of this thread is measured, so that other work on the machine does not count."""
    began = time.thread_time()
    for table in tables:
        for _ in _cells(store, table):
            pass
    return time.thread_time() - began


def _cells(store: Store, table: TableRef) -> Iterator[Cell]:
    def page(after: Cell | None) -> CellPage:
        return store.scan(table, MAX_TS, limit=_PAGE, after=after)

    return (cell for cell, _ in every(page))


# ---------------------------------------------------------------------------------------------------------------------
# How many versions are kept for which reason, over a whole store.
#
# Each version is explained as `sweepflow explain` does. Every queued entry is held in memory, which suits a store of
# the demo's size.
# ---------------------------------------------------------------------------------------------------------------------


class KeptReason(StrEnum):
    NEWEST = "newest"
    RETENTION = "retention"
    OPEN_TRANSACTION = "open_transaction"
    PROTECTED = "protected"
    BLOCKED = "blocked"
    QUEUED = "queued"
    PARKED = "parked"
    NOT_COMMITTED = "not_committed"
    SENTINEL = "sentinel"
    NO_QUEUE_ENTRY = "no_queue_entry"


_PARKED = (obstacles.Reason.PARKED_REPLICAS, obstacles.Reason.QUARANTINED, obstacles.Reason.PAUSED)


class Kept(NamedTuple):
    """Why a version is kept. `by` names a protection, a table with its own retention, or the owner of a transaction."""

    reason: KeptReason
    by: str | None = None
    lease_ts: int | None = None
    """The lease of an open transaction."""


def kept(store: Store, settings: Settings, clock: Clock) -> Counter[Kept]:
    """Count the versions of the user's tables by the reason why they are kept."""
    explainer = _Explainer(store, settings, clock)
    counted: Counter[Kept] = Counter()
    for table, metadata in Catalog(store).list().items():
        for cell, versions in groupby(every_version(store, table), key=itemgetter(0)):
            stored = [StoredVersion(*each) for each in versions]
            counted.update(explainer.at_cell(table, metadata.strategy, cell, stored))
    return counted


class _Explainer:
    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._commits = CommitTable(store)
        progress = Progress(store).all()
        view = SweepView.publish(store, now_here(MAX_TS, store, settings, clock), dry_run=True)
        self._around = read_conditions(store, settings, clock, view, progress, bounded=True)
        self._waiting: dict[tuple[TableRef, Cell], list[WaitingEntry]] = {}
        for queue, reached in progress.items():
            for each in waiting_entries(store, view, queue, reached):
                self._waiting.setdefault((each.entry.table, each.entry.cell), []).append(each)

    def at_cell(
        self, table: TableRef, strategy: SweepStrategy, cell: Cell, versions: list[StoredVersion]
    ) -> Iterator[Kept]:
        outcomes = self._commits.outcomes([version.ts for version in versions if version.ts != SENTINEL_TS])
        waiting = self._waiting.get((table, cell), [])
        found = explain_versions(versions, outcomes, strategy, waiting, self._around, when=False)
        return (_kept(table, each) for each in found)


def _kept(table: TableRef, found: ExplainedVersion) -> Kept:
    """Return the reason for the report: all sentinels count as one reason, and so do all versions without a commit."""
    if found.ts == SENTINEL_TS:
        return Kept(KeptReason.SENTINEL)
    if found.state in ("aborted", "unfinished"):
        return Kept(KeptReason.NOT_COMMITTED)
    if found.why.reason in _PARKED:
        return Kept(KeptReason.PARKED)
    if found.why.reason is obstacles.Reason.NO_QUEUE_ENTRY:
        return Kept(KeptReason.NO_QUEUE_ENTRY, str(table))
    by = None if found.why.by is None else str(found.why.by)
    return Kept(KeptReason(found.why.reason), by, found.why.lease_ts)


# ---------------------------------------------------------------------------------------------------------------------
# Did a sweep keep everything that can still be read?
#
# The check uses the data alone and none of the sweep's own rules. What was visible at a timestamp before the sweep must
# be visible at that timestamp after it, for every timestamp that can still be read: those at or above the published
# thresholds, and those that are protected. All versions are held in memory, which suits a store of the demo's size.
# ---------------------------------------------------------------------------------------------------------------------

_MOMENTS = 20
_AT_ONCE = 5_000

Visible = dict[Cell, int]
"""By cell: the start timestamp of the visible version. Cells without one are left out."""


@dataclass(frozen=True, slots=True)
class _Version:
    start: int
    commit: int
    delete: bool


@dataclass(frozen=True, slots=True)
class Everything:
    """All committed versions of all tables, oldest first."""

    tables: Mapping[TableRef, Mapping[Cell, list[_Version]]]

    def visible(self, table: TableRef, at: int) -> Visible:
        """Return what is visible at a timestamp, by the definition of snapshot isolation."""
        found: Visible = {}
        for cell, versions in self.tables[table].items():
            seen = [version for version in versions if version.start < at and version.commit < at]
            if seen and not seen[-1].delete:
                found[cell] = seen[-1].start
        return found


def everything(store: Store) -> Everything:
    return Everything({table: _committed(store, table) for table in Catalog(store).list()})


def _committed(store: Store, table: TableRef) -> dict[Cell, list[_Version]]:
    stored = [each for each in every_version(store, table) if each[1] != SENTINEL_TS]
    outcomes = _outcomes(store, sorted({start for _, start, _ in stored}))
    found: dict[Cell, list[_Version]] = {}
    for cell, start, delete in stored:
        commit = outcomes.get(start, ABORTED)
        if commit != ABORTED:
            found.setdefault(cell, []).append(_Version(start, commit, delete))
    for versions in found.values():
        versions.sort(key=lambda version: version.start)
    return found


def _outcomes(store: Store, starts: list[int]) -> dict[int, int]:
    commits, found = CommitTable(store), dict[int, int]()
    for part in chunks(starts, _AT_ONCE):
        found |= commits.outcomes(part)
    return found


class Harm(NamedTuple):
    """The number of cells of a table that read differently after the sweep, at a timestamp."""

    table: TableRef
    at: int
    cells: int

    def __str__(self) -> str:
        return f"{self.table}: {self.cells} cells read differently at {self.at}"


def harm(before: Everything, after: Everything, moments: Mapping[TableRef, Collection[int]]) -> list[Harm]:
    """Return what reads differently after the sweep, by table and timestamp."""
    found = []
    for table, asked in moments.items():
        for at in asked:
            was, now = before.visible(table, at), after.visible(table, at)
            different = sum(was.get(cell) != now.get(cell) for cell in was.keys() | now.keys())
            if different:
                found.append(Harm(table, at, different))
    return found


def readable_moments(store: Store) -> dict[TableRef, list[int]]:
    """Return, by table, some of the timestamps that can still be read, with the first, the last and the protected
    ones."""
    now = TimestampService(store).greatest()
    records = ProtectionCatalog(store).records()
    moments = {}
    for table, threshold in Thresholds(store).of_tables(list(Catalog(store).list())).items():
        first = threshold.for_readers
        step = max((now - first) // _MOMENTS, 1)
        protected = {record.ts for record in records if record.lets_read(table, EVERYTHING, record.ts)}
        moments[table] = sorted({*range(first, now, step), *protected, MAX_TS})
    return moments
