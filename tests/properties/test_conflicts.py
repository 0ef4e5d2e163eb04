"""Two transactions increment a counter at once, while a sweep publishes between the start of one and the commit of the
other."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.model import MAX_TS, Cell, TableRef
from sweep_tasks.transactions.commit import Committer
from tests.properties.narrow_machines import Counting
from tests.properties.sweep_machine import TABLES

pytestmark = pytest.mark.parametrize("table", TABLES)


def count_at_once(table: TableRef) -> Counting:
    """Both have read. The first commits and a sweep passes it before the second searches for other writers."""
    counting = Counting()
    counting.start_the_clock()
    counting.choose_a_table(table)
    counting.write("put")
    counting.write("put")
    counting.go_on(0)
    counting.sweep()
    counting.go_on(0)
    return counting


def test_a_conflict_is_detected_after_a_sweep_has_passed_the_start_of_the_other_writer(table: TableRef) -> None:
    counting = count_at_once(table)
    first, second = sorted(counting.journal.writes)
    assert first < Thresholds(counting.shared).of_tables([table])[table].for_writers <= second
    assert {start for start, commit in counting._commits().items() if commit > -1} == {first}
    counting.teardown()


def test_an_update_is_lost_if_other_writers_are_searched_above_the_threshold_only(
    monkeypatch: pytest.MonkeyPatch, table: TableRef
) -> None:
    """What started below it has committed, but perhaps after we started."""
    check_conflicts = Committer._check_conflicts

    def careless(self: Committer, start: int, table: TableRef, cells: Collection[Cell]) -> None:
        threshold = self.thresholds.of_tables([table])[table].for_writers
        above = self.store.newest(table, dict.fromkeys(cells, MAX_TS))
        below = self.store.newest(table, dict.fromkeys(cells, start))
        recent = [cell for cell in cells if above[cell] != start or below.get(cell, -1) >= threshold]
        check_conflicts(self, start, table, recent)

    monkeypatch.setattr(Committer, "_check_conflicts", careless)
    with pytest.raises(AssertionError):
        count_at_once(table).no_count_is_lost()
