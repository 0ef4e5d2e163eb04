"""Arrow batches of entries that were read from the queue, with the outcome and the segment of each."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decoding import QueuePage
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.sweep.rules import Entry, TableView, may_be_divided, segment
from sweep_tasks.transactions.outcomes import ABORTED

ENTRY_SCHEMA = pa.schema(
    {
        "start": pa.int64(),
        "commit": pa.int64(),
        "table": pa.string(),
        "table_id": pa.int64(),
        "row": pa.binary(),
        "column": pa.binary(),
        "delete": pa.bool_(),
        "segment": pa.string(),
    }
)
_CROWD = 1_000
"""A row is counted if it has at least this part of the entries of a batch."""

TablesById = Mapping[int, TableRef]
Views = Mapping[TableRef, TableView]


def entry_batches(
    page: QueuePage,
    tables: TablesById,
    others: list[Entry],
    outcomes: Mapping[int, int],
    views: Views,
    protections: Protections,
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a page: those in the usual form, then the others, which were decoded one by one."""
    if len(page.chosen):
        yield _usual_entries(page, tables, outcomes, views, protections)
    if others:
        yield _other_entries(others, views, protections)


def rows_of(kind: pa.Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=kind)


def row_number(table: str, row: bytes) -> int:
    """Return a number that stands for a row where tombstones are counted. Two rows with the same number count as one,
    which can only end a run early."""
    return zlib.crc32(row, zlib.crc32(table.encode()))


def crowded_rows(entries: pa.RecordBatch) -> Counter[int]:
    """Return how many entries each row has, except for rows with a very small part of them."""
    counts = pa.Table.from_batches([entries]).group_by(["table", "row"]).aggregate([([], "count_all")])
    many = counts.filter(pc.greater_equal(counts["count_all"], max(1, entries.num_rows // _CROWD)))
    found: Counter[int] = Counter()
    for table, row, count in zip(*(many[name].to_pylist() for name in ("table", "row", "count_all")), strict=True):
        found[row_number(table, row)] += count
    return found


def _usual_entries(
    page: QueuePage, tables: TablesById, outcomes: Mapping[int, int], views: Views, protections: Protections
) -> pa.RecordBatch:
    """Return entries without creating an object for each. The rules are asked only about those that may be in a
    segment of their own."""
    starts, which = np.unique(page.start, return_inverse=True)
    commit = np.array([outcomes[start] for start in starts.tolist()], np.int64)[which]
    rows, columns = page.cells()
    ids, numbers = np.unique(page.table_id, return_inverse=True)
    known = [tables[table_id] for table_id in ids.tolist()]
    divided = [n for n, table in enumerate(known) if may_be_divided(table, views.get(table), protections)]
    segments = np.full(len(commit), "", object)
    for at in np.flatnonzero((commit == ABORTED) | np.isin(numbers, divided)).tolist():
        table = known[numbers[at]]
        cell = Cell(rows[at].as_py(), columns[at].as_py())
        start, delete = int(page.start[at]), bool(page.delete[at])
        entry = Entry(table, int(page.table_id[at]), cell, start, int(commit[at]), delete)
        segments[at] = segment(entry, views.get(table), protections)
    names = pa.array(map(str, known), pa.string())
    table_names = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), names).cast(pa.string())
    values = [
        page.start,
        commit,
        table_names,
        page.table_id,
        rows,
        columns,
        page.delete,
        pa.array(segments, pa.string()),
    ]
    return _batch_of([each if isinstance(each, pa.Array) else pa.array(each) for each in values])


def _other_entries(entries: list[Entry], views: Views, protections: Protections) -> pa.RecordBatch:
    names = {table: str(table) for table in {entry.table for entry in entries}}
    return _batch_of(
        [
            pa.array([entry.start for entry in entries], pa.int64()),
            pa.array([entry.commit for entry in entries], pa.int64()),
            pa.array([names[entry.table] for entry in entries], pa.string()),
            pa.array([entry.table_id for entry in entries], pa.int64()),
            pa.array([entry.cell.row for entry in entries], pa.binary()),
            pa.array([entry.cell.column for entry in entries], pa.binary()),
            pa.array([entry.delete for entry in entries], pa.bool_()),
            pa.array([segment(entry, views.get(entry.table), protections) for entry in entries], pa.string()),
        ]
    )


def _batch_of(columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
