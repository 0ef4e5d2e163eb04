"""Entries that are planned many at a time remove what the rules say, entry by entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.blocks import newest_by_segment
from spark_jobs.planning import plan_many, planned_alike, writes_by_table
from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.sweep import rules
from sweep_tasks.sweep.rules import Entry, Plan, TableView
from sweep_tasks.sweep.summary import written
from tests.unit.spark_jobs.entries import as_batch, commits, committed, entries, tables
from tests.unit.sweep.judged import TABLES, records

UNTIL_MS = 5_000
ITEMS = TABLES[1]

some = st.builds(committed, entries, commits).filter(bool)
a_write = [Entry(ITEMS, 1, Cell(b"r", b"c"), 5, 6, False)]


def sorted_plan(plan: Plan) -> dict[str, Any]:
    """A plan as plain values; the order within a table does not matter."""
    by_table = {name: found for name, found in asdict(plan).items() if isinstance(found, dict)}
    plain = {name: {t: sorted(each) for t, each in found.items()} for name, found in by_table.items()}
    return plain | {"parked": sorted(plan.parked)}


def plan_of(
    batch: pa.RecordBatch, strategy: SweepStrategy, tables: Mapping[TableRef, TableView], protections: Protections
) -> Plan:
    alike, _ = planned_alike(batch, strategy, tables)
    assert not any((alike.markers, alike.to_check, alike.exact, alike.parked))
    return plan_many(lambda found: rules.plan(found, strategy, tables, protections, UNTIL_MS), batch, strategy, tables)


@given(some, st.sampled_from(QUEUES), tables, records)
@example(a_write, SweepStrategy.CONSERVATIVE, {ITEMS: TableView(SweepStrategy.CONSERVATIVE)}, [])
@example(a_write, SweepStrategy.THOROUGH, {ITEMS: TableView(SweepStrategy.THOROUGH)}, [])
@example(a_write, SweepStrategy.CONSERVATIVE, {ITEMS: TableView(SweepStrategy.CONSERVATIVE, mark=10)}, [])
def test_a_batch_is_planned_as_the_rules_plan_its_entries(
    found: list[Entry], strategy: SweepStrategy, views: Mapping[TableRef, TableView], protected: Any
) -> None:
    protections = Protections(protected)
    batch = newest_by_segment([as_batch(found, views, protections)])
    expected = rules.plan(found, strategy, views, protections, UNTIL_MS)
    assert sorted_plan(plan_of(batch, strategy, views, protections)) == sorted_plan(expected)


@pytest.mark.parametrize("strategy", QUEUES)
def test_plain_writes_are_planned_without_asking_about_each(strategy: SweepStrategy) -> None:
    found = [Entry(ITEMS, 1, Cell(b"%d" % n, b"c"), n + 1, n + 2, False) for n in range(20)]
    batch = as_batch(found, {ITEMS: TableView(strategy)}, Protections.none())
    alike, others = planned_alike(batch, strategy, {ITEMS: TableView(strategy)})
    assert len(others) == 0
    assert len(alike.ranges[ITEMS]) == 20


@given(some)
def test_writes_are_counted_as_one_by_one(found: list[Entry]) -> None:
    assert writes_by_table(as_batch(found, {}, Protections.none())) == written(found)
