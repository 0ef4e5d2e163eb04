"""A very small history, and everybody who may come upon it.

Two cells with two and three versions, one shard. Little enough that every order of two or three who work on it can be
tried, and enough that each version is somebody's to keep and somebody's to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.errors import AlreadySwept
from sweep_tasks.model import Cell, ConflictHandling, Span, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, Verdict
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.system import SYSTEM_TABLES
from sweep_tasks.sweep.engine import ShardSweep, SweepOptions
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions import Transaction, TransactionManager
from sweep_tasks.transactions.commits import CommitTable
from tests.interleavings.processes import Actor
from tests.properties.model import Journal
from tests.support.clock import ManualClock

TABLE = TableRef.parse("app.t")
A, B = Cell(b"a", b"c"), Cell(b"b", b"c")
CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
SETTINGS = Settings(retention_s=0, grace_s=1_000)
NOW_MS = 1_000_000

HISTORY = {10: (12, {A: b"1", B: b"1"}), 20: (22, {A: b"2"}), 30: (32, {A: b"3", B: b""})}
"""By start: the commit, and what was written; an empty value is a delete."""
S = 40
"""How far sweeps go: above all of the history."""
WALL_CLOCK = {100: 5, 50: 15, 10: 25, 0: 45}
"""By seconds ago: the timestamp handed out by then. So a retention of 50 seconds reaches back to 15."""
GREATEST = 50


class StandingClock(ManualClock):
    """A process that is run again must find the time it found before."""

    def sleep(self, seconds: float) -> None:
        """Nobody here waits for the clock; whoever wants to let others go first is one call further all the same."""


CLOCK = StandingClock(NOW_MS)


class World:
    """The store that a scenario starts with, and what was written to it."""

    def __init__(self, strategy: SweepStrategy = CONSERVATIVE, retention_s: int | None = None) -> None:
        self.store = MemoryStore(CLOCK)
        for table, metadata in SYSTEM_TABLES.items():
            self.store.create_table(table, metadata)
        Catalog(self.store).create(TABLE, TableMetadata(strategy, ConflictHandling.NONE, retention_s))
        self.commits = {start: commit for start, (commit, _) in HISTORY.items()}
        self.journal = Journal()
        for start, (commit, values) in HISTORY.items():
            self._write(start, commit, values)
        for seconds, ts in WALL_CLOCK.items():
            Puncher(self.store).record(Punch(NOW_MS - seconds * 1_000, ts))
        TimestampService(self.store).move_past(GREATEST)

    def _write(self, start: int, commit: int, values: dict[Cell, bytes]) -> None:
        QueueWriter(self.store).enqueue(start, {TABLE: values}, self.store.tables([TABLE]))
        self.store.put(start, {TABLE: values})
        CommitTable(self.store).decide(start, commit)
        self.journal.writes[start] = {(str(TABLE), *cell): value for cell, value in values.items()}

    def after(self, *actors: Actor) -> World:
        """The same, later: these have done their work, one after the other."""
        for actor in actors:
            actor.work(self.store)
        return self


def protections(store: Store) -> ProtectionCatalog:
    return ProtectionCatalog(store, SETTINGS, CLOCK)


def record(name: str, ts: int, mode: Mode = Mode.AT, rows: Span | None = None) -> Record:
    return Record(name, ts, mode, (Target(TABLE, rows or Span()),))


def protect(ts: int, mode: Mode = Mode.AT, name: str = "r", rows: Span | None = None) -> Actor:
    wanted = record(name, ts, mode, rows)
    return Actor(f"protect {name} {mode} {ts}", lambda store: protections(store).protect(wanted), wanted)


def move(ts: int, mode: Mode = Mode.AT, name: str = "r") -> Actor:
    wanted = record(name, ts, mode)
    return Actor(f"move {name} to {ts}", lambda store: protections(store).move(name, ts), wanted, name)


def release(name: str = "r") -> Actor:
    return Actor(f"release {name}", lambda store: protections(store).release(name), lets_go_of=name)


def release_if_unchanged(world: World, name: str = "r") -> Actor:
    """As who has found out that this record, and not one in its place, is no longer needed."""
    version = protections(world.store).get(name).version
    return Actor(f"release {name} of version {version}", lambda store: protections(store).release(name, version))


def release_and_protect(ts: int, name: str = "r") -> Actor:
    """Another record under the name of the old one."""
    wanted = record(name, ts)

    def work(store: Store) -> object:
        protections(store).release(name)
        return protections(store).protect(wanted)

    return Actor(f"release {name} and protect {ts}", work, wanted, name)


def settle() -> Actor:
    """As who comes upon records that are not finished, and can't tell whether their makers are dead or slow."""

    def work(store: Store) -> None:
        outcomes = CommitTable(store).outcomes
        for each in protections(store).records():
            protections(store).settle(each, outcomes)

    return Actor("settle", work, settles=True)


def protect_in_transaction(ts: int, name: str = "r") -> Actor:
    wanted = record(name, ts)

    def work(store: Store) -> Verdict:
        try:
            _in_transaction(store, lambda tx: tx.protect(wanted))
        except AlreadySwept:
            return Verdict(False)
        return Verdict(True)

    return Actor(f"protect {name} {ts} in a transaction", work, wanted, commits=True)


def release_in_transaction(name: str = "r") -> Actor:
    def work(store: Store) -> Verdict:
        _in_transaction(store, lambda tx: tx.release(name))
        return Verdict(True)

    return Actor(f"release {name} in a transaction", work, lets_go_of=name, commits=True)


def _in_transaction(store: Store, do: Callable[[Transaction], object]) -> None:
    with TransactionManager(store, SETTINGS, clock=CLOCK, renew_leases=False).transaction() as tx:
        do(tx)


def sweep(up_to: int = S, strategy: SweepStrategy = CONSERVATIVE, batch: int = 1_000) -> Actor:
    def work(store: Store) -> None:
        options = SweepOptions(batch=batch, grace_s=SETTINGS.grace_s)
        ShardSweep(store, strategy, 0, Horizon(up_to, NOW_MS), CLOCK, options).run()

    return Actor(f"{strategy} sweep to {up_to}", work)


def change(retention_s: int | None, strategy: SweepStrategy = CONSERVATIVE) -> Actor:
    return Actor(
        f"make it {strategy}, retention {retention_s}",
        lambda store: Catalog(store).change(TABLE, strategy, retention_s),
    )


def truncate() -> Actor:
    return Actor("truncate", lambda store: Catalog(store).truncate(TABLE))


def read(at: int) -> Actor:
    return Actor(f"read at {at}", lambda store: seen_by_reader(store, at), reads_at=at)


def seen_by_reader(store: Store, at: int, cells: Iterable[Cell] = (A, B)) -> dict[Cell, bytes]:
    manager = TransactionManager(store, SETTINGS, clock=CLOCK, renew_leases=False)
    return manager.read_at(at).get_many(TABLE, list(cells))
