"""Sweeps that judge many entries at a time, as Spark's workers do, against the plain model, and proof that each mistake
in the rules is noticed there as well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_jobs import blocks, planning
from spark_jobs.blocks import Starts
from tests.properties.mistakes import HARD_TO_FIND, MISTAKES
from tests.properties.narrow_machines import Crashing, Dying, Paused, Protecting, Stopping, Truncating
from tests.properties.searching import LEAST, Patch, find_nothing, search
from tests.properties.sweep_machine import SweptStore
from tests.support import batches
from tests.support.batches import judge_in_batches

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

MACHINES = [SweptStore, Protecting, Stopping, Crashing, Truncating, Paused, Dying]

IN_THE_RULES = [
    "a_paused_table_forgets_its_entries",
    "the_entrys_own_version_is_removed_too",
    "a_delete_marker_is_removed_under_a_protection",
    "after_is_treated_as_at",
    "only_the_greatest_start_of_a_cell_is_parked_or_acts",
    "nothing_is_parked",
    "a_protection_at_the_commit_does_not_count",
    "protections_count_by_start_instead_of_commit",
    "row_ranges_are_ignored",
    "aborted_writes_are_not_deleted",
]


@pytest.fixture(autouse=True)
def _in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_batches(monkeypatch)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_operation_changes_a_read_or_leaves_garbage(machine: type[SweptStore]) -> None:
    find_nothing(machine, max(LEAST, MISTAKES.length_for(machine) // 3))


@pytest.mark.parametrize("name", IN_THE_RULES)
def test_the_machine_notices_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mistake = (MISTAKES | HARD_TO_FIND)[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(mistake.machine)


# --- mistakes that only many entries at a time can have -------------------------------------------------------------


def segments_do_not_count(patch: Patch) -> None:
    patch.setattr(planning, "_undivided", lambda entries: np.ones(len(entries), np.bool_))


def later_transactions_are_judged_too(patch: Patch) -> None:
    patch.setattr(Starts, "select", lambda self, entries: entries)


def a_task_gets_a_part_of_a_block_twice_and_another_none(patch: Patch) -> None:
    cut = blocks.divided
    patch.setattr(batches, "divided", lambda *block: [next(iter(cut(*block)))] * 2)


@pytest.mark.parametrize(
    ("make", "machine"),
    [
        (segments_do_not_count, Protecting),
        (later_transactions_are_judged_too, Crashing),
        (a_task_gets_a_part_of_a_block_twice_and_another_none, SweptStore),
    ],
)
def test_a_mistake_in_a_batch_is_noticed(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Patch], None], machine: type[SweptStore]
) -> None:
    make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(machine)
