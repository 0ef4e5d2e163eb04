"""The check after a sweep: silent when all is well, and not when a version is gone that somebody can see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sweep_tasks.demo.engines import sweep_here
from sweep_tasks.demo.measure import Everything, Harm, everything, harm, readable_moments
from sweep_tasks.demo.workload import ORDERS, STOCK
from sweep_tasks.model import MAX_TS, TableRef
from tests.unit.demo.conftest import SETTINGS, Day, lived_through, visible


class Looked(NamedTuple):
    day: Day
    before: Everything
    after: Everything
    moments: dict[TableRef, list[int]]


@pytest.fixture(scope="module")
def looked() -> Iterator[Looked]:
    day = lived_through()
    before = everything(day.store)
    for _ in sweep_here(day.store, SETTINGS, day.clock):
        pass
    yield Looked(day, before, everything(day.store), readable_moments(day.store))
    day.loaded.report.close()


def without(kept: Everything, table: TableRef, at: int) -> Everything:
    """Less one version, which a reader at that moment sees."""
    cell, start = next(iter(kept.visible(table, at).items()))
    left = [version for version in kept.tables[table][cell] if version.start != start]
    return Everything({**kept.tables, table: {**kept.tables[table], cell: left}})


def test_it_sees_what_a_reader_sees(day: Day) -> None:
    found = everything(day.store)
    for at in (day.loaded.backup_ts, MAX_TS):
        for table, cells in visible(day.store, at).items():
            assert found.visible(table, at).keys() == cells.keys()


def test_a_sweep_does_no_harm(looked: Looked) -> None:
    assert harm(looked.before, looked.after, looked.moments) == []
    assert looked.after != looked.before


def test_a_live_version_that_went_is_found(looked: Looked) -> None:
    found = harm(looked.before, without(looked.after, STOCK, MAX_TS), looked.moments)
    assert Harm(STOCK, MAX_TS, cells=1) in found


def test_a_version_that_a_protection_covers_is_missed(looked: Looked) -> None:
    at = looked.day.loaded.backup_ts
    assert at in looked.moments[ORDERS]
    assert at not in looked.moments[STOCK]
    found = harm(looked.before, without(looked.after, ORDERS, at), looked.moments)
    assert Harm(ORDERS, at, cells=1) in found


def test_moments_that_were_swept_are_not_asked_for(looked: Looked) -> None:
    assert harm(looked.before, looked.after, {STOCK: [looked.day.loaded.backup_ts]}) != []
