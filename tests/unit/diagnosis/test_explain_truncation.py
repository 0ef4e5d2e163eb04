"""Explain below the mark of a truncation: what is left there is garbage, whatever holds the rest."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.diagnosis import explain
from sweep_tasks.model import TableRef
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from tests.support.clock import ManualClock
from tests.unit.sweep.world import TABLE, THOROUGH_TABLE, A, World

SETTINGS = Settings(retention_s=0)


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)


def explained(world: World, table: TableRef) -> list[tuple[Any, ...]]:
    found = explain.explain_cell(world.store, SETTINGS, world.clock, table, A).document()["versions"]
    return [(each["ts"], each["state"], each["reason"]) for each in found]


def leave_truncated(world: World, table: TableRef, *starts: int) -> None:
    """Truncate the table, and put back what a replica may bring back that was unavailable meanwhile."""
    Catalog(world.store, world.clock).truncate(table, force=True)
    for start in starts:
        world.store.put(start, {table: {A: b"v"}})


@pytest.mark.parametrize("table", [TABLE, THOROUGH_TABLE])
def test_what_a_truncation_left_is_garbage_that_no_record_holds(world: World, table: TableRef) -> None:
    world.write(10, 11, table=table)
    world.protect("backup", 15, table=table)
    world.write(20, 21, table=table)
    leave_truncated(world, table, 10, 20)
    assert explained(world, table) == [(10, "garbage", "queued"), (20, "garbage", "queued")]
    [block] = explain.explain_table(world.store, SETTINGS, world.clock, table).document()["blocks"]
    assert (block["reason"], block["versions"]) == ("queued", 2)
    world.sweep(100, world.store.tables([table])[table].strategy)
    assert world.versions(table=table) == []


def test_what_a_truncation_left_of_swept_versions_waits_for_a_scan_or_the_next_write(world: World) -> None:
    world.write(10, 11)
    world.sweep(20)
    leave_truncated(world, TABLE, 10)
    assert explained(world, TABLE) == [(10, "garbage", "no_queue_entry")]
    world.write(40, 41)
    assert explained(world, TABLE) == [(10, "garbage", "queued"), (40, "live", "newest")]
    world.sweep(100)
    assert world.versions() == [-1, 40]
