"""What must never happen to a table, as a question to one state of the model.

Every state answers for its past: what was ever returned to a reader must still agree with the history, so a decision
that contradicts an earlier read is found when it is taken. Every state answers for its future too: all processes may
have crashed in it, and one that starts now must get through.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum, auto
from typing import NamedTuple

from tests.interleavings.lifecycle.protocol import Protocol, Steps, Then
from tests.interleavings.lifecycle.world import CELLS, A, Event, State, World, versions_of

NOW = float("inf")


class Violation(StrEnum):
    WRONG_SNAPSHOT = auto()
    """A reader was given something else than its snapshot holds."""
    LOST_COMMIT = auto()
    """A write was committed after the table was emptied, and is lost."""
    WRONG_PRESENT = auto()
    """A new reader does not get what was committed."""
    BROKEN_PROTECTION = auto()
    """A reader at an accepted protection does not get what it protects."""
    LOST_CHANGE = auto()
    """A change of the strategy was reported as done, and is lost."""
    DEAD_END = auto()
    """A new process cannot do its work."""
    LITTER = auto()
    """A dropped table is never removed."""


class Problem(NamedTuple):
    harm: Violation
    where: str


class Checks:
    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._known_futures: dict[object, Problem | None] = {}

    def problem(self, world: World) -> Problem | None:
        """What is wrong in this state, if anything is."""
        return next(self._problems(world), None)

    def _problems(self, world: World) -> Iterator[Problem]:
        yield from self._wrong_answers(world)
        yield from self._lost_commits(world)
        yield from self._wrong_reads(world, NOW, must_answer=True)
        for record in world.records:
            if record.accepted:
                forced = any(event.forced and event.timestamp > record.timestamp for event in world.history)
                yield from self._wrong_reads(world, record.timestamp, must_answer=not forced, protected=True)
        if world.altered is not None and world.row is not None:
            incarnation, strategy = world.altered
            if world.row.incarnation == incarnation and world.row.strategy != strategy:
                yield Problem(Violation.LOST_CHANGE, f"{strategy} is {world.row.strategy}")
        future = world.row, world.tables, world.records
        if future not in self._known_futures:
            self._known_futures[future] = next(self._dead_ends(world), None)
        if (dead_end := self._known_futures[future]) is not None:
            yield dead_end

    def _wrong_answers(self, world: World) -> Iterator[Problem]:
        for given in world.answers:
            since = last_event(world, given.timestamp)
            held = None if since is None or since.gone else (expected(world, since, given.cell, given.timestamp),)
            if held != (given.start,):
                yield Problem(Violation.WRONG_SNAPSHOT, f"{given}, the snapshot holds {held or 'no table'}")

    def _lost_commits(self, world: World) -> Iterator[Problem]:
        for commit in world.commits:
            for event in world.history:
                if commit.start < event.timestamp <= commit.timestamp:
                    yield Problem(Violation.LOST_COMMIT, f"{commit}, {event}")

    def _wrong_reads(
        self, world: World, timestamp: float, must_answer: bool, protected: bool = False
    ) -> Iterator[Problem]:
        """A reader at this timestamp that finds the table, reads and validates at once, from either replica."""
        row, since = world.row, last_event(world, timestamp)
        there = since is not None and not since.gone
        harm = Violation.BROKEN_PROTECTION if protected else Violation.WRONG_PRESENT
        if row is None or not self._may_read(world, timestamp, protected):
            if there and must_answer:
                yield Problem(harm, f"at {timestamp}: an error")
            return
        if since is None or since.gone:
            yield Problem(harm, f"at {timestamp}: an answer, the snapshot holds no table")
            return
        for cell in CELLS:
            for replica in (world.stored, world.stale):
                found = versions_of(world, replica, row.incarnation, cell) or ()
                seen, held = self._protocol.visible(row, found, timestamp), expected(world, since, cell, timestamp)
                if seen != held:
                    yield Problem(harm, f"at {timestamp}: {seen} for {cell}, the snapshot holds {held}")

    def _may_read(self, world: World, timestamp: float, protected: bool) -> bool:
        row = world.row
        if row is None or row.state is State.GONE or row.incarnation not in world.tables:
            return False
        at = world.clock + 1 if timestamp == NOW else int(timestamp)
        return self._protocol.may_read(row, row.incarnation, at, protected)

    # --- what can be done from here -----------------------------------------------------------------------------------

    def _dead_ends(self, world: World) -> Iterator[Problem]:
        protocol, row = self._protocol, world.row
        if row is not None and row.state is not State.GONE:
            end, after = alone(world, protocol.empty(State.TRUNCATING, "new"))
            if end not in ("done", "refused") or after.row is None or after.row.state is not State.ACTIVE:
                yield Problem(Violation.DEAD_END, f"a truncate ends with {end} and leaves {after.row}")
            end, after = alone(world, protocol.read(A))
            if end != "done" or not self._can_write(after):
                yield Problem(Violation.DEAD_END, f"a read ends with {end}, or a write after it fails")
            end, world = alone(world, protocol.empty(State.DROPPING, "new", True))
            if end != "done" or (world.row is not None and world.row.state is not State.GONE):
                yield Problem(Violation.DEAD_END, f"a drop by force ends with {end}")
        if world.row is None or world.row.state is State.GONE:
            end, world = alone(world, protocol.create())
            if end != "done" or not self._can_write(world):
                yield Problem(Violation.DEAD_END, f"a create ends with {end}, or a write after it fails")
            if world.row is not None and any(table < world.row.incarnation for table in world.tables):
                yield Problem(Violation.LITTER, f"physical tables {sorted(world.tables)}, {world.row}")

    def _can_write(self, world: World) -> bool:
        end, after = alone(world, self._protocol.write(A))
        return end == "committed" and next(self._wrong_reads(after, NOW, must_answer=True), None) is None


def alone(world: World, work: Steps) -> tuple[str, World]:
    """Run a process to its end while no other takes a step."""
    given = None
    while True:
        try:
            given, world = work.send(given).take(world)[0]
        except StopIteration as ended:
            if not isinstance(ended.value, Then):
                return str(ended.value), world
            work, given = ended.value.work(*ended.value.arguments), None


def last_event(world: World, timestamp: float) -> Event | None:
    """The decision about the table that counts for a timestamp: of those at or below it, the one taken last."""
    return next((event for event in reversed(world.history) if event.timestamp <= timestamp), None)


def expected(world: World, since: Event, cell: str, timestamp: float) -> int | None:
    """The start of the version that a snapshot holds, by the history alone."""
    starts = (c.start for c in world.commits if c.cell == cell and 0 < c.timestamp < timestamp)
    return max((start for start in starts if start >= since.timestamp), default=None)
