"""A very small history, and every process that may work on it.

Two cells with two and three versions, one shard. It is small enough to run every order of two or three processes, and
large enough that each version has a process that keeps it and one that removes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadySwept
from sweep_tasks.model import Cell, ConflictHandling, Span, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, ProtectionVerdict
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import SYSTEM_TABLES
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import Transaction, TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable
from tests.interleavings.processes import Actor
from tests.properties.model import Journal
from tests.support.clock import ManualClock

TABLE = TableRef.parse("app.t")
A, B = Cell(b"a", b"c"), Cell(b"b", b"c")
CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
SETTINGS = Settings(retention_s=0, grace_s=1_000, emptying_wait_s=0)
NOW_MS = 1_000_000

HISTORY = {10: (12, {A: b"1", B: b"1"}), 20: (22, {A: b"2"}), 30: (32, {A: b"3", B: b""})}
"""By start: the commit, and what was written. An empty value is a delete."""
S = 40
"""The sweep timestamp: above the whole history."""
WALL_CLOCK = {100: 5, 50: 15, 10: 25, 0: 45}
"""By seconds ago: the timestamp that was issued by then. So a retention of 50 seconds reaches back to 15."""
GREATEST = 50


class StandingClock(ManualClock):
    """A process that is run again must find the same time as before."""

    def sleep(self, seconds: float) -> None:
        """No process here waits for the clock. A process that waits for others still proceeds by one
        call."""


CLOCK = StandingClock(NOW_MS)


class World:
    """The store that a scenario starts with, and what was written to it."""

    def __init__(self, strategy: SweepStrategy = CONSERVATIVE, retention_s: int | None = None) -> None:
        self.store = MemoryStore(CLOCK)
        for table, metadata in SYSTEM_TABLES.items():
            self.store.create_table(table, metadata)
        Catalog(self.store).create(TABLE, TableMetadata(strategy, ConflictHandling.NONE, retention_s))
        self.commits = {start: commit for start, (commit, _) in HISTORY.items()}
        self.starts = range(0)
        """The outcomes of later writers, as far as they are known."""
        self.journal = Journal()
        for start, (commit, values) in HISTORY.items():
            self._write(start, commit, values)
        for seconds, ts in WALL_CLOCK.items():
            ClockHistory(self.store).record(ClockSample(NOW_MS - seconds * 1_000, ts))
        TimestampService(self.store).move_past(GREATEST)

    def _write(self, start: int, commit: int, values: dict[Cell, bytes]) -> None:
        QueueWriter(self.store).enqueue(start, {TABLE: values}, self.store.tables([TABLE]))
        self.store.put(start, {TABLE: values})
        CommitTable(self.store).decide(start, commit)
        self.journal.writes[start] = {(str(TABLE), *cell): value for cell, value in values.items()}

    def expect(self, value: bytes) -> World:
        """A process may write this to the first cell, and takes its start from the service."""
        self.starts = range(GREATEST + 1, GREATEST + 10)
        self.journal.writes |= {start: {(str(TABLE), *A): value} for start in self.starts}
        return self

    def commits_in(self, store: Store) -> dict[int, int]:
        return self.commits | CommitTable(store).outcomes(self.starts)

    def after(self, *actors: Actor) -> World:
        """The same history, later: these processes have done their work, one after the other."""
        for actor in actors:
            actor.work(self.store)
        return self


def catalog(store: Store, owner: str = "another") -> Catalog:
    """The catalog of one process. Its attempts are numbered, so that they are the same when it is run again."""
    attempts = itertools.count(1)
    return Catalog(store, CLOCK, patience_s=0, new_owner=lambda: f"{owner} {next(attempts)}")


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
    """Like a process that has found out that this record, and not one in its place, is no longer needed."""
    version = protections(world.store).get(name).version
    return Actor(f"release {name} of version {version}", lambda store: protections(store).release(name, version))


def release_and_protect(ts: int, name: str = "r") -> Actor:
    """Another record with the id of the old one."""
    wanted = record(name, ts)

    def work(store: Store) -> object:
        protections(store).release(name)
        return protections(store).protect(wanted)

    return Actor(f"release {name} and protect {ts}", work, wanted, name)


def settle() -> Actor:
    """Like a process that finds unfinished records, and can't know if their processes died or are slow."""

    def work(store: Store) -> None:
        outcomes = CommitTable(store).outcomes
        for each in protections(store).records():
            protections(store).resolve(each, outcomes)

    return Actor("settle", work, settles=True)


def protect_in_transaction(ts: int, name: str = "r") -> Actor:
    wanted = record(name, ts)

    def work(store: Store) -> ProtectionVerdict:
        try:
            _in_transaction(store, lambda tx: tx.protect(*wanted.targets, id=name, ts=ts, mode=wanted.mode))
        except AlreadySwept:
            return ProtectionVerdict(False)
        return ProtectionVerdict(True)

    return Actor(f"protect {name} {ts} in a transaction", work, wanted, commits=True)


def release_in_transaction(name: str = "r") -> Actor:
    def work(store: Store) -> ProtectionVerdict:
        _in_transaction(store, lambda tx: tx.release(name))
        return ProtectionVerdict(True)

    return Actor(f"release {name} in a transaction", work, lets_go_of=name, commits=True)


def _in_transaction(store: Store, do: Callable[[Transaction], object]) -> None:
    with TransactionManager(store, SETTINGS, clock=CLOCK, renew_leases=False).transaction() as tx:
        do(tx)


def sweep(up_to: int = S, strategy: SweepStrategy = CONSERVATIVE, batch: int = 1_000) -> Actor:
    def work(store: Store) -> None:
        options = SweepOptions(batch=batch, grace_s=SETTINGS.grace_s)
        ShardSweep(store, strategy, 0, Horizon(up_to, NOW_MS), CLOCK, options).run()

    return Actor(f"{strategy} sweep to {up_to}", work)


def sweep_everything(strategy: SweepStrategy) -> Actor:
    """All leases have expired, so this is bounded by the timestamps alone."""

    def work(store: Store) -> None:
        sweep(TimestampService(store).fresh(), strategy).work(store)

    return Actor(f"{strategy} sweep of everything", work)


def change(retention_s: int | None, strategy: SweepStrategy = CONSERVATIVE) -> Actor:
    return Actor(
        f"make it {strategy}, retention {retention_s}",
        lambda store: catalog(store).change(TABLE, strategy, retention_s),
    )


def truncate(force: bool = False, owner: str = "truncating") -> Actor:
    return Actor("truncate", lambda store: catalog(store, owner).truncate(TABLE, force), forces=force)


def read(at: int) -> Actor:
    return Actor(f"read at {at}", lambda store: seen_by_reader(store, at), reads_at=at)


def seen_by_reader(store: Store, at: int, cells: Iterable[Cell] = (A, B)) -> dict[Cell, bytes]:
    manager = TransactionManager(store, SETTINGS, clock=CLOCK, renew_leases=False)
    return manager.read_at(at).get_many(TABLE, list(cells))
