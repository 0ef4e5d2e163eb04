"""Which processes work on the store at the same time, on which history, and how they must be able to end.

The ends keep the search honest: one in which protections are never refused, or readers never rejected, has not reached
the orders that matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sweep_tasks.model import Span, SweepStrategy
from sweep_tasks.protection.records import Mode
from tests.interleavings.checks import Checks
from tests.interleavings.emptying import NEW, write
from tests.interleavings.processes import Actor
from tests.interleavings.search import Explored, Search
from tests.interleavings.world import (
    CONSERVATIVE,
    THOROUGH,
    World,
    change,
    move,
    protect,
    protect_in_transaction,
    read,
    release,
    release_and_protect,
    release_if_unchanged,
    release_in_transaction,
    settle,
    sweep,
    sweep_everything,
    truncate,
)

Ends = set[tuple[str, ...]]


class Scenario(NamedTuple):
    world: World
    actors: tuple[Actor, ...]
    ends: Ends
    """Some of the possible ends."""

    def explore(self, lost_answers: int = 0) -> Explored:
        return Search(
            self.world.store, self.actors, Checks(self.world, any(each.forces for each in self.actors)), lost_answers
        ).run()


Make = Callable[[SweepStrategy], Scenario]

ACCEPTED_OR_REFUSED: Ends = {("accepted", "done"), ("refused", "done")}
BOTH_DONE: Ends = {("done", "done")}
DONE_OR_ABORTED: Ends = {("done", "done"), ("aborted", "done")}


def _with_a_sweep(actor: Actor, world: World, s: SweepStrategy, ends: Ends, up_to: int = 40) -> Scenario:
    return Scenario(world, (actor, sweep(up_to, s)), ends)


def _released_by_version(*others: Actor, ends: Ends) -> Scenario:
    world = World().after(protect(25))
    return Scenario(world, (release_if_unchanged(world), *others), ends)


# --- a sweep and another process --------------------------------------------------------------------------------------

WITH_A_SWEEP: dict[str, Make] = {
    "protect": lambda s: _with_a_sweep(protect(25), World(s), s, ACCEPTED_OR_REFUSED),
    "protect after": lambda s: _with_a_sweep(protect(15, Mode.AFTER), World(s), s, ACCEPTED_OR_REFUSED),
    "protect some rows": lambda s: _with_a_sweep(
        protect(25, rows=Span(b"a", b"b")), World(s), s, ACCEPTED_OR_REFUSED
    ),
    "protect, the sweep in three batches": lambda s: Scenario(
        World(s), (protect(25), sweep(40, s, batch=1)), ACCEPTED_OR_REFUSED
    ),
    "protect what another protects": lambda s: _with_a_sweep(
        protect(25, name="q"), World(s).after(protect(25)), s, ACCEPTED_OR_REFUSED
    ),
    "protect in a transaction": lambda s: _with_a_sweep(
        protect_in_transaction(25), World(s), s, ACCEPTED_OR_REFUSED
    ),
    "move": lambda s: _with_a_sweep(move(25), World(s).after(protect(15)), s, ACCEPTED_OR_REFUSED),
    "move, some of it parked": lambda s: _with_a_sweep(
        move(25), World(s).after(protect(15), sweep(24, s)), s, ACCEPTED_OR_REFUSED
    ),
    "move to the threshold": lambda s: _with_a_sweep(
        move(40), World(s).after(protect(15), sweep(24, s)), s, {("accepted", "done")}
    ),
    "move below the threshold": lambda s: _with_a_sweep(
        move(25), World(s).after(protect(15), sweep(40, s)), s, {("refused", "done")}, 45
    ),
    "move after": lambda s: _with_a_sweep(
        move(25, Mode.AFTER), World(s).after(protect(15, Mode.AFTER)), s, {("accepted", "done")}
    ),
    "move after, everything parked": lambda s: _with_a_sweep(
        move(25, Mode.AFTER), World(s).after(protect(15, Mode.AFTER), sweep(40, s)), s, {("accepted", "done")}, 45
    ),
    "release": lambda s: _with_a_sweep(release(), World(s).after(protect(25)), s, BOTH_DONE),
    "release, everything parked": lambda s: _with_a_sweep(
        release(), World(s).after(protect(25), sweep(40, s)), s, BOTH_DONE, 45
    ),
    "release one of two": lambda s: _with_a_sweep(
        release(), World(s).after(protect(25), protect(15, name="q"), sweep(40, s)), s, BOTH_DONE, 45
    ),
    "release in a transaction": lambda s: _with_a_sweep(
        release_in_transaction(), World(s).after(protect(25), sweep(40, s)), s, {("accepted", "done")}, 45
    ),
    "release and protect again": lambda s: _with_a_sweep(
        release_and_protect(37), World(s).after(protect(25), sweep(35, s)), s, ACCEPTED_OR_REFUSED, 45
    ),
    "give a retention": lambda s: _with_a_sweep(change(50, s), World(s), s, BOTH_DONE),
    "take a retention away": lambda s: _with_a_sweep(change(None, s), World(s, 50), s, BOTH_DONE),
    "take a retention away, everything parked": lambda s: _with_a_sweep(
        change(None, s), World(s, 50).after(sweep(40, s)), s, BOTH_DONE, 45
    ),
    "lower a retention": lambda s: _with_a_sweep(
        change(10, s), World(s, 50).after(sweep(40, s)), s, BOTH_DONE, 45
    ),
    "raise a retention": lambda s: _with_a_sweep(change(50, s), World(s, 10).after(sweep(20, s)), s, BOTH_DONE),
    "change the strategy": lambda s: _with_a_sweep(
        change(None, THOROUGH if s is CONSERVATIVE else CONSERVATIVE), World(s), s, BOTH_DONE
    ),
    "truncate": lambda s: _with_a_sweep(truncate(), World(s), s, BOTH_DONE),
    "truncate what is protected": lambda s: _with_a_sweep(
        truncate(), World(s).after(protect(25)), s, {("bad_value", "done")}
    ),
    "read": lambda s: _with_a_sweep(read(25), World(s), s, {("done", "done"), ("snapshot_swept", "done")}),
    "read what is protected": lambda s: _with_a_sweep(read(25), World(s).after(protect(25)), s, BOTH_DONE),
    "write": lambda s: Scenario(World(s).expect(NEW), (write(), sweep_everything(s)), DONE_OR_ABORTED),
    "delete": lambda s: Scenario(World(s).expect(b""), (write(delete=True), sweep_everything(s)), DONE_OR_ABORTED),
    "another sweep": lambda s: _with_a_sweep(sweep(24, s), World(s).after(protect(15)), s, BOTH_DONE),
}  # fmt: skip


# --- two processes that change the records ----------------------------------------------------------------------------

RECORDS: dict[str, Callable[[], Scenario]] = {
    "protect and protect, one name": lambda: Scenario(
        World(), (protect(25), protect(35)), {("accepted", "exists"), ("exists", "accepted")}
    ),
    "protect and protect, two names": lambda: Scenario(
        World(), (protect(25), protect(35, name="q")), {("accepted", "accepted")}
    ),
    "protect and protect, one name, too late": lambda: Scenario(
        World().after(sweep(30)), (protect(25), protect(35)), {("refused", "exists"), ("refused", "accepted")}
    ),
    "release and protect": lambda: Scenario(
        World(), (release(), protect(25)), {("not_found", "accepted"), ("done", "accepted"), ("done", "not_found")}
    ),
    "release and protect, one name": lambda: Scenario(
        World().after(protect(25)), (release(), protect(35)), {("done", "exists"), ("done", "accepted")}
    ),
    "release and release": lambda: Scenario(
        World().after(protect(25)), (release(), release()), {("done", "not_found"), ("not_found", "done")}
    ),
    "release an old one and protect again": lambda: _released_by_version(
        release_and_protect(35), ends={("not_found", "accepted"), ("changed", "accepted"), ("done", "not_found")}
    ),
    "move and move": lambda: Scenario(
        World().after(protect(15)), (move(25), move(35)), {("accepted", "accepted"), ("changed", "accepted")}
    ),
    "move and release": lambda: Scenario(
        World().after(protect(15)), (move(25), release()), {("accepted", "done"), ("not_found", "done")}
    ),
    "protect and move": lambda: Scenario(
        World(), (protect(25), move(35)), {("accepted", "accepted"), ("accepted", "not_found")}
    ),
    "protect too late, and move": lambda: Scenario(
        World().after(sweep(30)), (protect(25), move(35)), {("refused", "not_found")}
    ),
    "protect and settle": lambda: Scenario(World(), (protect(25), settle()), {("accepted", "done")}),
    "protect too late, and settle": lambda: Scenario(
        World().after(sweep(30)), (protect(25), settle()), {("refused", "done")}
    ),
    "move and settle": lambda: Scenario(
        World().after(protect(15)), (move(25), settle()), {("accepted", "done")}
    ),
    "protect and truncate": lambda: Scenario(
        World(), (protect(25), truncate()), {("accepted", "bad_value"), ("refused", "done")}
    ),
    "protect in a transaction and release": lambda: Scenario(
        World(), (protect_in_transaction(25), release()), {("accepted", "done"), ("accepted", "not_found")}
    ),
    "protect in a transaction and settle": lambda: Scenario(
        World(), (protect_in_transaction(25), settle()), {("accepted", "done")}
    ),
    "release in a transaction and settle": lambda: Scenario(
        World().after(protect(25)), (release_in_transaction(), settle()), {("accepted", "done")}
    ),
    "release in a transaction and move": lambda: Scenario(
        World().after(protect(15)), (release_in_transaction(), move(25)), {("accepted", "accepted")}
    ),
}  # fmt: skip


# --- three ------------------------------------------------------------------------------------------------------------

THREE: dict[str, Callable[[], Scenario]] = {
    "protect, settle, sweep": lambda: Scenario(
        World(), (protect(25), settle(), sweep()), {("accepted", "done", "done"), ("refused", "done", "done")}
    ),
    "move, settle, sweep": lambda: Scenario(
        World().after(protect(15)), (move(25), settle(), sweep()),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "protect, move, sweep": lambda: Scenario(
        World(), (protect(25), move(35), sweep(30)),
        {("accepted", "accepted", "done"), ("refused", "not_found", "done")},
    ),
    "move, release, sweep": lambda: Scenario(
        World().after(protect(15)), (move(25), release(), sweep()),
        {("accepted", "done", "done"), ("refused", "done", "done"), ("not_found", "done", "done")},
    ),
    "read, release, sweep": lambda: Scenario(
        World().after(protect(25)), (read(25), release(), sweep()),
        {("done", "done", "done"), ("snapshot_swept", "done", "done")},
    ),
    "release of an old one, protect again, sweep": lambda: _released_by_version(
        release_and_protect(27), sweep(35),
        ends={("not_found", "accepted", "done"), ("changed", "refused", "done"), ("done", "not_found", "done")},
    ),
    "protect, another strategy, its sweep": lambda: Scenario(
        World(), (protect(25), change(None, THOROUGH), sweep(40, THOROUGH)),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "protect, take a retention away, sweep": lambda: Scenario(
        World(retention_s=50).after(sweep()), (protect(15), change(None), sweep(45)),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
}  # fmt: skip

WIDER: dict[str, Callable[[], Scenario]] = {
    "protect, an older sweep again, sweep": lambda: Scenario(
        World().after(sweep(20)), (protect(25), sweep(20), sweep(40)),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "protect, sweep, sweep further": lambda: Scenario(
        World(), (protect(25), sweep(35), sweep(40)), {("accepted", "done", "done"), ("refused", "done", "done")}
    ),
    "protect, give a retention, sweep": lambda: Scenario(
        World(), (protect(15), change(50), sweep()), {("accepted", "done", "done"), ("refused", "done", "done")}
    ),
    "protect, sweeps of the old strategy and the new": lambda: Scenario(
        World().after(change(None, THOROUGH)), (protect(25), sweep(), sweep(40, THOROUGH)),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "give a retention, take it away, sweep": lambda: Scenario(
        World(), (change(50), change(None), sweep()), {("done", "done", "done")}
    ),
    "protect, truncate, sweep": lambda: Scenario(
        World(), (protect(25), truncate(), sweep()),
        {("accepted", "bad_value", "done"), ("refused", "done", "done"), ("refused", "bad_value", "done")},
    ),
    "protect in a transaction, settle, sweep": lambda: Scenario(
        World(), (protect_in_transaction(25), settle(), sweep()),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "release in a transaction, settle, sweep": lambda: Scenario(
        World().after(protect(25), sweep(40)), (release_in_transaction(), settle(), sweep(45)),
        {("accepted", "done", "done")},
    ),
    "release, protect under another name, sweep": lambda: Scenario(
        World(retention_s=50).after(protect(15), sweep()), (release(), protect(15, name="q"), sweep(45)),
        {("done", "accepted", "done")},
    ),
    "move, sweep, sweep further": lambda: Scenario(
        World().after(protect(15)), (move(25), sweep(24), sweep(40)),
        {("accepted", "done", "done"), ("refused", "done", "done")},
    ),
    "release, sweep, sweep further, everything parked": lambda: Scenario(
        World().after(protect(25), sweep(40)), (release(), sweep(40), sweep(45)), {("done", "done", "done")}
    ),
}  # fmt: skip
