"""A table that is truncated, dropped and created again, with writers, readers and protectors, in every order.

Writers and readers take their timestamps from the service. So what they must have seen follows from the end state:
their own timestamp, the outcomes of all writers, and the timestamps at which the table was emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import OutcomeUnknown
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableState
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.tables.activity import Activity, WriteCounts
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable
from tests.interleavings import search
from tests.interleavings.processes import Actor, Position
from tests.interleavings.search import Contents, Explored, Fork, Search
from tests.interleavings.world import (
    CLOCK,
    GREATEST,
    SETTINGS,
    TABLE,
    A,
    B,
    World,
    catalog,
    protections,
    sweep,
    sweep_everything,
    truncate,
)

NEW = b"new"
BOTH = (A, B)
RECORD = "backup"


class Seen(NamedTuple):
    """The two answers of a reader at one timestamp."""

    at: int
    first: dict[Cell, bytes]
    second: dict[Cell, bytes]


class Wrote(NamedTuple):
    start: int
    commit: int


class Protected(NamedTuple):
    ts: int
    accepted: bool


def client(store: Store) -> TransactionManager:
    return TransactionManager(store, SETTINGS, clock=CLOCK, renew_leases=False)


class Counted(NamedTuple):
    written: WriteCounts


def write(delete: bool = False) -> Actor:
    """A transaction that writes a cell. What it wrote before may be removed by then."""

    def work(store: Store) -> Wrote:
        with client(store).transaction() as tx:
            tx.delete(TABLE, *A) if delete else tx.put(TABLE, *A, NEW)
        assert tx.commit_ts is not None
        return Wrote(tx.start, tx.commit_ts)

    return Actor("delete" if delete else "write", work, writes=b"" if delete else NEW)


def read_twice() -> Actor:
    def work(store: Store) -> Seen:
        snapshot = client(store).read_at(TimestampService(store).fresh())
        first = snapshot.get_many(TABLE, BOTH)
        return Seen(snapshot.at, first, snapshot.get_many(TABLE, BOTH))

    return Actor("read twice", work)


def protect_now(target: str = str(TABLE)) -> Actor:
    def work(store: Store) -> Protected:
        ts = TimestampService(store).fresh()
        record = Record(RECORD, ts, Mode.AT, (Target.parse(target),))
        return Protected(ts, protections(store).protect(record).accepted)

    return Actor(f"protect {target}", work)


def drop(force: bool = False, owner: str = "dropping") -> Actor:
    return Actor("drop", lambda store: catalog(store, owner).drop(TABLE, force), forces=force)


def create() -> Actor:
    return Actor("create", lambda store: catalog(store).create(TABLE, TableMetadata()))


def drop_and_create() -> Actor:
    def work(store: Store) -> None:
        catalog(store, "replacing").drop(TABLE)
        catalog(store).create(TABLE, TableMetadata())

    return Actor("drop and create", work)


def create_and_write(strategy: SweepStrategy = SweepStrategy.CONSERVATIVE) -> Actor:
    """Create the table as soon as the name is free, even if another process is about to remove the old one."""

    def work(store: Store) -> object:
        catalog(store).create(TABLE, TableMetadata(strategy))
        return write().work(store)

    return Actor("create and write", work)


def create_and_count() -> Actor:
    """Create the table, and record that a sweep has counted writes of it."""

    def work(store: Store) -> Counted:
        catalog(store).create(TABLE, TableMetadata())
        counted = WriteCounts(7)
        Activity(store).add(SweepStrategy.CONSERVATIVE, 0, {TABLE: counted})
        return Counted(counted)

    return Actor("create and count", work)


class Emptied:
    """The invariants of every state, and of the results of the processes when all have ended."""

    def __init__(self, world: World, actors: tuple[Actor, ...]) -> None:
        self._world = world
        self._forced = any(actor.forces for actor in actors)
        self._checked: set[Contents] = set()

    def at_rest(self, state: search.State) -> None:
        contents, positions = state
        for position in positions:
            if isinstance(position.result, Wrote):
                self._check_kept(contents.store, position.result)
            if isinstance(position.result, Protected) and position.result.accepted and not self._forced:
                self._check_protected(contents.store, position.result.ts)
            if isinstance(position.result, Counted):
                found = Activity(contents.store).ever(TABLE)
                assert found == position.result.written, f"{found} is counted, not {position.result.written}"
        if contents not in self._checked:
            self._checked.add(contents)
            self._check_the_table_is_usable(contents.store)

    def step(self, before: Contents, after: Contents) -> None:
        then, now = (each.store.catalog_rows([TABLE]).get(TABLE) for each in (before, after))
        assert now is not None, "the row of a table stays"
        assert then is None or (now.mark, now.incarnation) >= (then.mark, then.incarnation), "it went back"
        assert not (then and then.is_gone and now.state is not TableState.GONE and now.incarnation == then.incarnation)

    def at_the_end(self, state: search.State) -> None:
        for position in state.positions:
            if isinstance(position.result, Seen):
                self._check_seen(state, position.result)
        if not any(isinstance(position.error, OutcomeUnknown) for position in state.positions):
            self._check_all_commits_were_reported(state)

    # --- results of reads ------------------------------------------------------------------------------------------

    def _check_kept(self, store: Fork, wrote: Wrote) -> None:
        """A write that was reported as committed is found, unless the table was emptied at a later timestamp."""
        row = store.catalog_rows([TABLE])[TABLE]
        if row.is_gone or row.mark > wrote.start:
            assert row.mark > wrote.start, f"{wrote} was removed by a drop at {row.mark}"
            return
        found = _read_at(store, TimestampService(Fork(store)).greatest() + 1)
        assert found[A] == NEW, f"{wrote} is lost; the row of the table is {row}"

    def _check_protected(self, store: Fork, ts: int) -> None:
        """An accepted record keeps what is visible at its timestamp, unless the table is emptied with force."""
        row = store.catalog_rows([TABLE])[TABLE]
        assert row.mark <= ts, f"protected at {ts}, and emptied up to {row.mark}"
        assert [each.state for each in protections(store).records()] == [State.ACCEPTED]

    @staticmethod
    def _check_all_commits_were_reported(state: search.State) -> None:
        store = state.contents.store
        starts = range(GREATEST + 1, TimestampService(store).greatest() + 1)
        committed = {commit for commit in CommitTable(store).outcomes(starts).items() if commit[1] >= 0}
        reported = {tuple(each.result) for each in state.positions if isinstance(each.result, Wrote)}
        assert reported == committed, f"{reported} were reported, and {committed} is stored"

    def _check_seen(self, state: search.State, seen: Seen) -> None:
        """The answer of a store that empties a table in one step."""
        assert seen.first == seen.second, f"a snapshot at {seen.at} saw {seen.first}, then {seen.second}"
        store = state.contents.store
        mark = max([mark for mark in _marks(state.positions, store) if mark <= seen.at], default=0)
        expected = {}
        for cell in BOTH:
            values = self._values(cell, state.positions)
            visible = [start for start, commit in values if mark <= start < seen.at and 0 <= commit < seen.at]
            value = values[max((start, commit) for start, commit in values if start in visible)] if visible else b""
            if value:
                expected[cell] = value
        assert seen.first == expected, f"a snapshot at {seen.at} saw {seen.first}, not {expected}; emptied at {mark}"

    def _values(self, cell: Cell, positions: tuple[Position, ...]) -> dict[tuple[int, int], bytes]:
        """By start and commit."""
        found = {
            (start, self._world.commits[start]): written[(str(TABLE), *cell)]
            for start, written in self._world.journal.writes.items()
            if (str(TABLE), *cell) in written
        }
        if cell == A:
            found |= {(p.result.start, p.result.commit): NEW for p in positions if isinstance(p.result, Wrote)}
        return found

    @staticmethod
    def _check_the_table_is_usable(store: Fork) -> None:
        """Check that the table can be dropped, created again and written to, in any unfinished state."""
        left = Fork(store)
        for each in protections(left).records():
            protections(left).release(each.id)
        if not left.catalog_rows([TABLE])[TABLE].is_gone:
            catalog(left).drop(TABLE)
        catalog(left).create(TABLE, TableMetadata())
        with client(left).transaction() as tx:
            tx.put(TABLE, *A, NEW)
        assert client(left).transaction().get(TABLE, *A) == NEW


def _read_at(store: Fork, at: int) -> dict[Cell, bytes]:
    """Read with the real reader, at a fresh timestamp."""
    own = Fork(store)
    TimestampService(own).move_past(at)
    found = client(own).read_at(at).get_many(TABLE, BOTH)
    return {cell: found.get(cell, b"") for cell in BOTH}


def _marks(positions: tuple[Position, ...], store: MemoryStore) -> set[int]:
    """The timestamps at which the table was emptied: from the end state, and from the answers of those who decided."""
    found = {store.catalog_rows([TABLE])[TABLE].mark}
    for position in positions:
        found |= {row.mark for answer in position.answers for row in _rows(answer.value)}
    return found


def _rows(value: object) -> list[TableMetadata]:
    return [each for each in value.values() if isinstance(each, TableMetadata)] if isinstance(value, dict) else []


class Scenario(NamedTuple):
    world: World
    actors: tuple[Actor, ...]
    ends: set[tuple[str, ...]]

    def explore(self, lost_answers: int = 0) -> Explored:
        return Search(self.world.store, self.actors, Emptied(self.world, self.actors), lost_answers).run()


Make = Callable[[], Scenario]
MakeSwept = Callable[[SweepStrategy], Scenario]

EMPTYING: dict[str, Make] = {
    "truncate and write": lambda: Scenario(World(), (truncate(), write()), {("done", "done"), ("done", "aborted")}),
    "truncate and read twice": lambda: Scenario(
        World(), (truncate(), read_twice()), {("done", "done"), ("done", "snapshot_swept")}
    ),
    "truncate and protect": lambda: Scenario(
        World(), (truncate(), protect_now()), {("done", "accepted"), ("bad_value", "accepted"), ("done", "refused")}
    ),
    "truncate by force and protect": lambda: Scenario(
        World(), (truncate(force=True), protect_now()), {("done", "accepted"), ("done", "refused")}
    ),
    "drop and write": lambda: Scenario(
        World(), (drop(), write()), {("done", "done"), ("done", "aborted"), ("done", "unknown_table")}
    ),
    "drop and read twice": lambda: Scenario(
        World(), (drop(), read_twice()), {("done", "done"), ("done", "unknown_table")}
    ),
    "drop and protect by pattern": lambda: Scenario(
        World(), (drop(), protect_now("app.*")),
        {("done", "accepted"), ("done", "refused"), ("done", "bad_value"), ("bad_value", "accepted")},
    ),
    "drop and drop": lambda: Scenario(
        World(), (drop(), drop(owner="another")), {("done", "unknown_table"), ("unknown_table", "done")}
    ),
    "drop and truncate": lambda: Scenario(
        World(), (drop(), truncate()), {("done", "done"), ("done", "unknown_table")}
    ),
    "drop, create and write": lambda: Scenario(
        World(), (drop_and_create(), write()), {("done", "done"), ("done", "aborted"), ("done", "unknown_table")}
    ),
    "drop, create and read twice": lambda: Scenario(
        World(), (drop_and_create(), read_twice()), {("done", "done"), ("done", "snapshot_swept")}
    ),
    "drop, and create and write": lambda: Scenario(
        World(), (drop(), create_and_write()), {("done", "done"), ("done", "exists")}
    ),
    "create and create": lambda: Scenario(
        World().after(drop()), (create(), create()), {("done", "exists"), ("exists", "done")}
    ),
    "create, and create and count": lambda: Scenario(
        World().after(drop()), (create(), create_and_count()), {("done", "exists"), ("exists", "done")}
    ),
}  # fmt: skip

SWEPT: dict[str, MakeSwept] = {
    "drop": lambda s: Scenario(World(s), (drop(), sweep_everything(s)), {("done", "done")}),
    "drop and create": lambda s: Scenario(World(s), (drop_and_create(), sweep(40, s)), {("done", "done")}),
    "create and write": lambda s: Scenario(
        World(s).after(drop()), (create_and_write(s), sweep_everything(s)), {("done", "done"), ("aborted", "done")}
    ),
}
"""A process beside a sweep."""

SWEPT_WIDER: dict[str, MakeSwept] = {
    "truncate and read twice": lambda s: Scenario(World(s), (truncate(), read_twice(), sweep(40, s)), set()),
    "drop, create and write": lambda s: Scenario(World(s), (drop_and_create(), write(), sweep_everything(s)), set()),
}

WIDER: dict[str, Make] = {
    "truncate and truncate": lambda: Scenario(World(), (truncate(), truncate(owner="another")), {("done", "done")}),
    "truncate, write and read twice": lambda: Scenario(World(), (truncate(), write(), read_twice()), set()),
    "drop, create, write and read twice": lambda: Scenario(World(), (drop_and_create(), write(), read_twice()), set()),
    "drop, drop, create and write": lambda: Scenario(World(), (drop(), drop_and_create(), write()), set()),
    "truncate, protect and read twice": lambda: Scenario(World(), (truncate(), protect_now(), read_twice()), set()),
}  # fmt: skip
