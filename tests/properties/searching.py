"""The length of a search for a counter-example, and the search for a planted mistake.

A search for a planted mistake stops at the first example that shows it. The number of examples that it took is recorded
beside the mistake: the most of at least five searches that started in different places. A search of the real code is
three times as long as its machine needs for the slowest of its mistakes. `make test-long` searches wider.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Patch = pytest.MonkeyPatch


class Searched(RuleBasedStateMachine):
    steps: int
    """The number of steps in an example. The less can happen in a machine, the fewer steps it takes to show a mistake,
    and the sooner later ones hide it."""

    def __init_subclass__(cls, **given: Any) -> None:
        """A narrow machine leaves rules out by setting them to None. A wrong name would leave nothing out."""
        super().__init_subclass__(**given)
        wrong = [name for name, value in vars(cls).items() if value is None and not hasattr(super(cls, cls), name)]
        if wrong:
            raise TypeError(f"{cls.__name__} leaves out what its base does not have: {', '.join(wrong)}")


Machine = type[Searched]

LEAST = 15
"""For a machine that no planted mistake depends on."""
WIDE = int(os.environ.get("SWEEPFLOW_TEST_EXAMPLES", "0"))
ROUNDS, IN_A_ROUND = 200, 10
"""Each round starts somewhere else, the same on every machine. Which examples a search runs depends on the whole code
(also on constants in it), so one round alone may miss a mistake after any change. Rounds are short: the examples of a
round resemble each other, and ten rounds of ten find most mistakes sooner than two of fifty."""


class Mistake(NamedTuple):
    make: Callable[[Patch], None]
    machine: Machine
    """The machine that has to find it."""
    after: int
    """The number of examples until it was caught."""


class Mistakes(dict[str, Mistake]):
    """By name."""

    def planted(self, machine: Machine, after: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
        def enter(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
            self[make.__name__] = Mistake(make, machine, after)
            return make

        return enter

    def length_for(self, machine: Machine) -> int:
        return length(each.after for each in self.values() if each.machine is machine)


def length(caught_after: Iterable[int]) -> int:
    """Return how many examples a search of the real code runs, given when each of its mistakes was caught."""
    return max(LEAST, *(3 * after for after in caught_after), WIDE)


def find_nothing(machine: Machine, examples: int) -> None:
    """Search in short rounds too, or in one long search if it is to be wide."""
    if WIDE:
        run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=machine.steps))
        return
    found = settings(max_examples=IN_A_ROUND, stateful_step_count=machine.steps)
    for number in range(-(-examples // IN_A_ROUND)):
        this = type(machine.__name__, (machine,), {})
        run_state_machine_as_test(seed(number)(this) if found.derandomize else this, settings=found)


def search(machine: Machine) -> None:
    """Search up to the first counter-example, which is not shrunk: that would take longer than the search."""
    found = settings(max_examples=IN_A_ROUND, stateful_step_count=machine.steps, phases=[Phase.generate], database=None)
    for number in range(ROUNDS):
        run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=found)
