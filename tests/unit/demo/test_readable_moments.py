"""The check after a sweep: it reports nothing after a correct sweep, and a removed version that a reader can see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sweep_tasks.demo.engines import sweep_here
from sweep_tasks.demo.measure import Everything, Harm, everything, harm, readable_moments
from sweep_tasks.demo.workload import ORDERS, STOCK
from sweep_tasks.model import MAX_TS, TableRef
from tests.unit.demo.conftest import SETTINGS, Day, lived_through, visible


class Checked(NamedTuple):
    day: Day
    before: Everything
    after: Everything
    moments: dict[TableRef, list[int]]


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    day = lived_through()
    before = everything(day.store)
    for _ in sweep_here(day.store, SETTINGS, day.clock):
        pass
    yield Checked(day, before, everything(day.store), readable_moments(day.store))
    day.loaded.report.close()


def without(kept: Everything, table: TableRef, at: int) -> Everything:
    """Less one version, which a reader at that moment sees."""
    cell, start = next(iter(kept.visible(table, at).items()))
    left = [version for version in kept.tables[table][cell] if version.start != start]
    return Everything({**kept.tables, table: {**kept.tables[table], cell: left}})


def test_it_records_what_a_reader_sees(day: Day) -> None:
    found = everything(day.store)
    for at in (day.loaded.backup_ts, MAX_TS):
        for table, cells in visible(day.store, at).items():
            assert found.visible(table, at).keys() == cells.keys()


def test_a_sweep_does_no_harm(checked: Checked) -> None:
    assert harm(checked.before, checked.after, checked.moments) == []
    assert checked.after != checked.before


def test_a_removed_live_version_is_found(checked: Checked) -> None:
    found = harm(checked.before, without(checked.after, STOCK, MAX_TS), checked.moments)
    assert Harm(STOCK, MAX_TS, cells=1) in found


def test_a_removed_protected_version_is_found(checked: Checked) -> None:
    at = checked.day.loaded.backup_ts
    assert at in checked.moments[ORDERS]
    assert at not in checked.moments[STOCK]
    found = harm(checked.before, without(checked.after, ORDERS, at), checked.moments)
    assert Harm(ORDERS, at, cells=1) in found


def test_moments_that_were_swept_are_not_asked_for(checked: Checked) -> None:
    assert harm(checked.before, checked.after, {STOCK: [checked.day.loaded.backup_ts]}) != []
