"""Random entries of the queue, and entries as the batches that workers make of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from hypothesis import strategies as st

from spark_jobs.batches import entry_batches
from spark_jobs.decoding import scalar_page
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.sweep.rules import Entry, TableView
from sweep_tasks.transactions.outcomes import ABORTED
from tests.unit.sweep.judged import TABLES, views

_names = st.sampled_from([b"", b"a", b"b", b"a" * 130])

entries = st.lists(
    st.builds(
        lambda table_id, row, column, start, delete: (table_id, Cell(row, column), start, delete),
        st.sampled_from(sorted(TABLES)),
        _names,
        st.sampled_from([b"c", b"d"]),
        st.integers(1, 20),
        st.booleans(),
    ),
    max_size=40,
    unique_by=lambda each: each[:3],
)
commits = st.lists(st.one_of(st.just(ABORTED), st.integers(0, 40)), min_size=20, max_size=20)
tables = st.dictionaries(st.sampled_from(sorted(TABLES.values())), views)


def committed(found: Collection[tuple[int, Cell, int, bool]], commits: list[int]) -> list[Entry]:
    """Give each entry the outcome of its transaction."""
    outcomes = [ABORTED if commit == ABORTED else start + commit for start, commit in enumerate(commits)]
    return [
        Entry(TABLES[table_id], table_id, cell, start, outcomes[start - 1], delete)
        for table_id, cell, start, delete in found
    ]


def as_batch(entries: list[Entry], tables: Mapping[TableRef, TableView], protections: Protections) -> pa.RecordBatch:
    outcomes = {entry.start: entry.commit for entry in entries}
    (batch,) = entry_batches(scalar_page([], []), {}, entries, outcomes, tables, protections)
    return batch
