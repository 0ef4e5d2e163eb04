"""Which processes share the table, on which history, and some of the ways in which they must be able to end.

The ends keep the search honest: one in which no truncate is refused and no reader turned away has not seen the orders
that matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tests.interleavings.lifecycle.protocol import Protocol, Steps
from tests.interleavings.lifecycle.search import Explored, Process, Transitions, explore
from tests.interleavings.lifecycle.world import A, B, Commit, Event, Row, State, Version, World, create_physical, swap

_WRITTEN = frozenset({Version(1, A, 2), Version(1, B, 3)})

ACTIVE = World(
    clock=5,
    row=Row(State.ACTIVE, "", 1, 1),
    tables=frozenset({1}),
    stored=_WRITTEN,
    stale=_WRITTEN,
    commits=frozenset({Commit(2, 4, A), Commit(3, 5, B)}),
    history=(Event(1),),
)
GONE = ACTIVE._replace(clock=6, row=Row(State.GONE, "", 6, 1), history=(Event(1), Event(6, gone=True)))
"""Dropped, by a process that died before it removed the physical table."""
ABSENT = World(clock=1)


class Scenario(NamedTuple):
    world: World
    processes: tuple[Process, ...]
    ends: frozenset[tuple[str, ...]] = frozenset()

    def explore(self, transitions: Transitions) -> Explored:
        return explore(transitions, self.world, self.processes)


def _truncate(owner: str = "t", forced: bool = False) -> Process:
    return Process(f"truncate {owner}", lambda protocol: protocol.empty(State.TRUNCATING, owner, forced))


def _drop(owner: str = "d", forced: bool = False) -> Process:
    return Process(f"drop {owner}", lambda protocol: protocol.empty(State.DROPPING, owner, forced))


def _protect(pattern: bool = False) -> Process:
    name = "pattern" if pattern else "protect"
    return Process(name, lambda protocol: protocol.protect(name, pattern))


TRUNCATE, FORCED_TRUNCATE, ANOTHER_TRUNCATE = _truncate(), _truncate("forced", True), _truncate("u")
DROP, FORCED_DROP, ANOTHER_DROP = _drop(), _drop("forced", True), _drop("e")
PROTECT, PROTECT_PATTERN = _protect(), _protect(pattern=True)
RECONCILE = Process("reconcile", lambda protocol: protocol.reconcile())
CREATE = Process("create", lambda protocol: protocol.create())
ANOTHER_CREATE = CREATE._replace(name="another create")
ALTER = Process("alter", lambda protocol: protocol.alter())
WRITE = Process("write", lambda protocol: protocol.write(A))
READ = Process("read a and b", lambda protocol: protocol.read(A, B))
READ_ONE = Process("read a", lambda protocol: protocol.read(A))
READ_TWICE = Process("read a twice", lambda protocol: protocol.read(A, A))


def _end_of_a_slow_create(protocol: Protocol) -> Steps:
    yield create_physical(1)
    return "done" if (yield swap(None, Row(State.ACTIVE, "", 1, 1), Event(1))) else "lost"


SLOW_CREATE = Process("slow create", _end_of_a_slow_create)
"""A create that found no table and took its mark before the search begins."""


def on(world: World, *processes: Process, ends: tuple[tuple[str, ...], ...] = ()) -> Scenario:
    return Scenario(world, processes, frozenset(ends))


# --- every few of all processes ---------------------------------------------------------------------------------------

_ALIKE = {ANOTHER_TRUNCATE: TRUNCATE, ANOTHER_DROP: DROP, ANOTHER_CREATE: CREATE}
ALL = (
    TRUNCATE, FORCED_TRUNCATE, DROP, FORCED_DROP, CREATE, ALTER, WRITE, READ, READ_TWICE, PROTECT, PROTECT_PATTERN,
    RECONCILE, SLOW_CREATE, *_ALIKE,
)  # fmt: skip


def every(number: int, world: World) -> Iterator[Scenario]:
    """Every choice of this many processes; of two that are alike, never the second one alone."""
    for chosen in combinations(ALL, number):
        if all(_ALIKE.get(process) in (None, *chosen) for process in chosen):
            yield on(world, *chosen)


# --- some of them -----------------------------------------------------------------------------------------------------

SMALL = {
    "truncate, write, read": on(
        ACTIVE, TRUNCATE, WRITE, READ,
        ends=(("done", "committed", "done"), ("done", "aborted", "error"), ("lost", "committed", "done")),
    ),
    "truncate by force, protect, read": on(
        ACTIVE, FORCED_TRUNCATE, PROTECT, READ,
        ends=(("done", "accepted", "error"), ("done", "refused", "error"), ("lost", "accepted", "done")),
    ),
    "truncate, protect, reconcile, write": on(
        ACTIVE, TRUNCATE, PROTECT, RECONCILE, WRITE,
        ends=(("refused", "accepted", "done", "committed"), ("done", "refused", "done", "committed")),
    ),
    "truncate twice, protect": on(
        ACTIVE, TRUNCATE, ANOTHER_TRUNCATE, PROTECT,
        ends=(("done", "done", "refused"), ("refused", "refused", "accepted"), ("lost", "lost", "accepted")),
    ),
    "drop twice, create, read": on(
        ACTIVE, DROP, ANOTHER_DROP, CREATE, READ,
        ends=(("done", "done", "done", "error"), ("done", "lost", "done", "done"), ("lost", "lost", "exists", "done")),
    ),
    "drop, create, write, read": on(
        ACTIVE, DROP, CREATE, WRITE, READ,
        ends=(("done", "done", "aborted", "error"), ("done", "done", "committed", "done")),
    ),
    "drop, create, protect a pattern, read": on(
        ACTIVE, DROP, CREATE, PROTECT_PATTERN, READ,
        ends=(
            ("done", "done", "refused", "error"), ("done", "done", "accepted", "done"),
            ("refused", "exists", "accepted", "done"), ("lost", "exists", "accepted", "done"),
        ),
    ),
    "create twice, protect a pattern, truncate": on(
        ABSENT, CREATE, ANOTHER_CREATE, PROTECT_PATTERN, TRUNCATE,
        ends=(("done", "lost", "accepted", "refused"), ("lost", "done", "refused", "done")),
    ),
    "create again, drop, write, read": on(
        GONE, CREATE, DROP, WRITE, READ,
        ends=(("done", "done", "committed", "done"), ("done", "done", "aborted", "error")),
    ),
    "truncate, drop, alter": on(
        ACTIVE, TRUNCATE, DROP, ALTER, ends=(("done", "done", "done"), ("lost", "done", "refused")),
    ),
}  # fmt: skip

MEDIUM = on(
    ACTIVE, TRUNCATE, WRITE, PROTECT, READ,
    ends=(
        ("done", "committed", "accepted", "done"), ("done", "aborted", "refused", "error"),
        ("refused", "committed", "accepted", "done"), ("lost", "committed", "accepted", "done"),
    ),
)  # fmt: skip

LARGE = {
    "truncate, drop, create, write, read": on(ACTIVE, TRUNCATE, DROP, CREATE, WRITE, READ),
    "truncate by force, drop, create, protect a pattern, read": on(
        ACTIVE, FORCED_TRUNCATE, DROP, CREATE, PROTECT_PATTERN, READ
    ),
    "drop twice, create, write, protect": on(
        ACTIVE, DROP, ANOTHER_DROP, CREATE, WRITE, PROTECT
    ),
    "truncate, drop by force, create, write, protect": on(
        ACTIVE, TRUNCATE, FORCED_DROP, CREATE, WRITE, PROTECT
    ),
    "create again twice, drop, write, read": on(
        GONE, CREATE, ANOTHER_CREATE, DROP, WRITE, READ
    ),
}  # fmt: skip
