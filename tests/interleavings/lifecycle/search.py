"""Every order of the steps of a few processes, each state visited once, breadth first.

A state is the world and the position of each process. What a step makes of a world does not depend on where the other
processes are, so it is computed once, for all searches with the same protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from tests.interleavings.lifecycle.checks import Checks, Problem
from tests.interleavings.lifecycle.protocol import Protocol, Steps, Then
from tests.interleavings.lifecycle.world import Step, World
from tests.interleavings.search import Violation


class Process(NamedTuple):
    name: str
    start: Callable[[Protocol], Steps]


class Harmful(Violation):
    """The violated invariant, and a shortest path to it."""

    def __init__(self, problem: Problem, steps: list[str], states: int) -> None:
        numbered = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
        super().__init__("\n".join([problem.harm, problem.where, *numbered, f"after {states:,} states"]))
        self.harm = problem.harm
        self.steps = steps


class Explored(NamedTuple):
    states: int
    longest: int
    ends: frozenset[tuple[str, ...]]
    """How the processes ended, in the order they were given."""


class Position:
    """The position of a process: before its next step, or at its end."""

    def __init__(self, then: Then, answers: tuple[Any, ...] = ()) -> None:
        self.then = then
        self.answers = answers
        self.step: Step | None = None
        self.end: str | Then = ""
        steps = then.work(*then.arguments)
        try:
            self.step = next(steps)
            for given in answers:
                self.step = steps.send(given)
        except StopIteration as ended:
            self.step, self.end = None, ended.value


class Transitions:
    """Worlds by number, what is wrong in each, and where a step leads from each. Filled as searches get there."""

    def __init__(self, protocol: Protocol) -> None:
        self.problems: list[Problem | None] = []
        self._protocol = protocol
        self._checks = Checks(protocol)
        self._worlds: list[World] = []
        self._numbers: dict[World, int] = {}
        self._positions: dict[Hashable, Position] = {}
        self._taken: dict[tuple[int, Position], list[tuple[int, Position]]] = {}

    def number(self, world: World) -> int:
        number = self._numbers.get(world)
        if number is None:
            number = self._numbers[world] = len(self._worlds)
            self._worlds.append(world)
            self.problems.append(self._checks.problem(world))
        return number

    def start(self, process: Process) -> Position:
        return self._position(Then(process.start, (self._protocol,)), ())

    def take(self, number: int, position: Position) -> list[tuple[int, Position]]:
        taken = self._taken.get((number, position))
        if taken is None:
            taken = self._taken[number, position] = list(self._outcomes(self._worlds[number], position))
        return taken

    def _outcomes(self, world: World, position: Position) -> Iterator[tuple[int, Position]]:
        """Where a step leads; what is only recorded for the checks is recorded along with it."""
        if position.step is None:
            return
        for given, after in position.step.take(world):
            further, reached = self._position(position.then, (*position.answers, given)), after
            while further.step is not None and further.step.recorded:
                ((given, reached),) = further.step.take(reached)
                further = self._position(further.then, (*further.answers, given))
            yield self.number(reached), further

    def _position(self, then: Then, answers: tuple[Any, ...]) -> Position:
        """One object for all histories that a process can no longer distinguish."""
        position = self._positions.get((then, answers))
        if position is None:
            position = Position(then, answers)
            if isinstance(position.end, Then):
                position = self._position(position.end, ())
            elif position.step is None:
                position = self._positions.setdefault(position.end, position)
            self._positions[then, answers] = position
        return position


_State = tuple[Any, ...]
"""The number of the world, then a position for each process."""


def explore(transitions: Transitions, world: World, processes: tuple[Process, ...]) -> Explored:
    """Raise the violation, or return the observations."""
    start: _State = (transitions.number(world), *map(transitions.start, processes))
    came_from: dict[_State, tuple[_State, int] | None] = {start: None}
    ends: set[tuple[str, ...]] = set()
    level, longest = [start], -1
    while level:
        following = []
        for state in level:
            if (problem := transitions.problems[state[0]]) is not None:
                raise Harmful(problem, list(_way_to(state, came_from, processes))[::-1], len(came_from))
            ended = True
            for which in range(1, len(state)):
                position = state[which]
                if position.step is None:
                    continue
                ended = False
                for number, further in transitions.take(state[0], position):
                    found = (number, *state[1:which], further, *state[which + 1 :])
                    if found not in came_from:
                        came_from[found] = state, which
                        following.append(found)
            if ended:
                ends.add(tuple(str(position.end) for position in state[1:]))
        level, longest = following, longest + 1
    return Explored(len(came_from), longest, frozenset(ends))


def _way_to(
    state: _State, came_from: dict[_State, tuple[_State, int] | None], processes: tuple[Process, ...]
) -> Iterator[str]:
    """The steps, last one first."""
    while (before := came_from[state]) is not None:
        state, which = before
        yield f"{processes[which - 1].name}: {state[which].step.label}"
