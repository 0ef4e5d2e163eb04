"""Entries that travel in blocks arrive as they were, each at one task, and only the newest of a segment is judged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import blocks
from spark_jobs.blocks import Starts, blocks_of, cell_keys, chosen_bounds, divided, entries_in, newest_by_segment
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.sweep.rules import segment
from tests.unit.spark_jobs.entries import as_batch, commits, committed, entries, tables
from tests.unit.sweep.judged import records

SMALL, SAMPLED = 3, 2


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK_ENTRIES", SMALL)
        patch.setattr(blocks, "_SAMPLED", SAMPLED)
        yield


def rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return sorted(tuple(each.values()) for each in batch.to_pylist())


def all_rows(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return sorted(row for batch in batches for row in rows(batch))


some = st.builds(committed, entries, commits).filter(bool)


@given(some, st.integers(1, 5))
def test_each_entry_arrives_at_one_task_with_all_others_of_its_cell(found: list[Any], tasks: int) -> None:
    batch = as_batch(found, {}, Protections.none())
    made, sample = blocks_of([batch.slice(0, 1), batch.slice(1)])
    bounds = chosen_bounds(sample, tasks)
    arrived: dict[int, list[pa.RecordBatch]] = {}
    for each in made:
        for task, block in divided(each["block"], each["first_cell"], each["last_cell"], bounds):
            arrived.setdefault(task, []).append(entries_in(block))
    assert all_rows([batch for batches in arrived.values() for batch in batches]) == rows(batch)
    assert all(0 <= task <= len(bounds) < tasks for task in arrived)
    cells = [
        set(cell_keys(batch).to_pylist()) for batches in arrived.values() for batch in [pa.concat_batches(batches)]
    ]
    assert sum(map(len, cells)) == len(set().union(*cells))


@given(some)
def test_a_block_knows_its_first_and_last_cell_and_start(found: list[Any]) -> None:
    made, sample = blocks_of([as_batch(found, {}, Protections.none())])
    assert len(sample) == -(-len(found) // SAMPLED)
    for each in made:
        block = entries_in(each["block"])
        cells, starts = cell_keys(block).to_pylist(), block["start"].to_pylist()
        assert len(block) <= SMALL
        assert cells == sorted(cells)
        assert (each["first_cell"], each["last_cell"]) == (cells[0], cells[-1])
        assert (each["first_start"], each["last_start"]) == (min(starts), max(starts))


@given(some, st.none() | st.integers(0, 21), st.none() | st.integers(0, 21), st.booleans())
def test_only_the_transactions_of_the_batch_are_selected(
    found: list[Any], after: int | None, before: int | None, without: bool
) -> None:
    chosen = Starts(after, before, frozenset([0]) if without else frozenset())
    expected = [
        entry
        for entry in found
        if (after is None or entry.start > after) and (before is None or entry.start < before) and not without
    ]
    selected = chosen.select(as_batch(found, {}, Protections.none()))
    assert selected["start"].to_pylist() == [entry.start for entry in expected]


def test_the_entries_of_a_partition_can_be_left_out() -> None:
    batch = pa.record_batch({"start": pa.array([FINE - 1, FINE, 2 * FINE])})
    assert Starts(without=frozenset([1])).select(batch)["start"].to_pylist() == [FINE - 1, 2 * FINE]


@given(st.integers(0, 30), st.integers(0, 30), st.none() | st.integers(0, 30))
def test_a_batch_can_be_ended_earlier_and_never_later(after: int, end: int, before: int | None) -> None:
    ended = Starts(after, before).below(end)
    assert ended == Starts(after, end if before is None else min(end, before))


@given(some, tables, records)
def test_of_a_cell_in_one_segment_only_the_entry_with_the_greatest_start_is_left(
    found: list[Any], views: Any, protected: Any
) -> None:
    protections = Protections(protected)
    newest: dict[Any, int] = {}
    for entry in found:
        key = (entry.table, entry.cell, segment(entry, views.get(entry.table), protections))
        newest[key] = max(newest.get(key, 0), entry.start)
    batch = as_batch(found, views, protections)
    left = newest_by_segment([batch.slice(at, 1) for at in range(len(batch))])
    expected = [
        entry
        for entry in found
        if newest[entry.table, entry.cell, segment(entry, views.get(entry.table), protections)] == entry.start
    ]
    assert rows(left) == rows(as_batch(expected, views, protections))
    cells = cell_keys(left).to_pylist()
    assert cells == sorted(cells)
