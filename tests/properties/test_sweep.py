"""The swept store against the plain model, and proof that the comparison can fail."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.mistakes import MISTAKES
from tests.properties.sweep_machine import Administering, Crashing, Dying, Protecting, Racing, Refused, SweptStore

EXAMPLES = int(os.environ.get("SWEEPFLOW_TEST_EXAMPLES", "100"))
MACHINES = [SweptStore, Protecting, Racing, Refused, Crashing, Dying, Administering]


@pytest.mark.properties
@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_happens_no_reader_sees_a_change_and_nothing_is_left_over(machine: type[SweptStore]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=50))


SEARCH = settings(max_examples=500, stateful_step_count=50, phases=[Phase.generate], derandomize=True, database=None)


@pytest.mark.properties
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_mistake_the_same_search_finds_nothing(machine: type[SweptStore]) -> None:
    run_state_machine_as_test(machine, settings=SEARCH)


@pytest.mark.properties
@pytest.mark.parametrize("name", MISTAKES)
def test_the_machine_notices_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine, make = MISTAKES[name]
    make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=SEARCH)
