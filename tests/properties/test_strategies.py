"""Changes of strategy against the plain model, and proof that forgetting something in them is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from sweep_tasks.catalog import Catalog, StrategyChange
from sweep_tasks.legacy import settling
from sweep_tasks.legacy.due import short_of
from sweep_tasks.model import MAX_TS, SweepStrategy, TableMetadata, TableRef
from tests.properties.strategy_machine import Changing
from tests.properties.test_sweep import EXAMPLES, search

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

Patch = pytest.MonkeyPatch


def test_whatever_changes_no_reader_is_wrong_and_what_is_on_record_as_due_is_all_that_is_left() -> None:
    run_state_machine_as_test(Changing, settings=settings(max_examples=2 * EXAMPLES, stateful_step_count=50))


@pytest.mark.long
def test_without_a_mistake_the_same_search_finds_nothing() -> None:
    search(Changing)


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


def any_scan_settles_what_is_due(patch: Patch) -> None:
    patch.setattr(settling, "short_of", lambda *_, **__: None)
    scanned = Catalog.scanned
    patch.setattr(Catalog, "scanned", lambda self, table, _: scanned(self, table, 2**60))


def a_scan_does_not_wait_for_the_conservative_queue(patch: Patch) -> None:
    patch.setattr(
        settling, "short_of", lambda metadata, reach, *_, **__: short_of(metadata, reach, MAX_TS, parked=False)
    )


def a_change_leaves_nothing_on_record(patch: Patch) -> None:
    patch.setattr(TableMetadata, "_scan_due_as", lambda self, strategy: None)


HARD_TO_FIND = [
    the_timestamp_of_a_change_is_taken_before_it_is_on_record,
    a_scan_does_not_wait_for_the_conservative_queue,
]
"""By chance, that is: `tests/unit/test_strategies.py` leads straight to both."""
MISTAKES = [
    any_scan_settles_what_is_due,
    a_change_leaves_nothing_on_record,
    *(pytest.param(mistake, marks=pytest.mark.long) for mistake in HARD_TO_FIND),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda given: given.__name__)
def test_the_machine_notices_when(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(Changing)
