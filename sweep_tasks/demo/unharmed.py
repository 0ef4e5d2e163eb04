"""Did a sweep leave everything in place that somebody can still see?

Asked of the data alone: none of the sweep's own rules is used. What was visible at a moment before the sweep must be
visible at that moment after it, for every moment that readers may still ask for: those at or above what the sweep has
published, and those that a protection covers. Holds all versions in memory: for a store of the demo's size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sweep_tasks.catalog import Catalog
from sweep_tasks.demo.measure import every_version
from sweep_tasks.model import EVERYTHING, MAX_TS, SENTINEL_TS, Cell, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.store.chunks import chunks
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED, CommitTable

_MOMENTS = 20
_AT_ONCE = 5_000

Visible = dict[Cell, int]
"""By cell: the start timestamp of what a reader sees there. A cell that reads as nothing is left out."""


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
        """Snapshot isolation, by its definition."""
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
    """Cells of a table that read differently now, at a moment."""

    table: TableRef
    at: int
    cells: int

    def __str__(self) -> str:
        return f"{self.table}: {self.cells} cells read differently at {self.at}"


def harm(before: Everything, after: Everything, moments: Mapping[TableRef, Collection[int]]) -> list[Harm]:
    """What reads differently now, by table and moment."""
    found = []
    for table, asked in moments.items():
        for at in asked:
            was, now = before.visible(table, at), after.visible(table, at)
            different = sum(was.get(cell) != now.get(cell) for cell in was.keys() | now.keys())
            if different:
                found.append(Harm(table, at, different))
    return found


def readable_moments(store: Store) -> dict[TableRef, list[int]]:
    """By table: some of the moments that may still be asked for, with the first and the last, and those protected."""
    now = TimestampService(store).greatest()
    records = ProtectionCatalog(store).records()
    moments = {}
    for table, threshold in Thresholds(store).of_tables(list(Catalog(store).list())).items():
        first = threshold.for_readers
        step = max((now - first) // _MOMENTS, 1)
        protected = {record.ts for record in records if record.lets_read(table, EVERYTHING, record.ts)}
        moments[table] = sorted({*range(first, now, step), *protected, MAX_TS})
    return moments
