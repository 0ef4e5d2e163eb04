"""What runs in Spark's Python workers during an export: each reads stretches of tables, as of one timestamp.

Every page is checked by the reader itself: one that a sweep has passed fails, and with it the job. So what was read is
what a reader at that timestamp saw, or there is no export.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from spark_jobs.workers import Batches, Worker
from sweep_tasks.config import load_settings
from sweep_tasks.model import Cell, Version
from sweep_tasks.opening import borrowed_store
from sweep_tasks.store.contract import Page, Stretch
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.snapshot import Snapshot

_CELLS = pa.schema(
    [
        ("table", pa.string()),
        ("row", pa.binary()),
        ("column", pa.binary()),
        ("start", pa.int64()),
        ("value", pa.binary()),
    ]
)


class Part(NamedTuple):
    table: str
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class ExportBrief:
    store: dict[str, Any]
    """The settings that open it."""
    at: int
    parts: list[Part]


def reading(brief: ExportBrief) -> Worker:
    """Takes a frame of numbers, each standing for a part; gives cells."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        settings = load_settings(**brief.store)
        with (
            borrowed_store(settings) as store,
            TransactionManager(store, settings, enqueue=False, renew_leases=False) as manager,
        ):
            snapshot = manager.read_at(brief.at)
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield from _pages(snapshot, brief.parts[number])

    return read


def _pages(snapshot: Snapshot, part: Part) -> Iterator[pa.RecordBatch]:
    after: Cell | None = None
    while True:
        page: Page[tuple[Cell, Version], Cell] = snapshot.version_page(part.table, after=after, stretch=part.stretch)
        if page.items:
            yield _cells(part.table, page.items)
        after = page.resume
        if after is None:
            return


def _cells(table: str, found: list[tuple[Cell, Version]]) -> pa.RecordBatch:
    columns = [
        pa.array([table] * len(found), pa.string()),
        pa.array([cell.row for cell, _ in found], pa.binary()),
        pa.array([cell.column for cell, _ in found], pa.binary()),
        pa.array([version.ts for _, version in found], pa.int64()),
        pa.array([version.value for _, version in found], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CELLS)
