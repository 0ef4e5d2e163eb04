"""The swept store against the plain model, and proof that the comparison can fail."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.mistakes import MISTAKES
from tests.properties.narrow_machines import (
    Administering,
    Crashing,
    Dying,
    Lacking,
    Missing,
    Pausing,
    Protecting,
    Racing,
    Refused,
    Retaining,
)
from tests.properties.sweep_machine import SweptStore

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

EXAMPLES = int(os.environ.get("SWEEPFLOW_TEST_EXAMPLES", "15"))
MACHINES = [
    SweptStore,
    Protecting,
    Racing,
    Refused,
    Crashing,
    Dying,
    Administering,
    Retaining,
    Lacking,
    Missing,
    Pausing,
]


@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_happens_no_reader_sees_a_change_and_nothing_is_left_over(machine: type[SweptStore]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=50))


ROUNDS = 8
"""Each search starts somewhere else, the same everywhere. Which examples a search tries depends on the whole code (also
on constants that it finds in there), so that one search alone may miss a mistake after any change."""
SEARCH = settings(max_examples=250, stateful_step_count=50, phases=[Phase.generate], database=None)


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_mistake_the_same_searches_find_nothing(machine: type[SweptStore]) -> None:
    search(machine)


@pytest.mark.parametrize("name", list(MISTAKES))
def test_the_machine_notices_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine, make = MISTAKES[name]
    make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(machine)


def search(machine: type[SweptStore]) -> None:
    for number in range(ROUNDS):
        run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=SEARCH)
