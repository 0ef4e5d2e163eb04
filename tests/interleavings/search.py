"""All orders in which some processes can make their calls, with each resulting state checked once.

A state is what the store holds and the position of each process. Two orders that lead to the same state have the same
future, so the search continues from it once. The number of orders is counted nevertheless. A process that stops for
good is not a separate case: the states that the others reach from there are among those checked, because the search
never requires that a process continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store.memory import MemoryStore, MemoryTable
from tests.interleavings.processes import Actor, Answer, Call, Position


class Violation(AssertionError):
    """The violated invariant, and the shortest path to it."""


@dataclass(eq=False, slots=True)
class Contents:
    """The content of a store at some point; one object for all points with the same content. It is never written to."""

    store: Fork


class State(NamedTuple):
    contents: Contents
    positions: tuple[Position, ...]


class _Created(NamedTuple):
    """What a call does to the store, its answer, and the next position of the process that gets the answer."""

    contents: Contents
    answer: Answer
    reported: Position


class Checks(Protocol):
    def at_rest(self, state: State) -> None:
        """Holds in every state, for however long any process stops in it."""

    def step(self, before: Contents, after: Contents) -> None:
        """Holds between two states."""

    def at_the_end(self, state: State) -> None:
        """Holds when all have ended."""


@dataclass(slots=True)
class Explored:
    states: int = 0
    contents: int = 0
    schedules: int = 0
    longest: int = 0
    outcomes: set[tuple[str, ...]] = field(default_factory=set)
    """How the processes ended, in the given order."""

    def __str__(self) -> str:
        return (
            f"{self.schedules:,} schedules of up to {self.longest} calls, {self.states:,} states, "
            f"{self.contents:,} different contents of the store"
        )


class Search:
    def __init__(self, store: MemoryStore, actors: Sequence[Actor], checks: Checks, lost_answers: int = 0) -> None:
        """The number of answers to changing calls that may be lost."""
        self._lost_answers = lost_answers
        self._checks = checks
        self._known: dict[Hashable, Contents] = {}
        self._created: dict[tuple[Contents, Position], _Created] = {}
        self._came_from: dict[State, tuple[State, int] | None] = {}
        self._start = State(self._interned(Fork(store)), tuple(map(Position, actors)))
        self.explored = Explored()

    def run(self) -> Explored:
        """By the number of calls: the first violation that is found is a shortest one."""
        level = {self._start: 1}
        self._came_from[self._start] = None
        while level:
            following: dict[State, int] = {}
            for state, ways in level.items():
                for whose, further in self._steps(state):
                    if further not in following:
                        self._came_from[further] = state, whose
                        self._expect(further, self._checks.at_rest, further)
                        self.explored.states += 1
                    if further.contents is not state.contents:
                        self._expect(further, self._checks.step, state.contents, further.contents)
                    following[further] = following.get(further, 0) + ways
                if all(position.ended for position in state.positions):
                    self._ended(state, ways)
            self.explored.longest += bool(following)
            level = following
        self.explored.contents = len(self._known)
        return self.explored

    def _steps(self, state: State) -> Iterator[tuple[int, State]]:
        may_be_lost = sum(position.lost_answers for position in state.positions) < self._lost_answers
        for whose, position in enumerate(state.positions):
            call = position.call
            if call is None:
                continue
            contents, answer, reported = self._make(state.contents, position, call)
            before, behind = state.positions[:whose], state.positions[whose + 1 :]
            yield whose, State(contents, (*before, reported, *behind))
            if may_be_lost and not call.only_reads:
                yield whose, State(contents, (*before, position.after(answer.lost()), *behind))

    def _make(self, before: Contents, position: Position, call: Call) -> _Created:
        """The result of a call does not depend on the positions of the other processes."""
        created = self._created.get((before, position))
        if created is None:
            store = before.store if call.only_reads else Fork(before.store)
            answer = call.make(store)
            contents = before if call.only_reads else self._interned(store)
            created = self._created[before, position] = _Created(contents, answer, position.after(answer))
        return created

    def _ended(self, state: State, ways: int) -> None:
        self.explored.schedules += ways
        self.explored.outcomes.add(tuple(outcome(position) for position in state.positions))
        self._expect(state, self._checks.at_the_end, state)

    def _expect(self, state: State, check: Callable[..., None], *of: object) -> None:
        try:
            check(*of)
        except (AssertionError, SweepflowError) as error:
            raise self._violation(error, state) from error

    def _violation(self, error: Exception, state: State) -> Violation:
        ends = [f"{each.actor.name}: {outcome(each)}" for each in state.positions]
        output = str(error) if isinstance(error, AssertionError) else repr(error)
        return Violation("\n".join([output, *self._schedule(state), *ends, f"after {self.explored.states} states"]))

    def _schedule(self, state: State) -> list[str]:
        calls: list[str] = []
        at = state
        while came_from := self._came_from[at]:
            before, whose = came_from
            position = before.positions[whose]
            lost = ", and the answer is lost" if at.positions[whose].answers[-1].is_lost else ""
            calls.append(f"{position.actor.name}: {position.call}{lost}")
            at = before
        return [f"{number}. {call}" for number, call in enumerate(reversed(calls), 1)]

    def _interned(self, store: Fork) -> Contents:
        key = all_of(store)
        found = self._known.get(key)
        if found is None:
            store.freeze()
            found = self._known[key] = Contents(store)
        return found


def outcome(position: Position) -> str:
    if position.call is not None:
        return f"before {position.call}"
    if position.error is not None:
        return position.error.code
    accepted = getattr(position.result, "accepted", None)
    return "done" if accepted is None else "accepted" if accepted else "refused"


class Fork(MemoryStore):
    """A store that starts with the content of another, and shares each table with it until it first uses that table."""

    def __init__(self, origin: MemoryStore) -> None:
        super().__init__(origin.clock)
        self.contents = dict(origin.contents)
        self._own: set[TableRef] = set()
        self._keys: dict[TableRef, Hashable] = dict(origin._keys) if isinstance(origin, Fork) else {}
        self._frozen = False

    def freeze(self) -> None:
        """From now on it is only read and forked, so nothing needs to be copied."""
        self._frozen = True

    def set_versions(self, table: TableRef, cell: Cell, versions: dict[int, bytes]) -> None:
        """Replace the versions of a cell, as a replica would that has others."""
        stored = self._table(table).versions_to_write(cell)
        stored.clear()
        stored.update(versions)

    def key_of(self, table: TableRef) -> Hashable:
        """Equal for tables with the same content."""
        key = self._keys.get(table)
        if key is None:
            key = self._keys[table] = _all_of_table(self.contents[table])
        return key

    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        return self._recreated(table, super().create_table(table, metadata, gone))

    def remove_table(self, table: TableRef, incarnation: int) -> bool:
        return self._recreated(table, super().remove_table(table, incarnation))

    def _recreated(self, table: TableRef, is_new: bool) -> bool:
        if is_new:
            self._own.add(table)
            self._keys.pop(table, None)
        return is_new

    def _table(self, table: TableRef) -> MemoryTable:
        found = super()._table(table)
        if self._frozen:
            return found
        self._keys.pop(table, None)
        if table not in self._own:
            self._own.add(table)
            rows = {
                row: {column: dict(each) for column, each in columns.items()} for row, columns in found.rows.items()
            }
            registers = {row: dict(columns) for row, columns in found.registers.items()}
            found = self.contents[table] = replace(found, rows=rows, registers=registers)
        return found


def all_of(store: Fork, tables: Collection[TableRef] | None = None) -> Hashable:
    """Equal for stores with the same content, in these tables if they are named."""
    wanted = store.catalog_rows() if tables is None else tables
    return tuple((table, store.key_of(table)) for table in wanted)


def _all_of_table(found: MemoryTable) -> Hashable:
    rows = frozenset(
        (row, column, frozenset(versions.items()))
        for row, columns in found.rows.items()
        for column, versions in columns.items()
    )
    registers = frozenset(
        (row, column, register.value, register.expires_ms)
        for row, columns in found.registers.items()
        for column, register in columns.items()
    )
    return found.metadata, rows, registers
