"""The swept store against the plain model, and proof that the comparison can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.properties.clock_machine import Skewed
from tests.properties.mistakes import HARD_TO_FIND, MISTAKES, WIDER
from tests.properties.narrow_machines import (
    Administering,
    Counting,
    Crashing,
    Dedicated,
    Dying,
    Halting,
    Lacking,
    Leasing,
    Missing,
    Paused,
    Pausing,
    Protecting,
    Racing,
    Refused,
    Retaining,
    Stopping,
    Tearing,
    Truncating,
)
from tests.properties.searching import Patch, find_nothing, search
from tests.properties.sweep_machine import SweptStore

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

MACHINES = [
    SweptStore,
    Protecting,
    Stopping,
    Racing,
    Refused,
    Crashing,
    Leasing,
    Dying,
    Halting,
    Tearing,
    Dedicated,
    Counting,
    Administering,
    Truncating,
    Retaining,
    Lacking,
    Missing,
    Pausing,
    Paused,
    Skewed,
]


@pytest.mark.parametrize("machine", MACHINES)
def test_no_operation_changes_a_read_or_leaves_garbage(machine: type[SweptStore]) -> None:
    find_nothing(machine, MISTAKES.length_for(machine))


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_mistake_the_same_searches_find_nothing(machine: type[SweptStore]) -> None:
    search(machine)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_machine_notices_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(mistake.machine)


def test_a_machine_that_leaves_out_a_rule_by_a_wrong_name_is_refused() -> None:
    with pytest.raises(TypeError, match="misspelled"):
        type("Narrow", (SweptStore,), {"fault": None, "misspelled": None})


IN_A_WIDER_ONE = [*WIDER.items(), *((mistake.make, mistake.machine) for mistake in HARD_TO_FIND.values())]


@pytest.mark.long
@pytest.mark.parametrize(("make", "machine"), IN_A_WIDER_ONE)
def test_a_wider_machine_notices_when(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Patch], None], machine: type[SweptStore]
) -> None:
    make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(machine)
