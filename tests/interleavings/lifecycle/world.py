"""What processes share in the model, and the atomic steps that they can take on it.

One table name with its catalogue row, the physical tables behind it, two cells, the commits, the protection records and
the clock. Each version is stored twice: on a replica that gets everything, and on one that misses every delete.

`history`, `answers` and `altered` are not part of the system. They record what was decided and what was returned to
clients, so that the checks can compare every later state with it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

A, B = "a", "b"
CELLS = (A, B)
ABORTED = -1


class State(StrEnum):
    ACTIVE = "active"
    TRUNCATING = "truncating"
    DROPPING = "dropping"
    GONE = "gone"


class Row(NamedTuple):
    """The catalogue row of the table: changed only as a whole."""

    state: State
    owner: str
    mark: int
    incarnation: int
    strategy: str = "conservative"

    @property
    def announced(self) -> bool:
        return self.state in (State.TRUNCATING, State.DROPPING)

    def rolled_back(self) -> Row:
        return self._replace(state=State.ACTIVE, owner="")


class Record(NamedTuple):
    """A protection that covers the table, by its name or by a pattern."""

    name: str
    timestamp: int
    accepted: bool = False


class Version(NamedTuple):
    table: int
    """The physical table: its name carries an incarnation."""
    cell: str
    start: int


class Commit(NamedTuple):
    """The decision on a transaction, which writes one cell here."""

    start: int
    timestamp: int
    cell: str


class Event(NamedTuple):
    """A decision about the table: from this timestamp on it is empty, or there is none."""

    timestamp: int
    gone: bool = False
    forced: bool = False


class Answer(NamedTuple):
    """What a read returned: the start timestamp of the version it saw, if any."""

    timestamp: int
    cell: str
    start: int | None


class World(NamedTuple):
    clock: int = 0
    row: Row | None = None
    tables: frozenset[int] = frozenset()
    stored: frozenset[Version] = frozenset()
    stale: frozenset[Version] = frozenset()
    """What the replica that misses deletes holds."""
    commits: frozenset[Commit] = frozenset()
    records: frozenset[Record] = frozenset()
    history: tuple[Event, ...] = ()
    answers: frozenset[Answer] = frozenset()
    altered: tuple[int, str] | None = None
    """An incarnation, and the new strategy that was returned to a client."""


Outcomes = list[tuple[Any, World]]


class Step(NamedTuple):
    """An atomic step: the answers it can have, each with the world it leaves behind."""

    label: str
    take: Callable[[World], Outcomes]
    recorded: bool = False
    """It only records something for the checks, so no other process can observe when it is taken."""


def fresh() -> Step:
    return Step("take a fresh timestamp", lambda w: [(w.clock + 1, w._replace(clock=w.clock + 1))])


# --- the catalogue row ------------------------------------------------------------------------------------------------


def read_row() -> Step:
    return Step("read the row", lambda w: [(w.row, w)])


def check_row(label: str, verdict: Callable[[Row | None], Any]) -> Step:
    """Read the row and keep nothing of it but the verdict."""
    return Step(f"read the row: {label}", lambda w: [(verdict(w.row), w)])


def swap(before: Row | None, after: Row | None, event: Event | None = None) -> Step:
    """Compare and set the whole row; a decision is added to the history with it."""

    def take(w: World) -> Outcomes:
        return [(True, _set(w, after, event))] if w.row == before else [(False, w)]

    return Step(f"change the row to {_shown(after)}, if it is {_shown(before)}", take)


def overwrite(after: Row | None, event: Event | None = None) -> Step:
    """Set the row without comparing: no correct process does this."""
    return Step(f"set the row to {_shown(after)}", lambda w: [(True, _set(w, after, event))])


def _set(w: World, row: Row | None, event: Event | None) -> World:
    return w._replace(row=row, history=w.history if event is None else (*w.history, event))


def _shown(row: Row | None) -> str:
    if row is None:
        return "absent"
    owned = f" by {row.owner}" if row.owner else ""
    return f"{row.state}{owned} (mark {row.mark}, incarnation {row.incarnation})"


def alter(before: Row, after: Row, compare: bool = True) -> Step:
    def take(w: World) -> Outcomes:
        if compare and w.row != before:
            return [(False, w)]
        return [(True, w._replace(row=after, altered=(after.incarnation, after.strategy)))]

    return Step(f"change the strategy to {after.strategy}", take)


# --- physical tables and their versions -------------------------------------------------------------------------------


def create_physical(table: int) -> Step:
    return Step(f"create physical table {table}", lambda w: [(None, w._replace(tables=w.tables | {table}))])


def drop_physical(last: int) -> Step:
    """Drop the physical tables up to this incarnation, on all replicas."""

    def take(w: World) -> Outcomes:
        tables = frozenset(table for table in w.tables if table > last)
        stored, stale = (frozenset(v for v in versions if v.table > last) for versions in (w.stored, w.stale))
        return [(None, w._replace(tables=tables, stored=stored, stale=stale))]

    return Step(f"drop physical tables up to {last}", take)


def put(table: int, cell: str, start: int) -> Step:
    """Write a value. A write to a table that is not there leaves nothing behind, and its writer may not notice."""

    def take(w: World) -> Outcomes:
        if table not in w.tables:
            return [(None, w)]
        version = Version(table, cell, start)
        return [(None, w._replace(stored=w.stored | {version}, stale=w.stale | {version}))]

    return Step(f"write {cell} in table {table}", take)


def delete(table: int, cell: str, below: int | None) -> Step:
    """Delete one page: the versions of a cell that started below a timestamp, or all of them."""

    def take(w: World) -> Outcomes:
        kept = (v for v in w.stored if v[:2] != (table, cell) or not (below is None or v.start < below))
        return [(None, w._replace(stored=frozenset(kept)))]

    return Step(f"delete {cell} in table {table} below {below}", take)


Found = tuple[tuple[int, int | None], ...]
"""Versions of a cell: start timestamps, with the commit timestamp if the transaction is decided."""


def read_versions(table: int, cell: str, below: int) -> Step:
    """Read the versions that started below a timestamp, from either replica; None where the table is missing."""

    def take(w: World) -> Outcomes:
        return [
            (found, w) for found in {versions_of(w, replica, table, cell, below) for replica in (w.stored, w.stale)}
        ]

    return Step(f"read {cell} in table {table}", take)


def versions_of(
    w: World, replica: frozenset[Version], table: int, cell: str, below: float = float("inf")
) -> Found | None:
    if table not in w.tables:
        return None
    decided = {commit.start: commit.timestamp for commit in w.commits}
    starts = (v.start for v in replica if v[:2] == (table, cell) and v.start < below)
    return tuple((start, decided.get(start)) for start in sorted(starts))


def decide(start: int, commit: int, cell: str) -> Step:
    """Put the outcome of a transaction if it has none; return the stored one."""

    def take(w: World) -> Outcomes:
        for existing in w.commits:
            if existing.start == start:
                return [(existing.timestamp, w)]
        return [(commit, w._replace(commits=w.commits | {Commit(start, commit, cell)}))]

    return Step(f"abort {start}" if commit == ABORTED else f"commit {start} at {commit}", take)


def answer(timestamp: int, cell: str, start: int | None) -> Step:
    given = Answer(timestamp, cell, start)
    return Step(
        f"return {start} for {cell} at {timestamp}", lambda w: [(None, w._replace(answers=w.answers | {given}))], True
    )


# --- protection records -----------------------------------------------------------------------------------------------


def add_record(name: str, timestamp: int) -> Step:
    pending = Record(name, timestamp)

    def take(w: World) -> Outcomes:
        return [(None, w._replace(records=w.records | {pending}))]

    return Step(f"write record {name} at {timestamp}, pending", take)


def accept(name: str, timestamp: int, compare: bool = True) -> Step:
    pending = Record(name, timestamp)

    def take(w: World) -> Outcomes:
        if compare and pending not in w.records:
            return [(False, w)]
        return [(True, w._replace(records=w.records - {pending} | {pending._replace(accepted=True)}))]

    return Step(f"accept record {name}", take)


def remove_pending(pending: Record) -> Step:
    return Step(f"remove record {pending.name}", lambda w: [(None, w._replace(records=w.records - {pending}))])


def read_records(verdict: Callable[[frozenset[Record]], Any]) -> Step:
    return Step("read the protections", lambda w: [(verdict(w.records), w)])
