"""Changes of strategy against the plain model, and proof that forgetting something in them is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sweep_tasks.legacy import strategy_changes as settling
from sweep_tasks.legacy.progress import short_of
from sweep_tasks.model import MAX_TS, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.tables.catalog import Catalog, StrategyChange
from tests.properties.searching import Mistakes, Patch, find_nothing, search
from tests.properties.strategy_machine import Changing, ChangingAlone

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

MACHINES = [Changing, ChangingAlone]
MISTAKES = Mistakes()


def the_timestamp_of_a_change_is_taken_before_it_is_on_record(patch: Patch) -> None:
    def early(self: Catalog, table: TableRef, strategy: SweepStrategy) -> StrategyChange:
        now = self._timestamps.fresh()

        def changed(metadata: TableMetadata) -> TableMetadata:
            new = metadata.with_strategy(strategy)
            due = new.scan_due and new.scan_due._replace(since=now)
            return new if new == metadata else replace(new, scan_due=due, revision=metadata.revision + 1)

        before = self._alter(table, changed)
        return StrategyChange(before, self._metadata(table))

    patch.setattr(Catalog, "set_strategy", early)


@MISTAKES.planted(ChangingAlone, after=45)
def any_scan_settles_what_is_due(patch: Patch) -> None:
    patch.setattr(settling, "short_of", lambda *_, **__: None)
    settle = Catalog.complete_scan
    patch.setattr(Catalog, "complete_scan", lambda self, table, _: settle(self, table, 2**60))


def a_scan_does_not_wait_for_the_conservative_queue(patch: Patch) -> None:
    patch.setattr(
        settling, "short_of", lambda metadata, sweep_ts, *_, **__: short_of(metadata, sweep_ts, MAX_TS, parked=False)
    )


@MISTAKES.planted(ChangingAlone, after=6)
def a_change_leaves_nothing_on_record(patch: Patch) -> None:
    patch.setattr(TableMetadata, "_scan_due_as", lambda self, strategy: None)


HARD_TO_FIND = [
    the_timestamp_of_a_change_is_taken_before_it_is_on_record,
    a_scan_does_not_wait_for_the_conservative_queue,
]
"""By chance, that is: `tests/unit/tables/test_strategies.py` finds both directly."""


@pytest.mark.parametrize("machine", MACHINES)
def test_strategy_changes_keep_readers_correct_and_leave_only_the_recorded_scans(
    machine: type[Changing],
) -> None:
    find_nothing(machine, max(30, MISTAKES.length_for(machine)))


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_mistake_the_same_search_finds_nothing(machine: type[Changing]) -> None:
    search(machine)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_machine_notices_when(monkeypatch: Patch, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(mistake.machine)


@pytest.mark.long
@pytest.mark.parametrize("make", [*HARD_TO_FIND, *(mistake.make for mistake in MISTAKES.values())])
def test_the_wider_machine_notices_when(monkeypatch: Patch, make: Callable[[Patch], None]) -> None:
    make(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(Changing)
