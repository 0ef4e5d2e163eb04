"""What a store holds and what it costs to read, by really looking: before a sweep, and after it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sweep_tasks.catalog import Catalog
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, SweepStrategy, TableRef
from sweep_tasks.queue.encoding import read_cells_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.contract import CellPage, Size, Store, VersionPage, every
from sweep_tasks.store.system import PARKED, QUEUE_CELLS

_PAGE = 10_000
_SCANS = 10


@dataclass(frozen=True, slots=True)
class Measured:
    versions: dict[TableRef, int]
    """Sentinels included: they lie in the way of a scan as well."""
    cells: int
    by_shard: dict[tuple[SweepStrategy, int], int]
    """Versions without sentinels, by the strategy and shard that sweeps them."""
    queue_entries: int
    dedicated_rows: int
    parked: int
    size: Size | None
    scan_s: float
    """The newest version of every cell, read once: the quickest of a few times."""

    def document(self) -> dict[str, Any]:
        return {
            "versions": sum(self.versions.values()),
            "versions_by_table": {str(table): number for table, number in self.versions.items()},
            "cells": self.cells,
            "queue_entries": self.queue_entries,
            "dedicated_rows": self.dedicated_rows,
            "parked": self.parked,
            "bytes_used": self.size.used if self.size else None,
            "bytes_free": self.size.free if self.size else None,
            "scan_s": round(self.scan_s, 4),
        }


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
    """Straight from the store: a reader would roll dead writers back, and measuring must change nothing. In seconds of
    this thread: what else the machine does meanwhile is not the store's."""
    began = time.thread_time()
    for table in tables:
        for _ in _cells(store, table):
            pass
    return time.thread_time() - began


def _cells(store: Store, table: TableRef) -> Iterator[Cell]:
    def page(after: Cell | None) -> CellPage:
        return store.scan(table, MAX_TS, limit=_PAGE, after=after)

    return (cell for cell, _ in every(page))
