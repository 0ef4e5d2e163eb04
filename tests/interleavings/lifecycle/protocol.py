"""The protocol of a table's life: what each process does, one `yield` for each step that others can come between.

Every method is one clause that a reversed order can replace (`orders.py`). A process ends with a word that describes
how it ended; one that stops forever is no separate case, since the search never assumes that a process continues.

Left out: the sweep queue and the published thresholds, which have a search of their own on the real code, and waiting.
A process that waits for an announcement is one that takes its next step later, and the search tries that anyway.
"""

# ruff: noqa: ARG002 (a clause does not use all that its variants need)
from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.interleavings.lifecycle.world import (
    ABORTED,
    CELLS,
    Event,
    Found,
    Record,
    Row,
    State,
    Step,
    accept,
    add_record,
    alter,
    answer,
    check_row,
    create_physical,
    decide,
    delete,
    drop_physical,
    fresh,
    put,
    read_records,
    read_row,
    read_versions,
    remove_pending,
    swap,
)

Steps = Generator[Step, Any, Any]


def first_pending(records: frozenset[Record]) -> Record | None:
    return next((record for record in sorted(records) if not record.accepted), None)


class Then(NamedTuple):
    """The remaining steps of a process, with all that it still remembers. Histories that differ in nothing else meet
    here."""

    work: Callable[..., Steps]
    arguments: tuple[Any, ...]


class Claim(NamedTuple):
    """What an attempt to empty a table knows when it decides."""

    announced: Row
    timestamp: int
    covered: bool


class Protocol:
    # --- truncate and drop --------------------------------------------------------------------------------------------

    def empty(self, kind: State, owner: str, forced: bool = False) -> Steps:
        """Announce, decide, then delete. An announcement of another attempt is taken over like an active row."""
        row: Row | None = yield read_row()
        if row is None:
            return "unknown table"
        if self.is_final(row):
            return "unknown table" if kind is State.TRUNCATING else Then(self.finish, (row.incarnation,))
        claim: Claim | None = yield from self.claim(row, kind, owner)
        if claim is None:
            return "lost"
        if claim.covered and not forced:
            yield from self.refuse(claim)
            return "refused"
        if not (yield from self.decide(claim, kind, forced)):
            return "lost"
        if kind is State.DROPPING:
            return Then(self.finish, (row.incarnation,))
        return Then(self.delete, (row.incarnation, claim.timestamp))

    def is_final(self, row: Row) -> bool:
        return row.state is State.GONE

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        timestamp: int = yield fresh()
        return Claim(announced, timestamp, (yield from self.covered()))

    def covered(self) -> Steps:
        """Pending records count: the protector may already have checked the row."""
        return (yield read_records(bool))

    def refuse(self, claim: Claim) -> Steps:
        yield swap(claim.announced, claim.announced.rolled_back())

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        event = Event(claim.timestamp, kind is State.DROPPING, forced)
        return (yield swap(claim.announced, self.decided(claim, kind), event))

    def decided(self, claim: Claim, kind: State) -> Row:
        state = State.GONE if kind is State.DROPPING else State.ACTIVE
        return claim.announced._replace(state=state, owner="", mark=claim.timestamp)

    def delete(self, incarnation: int, below: int) -> Steps:
        for cell in CELLS:
            yield delete(incarnation, cell, below)
        return "done"

    def finish(self, incarnation: int) -> Steps:
        """Remove what is left of a dropped table; any process may, at any time after the decision."""
        yield drop_physical(incarnation)
        return "done"

    # --- create and alter ---------------------------------------------------------------------------------------------

    def create(self) -> Steps:
        """The mark is taken after the row was read: a drop in between makes the compare-and-set fail."""
        row: Row | None = yield read_row()
        if row is not None and row.state is not State.GONE:
            return "exists"
        if row is not None:
            yield from self.finish(row.incarnation)
        mark: int = yield fresh()
        created = Row(State.ACTIVE, "", mark, row.incarnation + 1 if row else 1)
        yield create_physical(created.incarnation)
        return "done" if (yield swap(row, created, Event(mark))) else "lost"

    def alter(self) -> Steps:
        """Any change but emptying refuses a table that is not active."""
        row: Row | None = yield read_row()
        if row is None or row.state is not State.ACTIVE:
            return "refused"
        return "done" if (yield alter(row, row._replace(strategy="thorough"))) else "lost"

    # --- transactions -------------------------------------------------------------------------------------------------

    def write(self, cell: str) -> Steps:
        """The table is found before the start timestamp is taken, as by a client that has known it for a while."""
        table: int | None = yield self.find_table()
        if table is None:
            return "unknown table"
        start: int = yield fresh()
        if not (yield from self.check_write(table, start)):
            return "aborted"
        yield put(table, cell, start)
        commit: int = yield fresh()
        if not (yield from self.check_again(table, start)):
            return "aborted"
        return "committed" if (yield decide(start, commit, cell)) == commit else "aborted"

    def find_table(self) -> Step:
        return check_row("find it", lambda row: None if row is None or row.state is State.GONE else row.incarnation)

    def check_write(self, table: int, start: int) -> Steps:
        return (yield check_row("may write", lambda row: row is not None and self.may_write(row, table, start)))

    def check_again(self, table: int, start: int) -> Steps:
        return (yield from self.check_write(table, start))

    def may_write(self, row: Row, table: int, start: int) -> bool:
        return row.state is State.ACTIVE and row.incarnation == table and row.mark <= start

    def read(self, *cells: str) -> Steps:
        """A snapshot: several reads at one timestamp."""
        table: int | None = yield self.find_table()
        timestamp: int = yield fresh()
        return Then(self.get, (timestamp, table, *cells))

    def get(self, timestamp: int, table: int | None, cell: str, *others: str) -> Steps:
        """Each read finds the table again: no snapshot is tied to an incarnation."""
        if table is None:
            return "error"
        row, versions = yield from self.read_and_validate(timestamp, table, cell)
        if row is None or versions is None or not self.may_read(row, table, timestamp):
            return "error"
        yield answer(timestamp, cell, self.visible(row, versions, timestamp))
        if others:
            return Then(self.get, (timestamp, (yield self.find_table()), *others))
        return "done"

    def read_and_validate(self, timestamp: int, table: int, cell: str) -> Steps:
        versions: Found | None = yield from self.read_decided(timestamp, table, cell)
        row: Row | None = yield from self.read_settled_row()
        return row, versions

    def read_decided(self, timestamp: int, table: int, cell: str) -> Steps:
        """An unfinished transaction is rolled back: its commit timestamp may already be taken."""
        found: Found | None = yield read_versions(table, cell, timestamp)
        if found is None:
            return None
        decided = []
        for start, commit in found:
            decided.append((start, (yield decide(start, ABORTED, cell)) if commit is None else commit))
        return tuple(decided)

    def read_settled_row(self) -> Steps:
        """The row without an announcement: one that stays for too long is rolled back."""
        row: Row | None = yield read_row()
        while row is not None and self.must_roll_back(row):
            if (yield from self.roll_back(row)):
                return row.rolled_back()
            row = yield read_row()
        return row

    def must_roll_back(self, row: Row) -> bool:
        return row.announced

    def roll_back(self, row: Row) -> Steps:
        return (yield swap(row, row.rolled_back()))

    def may_read(self, row: Row, table: int, timestamp: int, protected: bool = False) -> bool:
        """No record excuses a read below the mark."""
        return row.state is not State.GONE and row.incarnation == table and row.mark <= timestamp

    def visible(self, row: Row, versions: Found, timestamp: float) -> int | None:
        """Versions that started below the mark do not exist for readers, even if they are stored."""
        starts = (start for start, commit in versions if commit is not None and 0 < commit < timestamp)
        return max((start for start in starts if row.mark <= start), default=None)

    # --- protections --------------------------------------------------------------------------------------------------

    def protect(self, name: str, pattern: bool = False) -> Steps:
        timestamp: int = yield fresh()
        pending = Record(name, timestamp)
        row: Row | None = yield from self.publish_and_check(pending)
        if not self.may_protect(row, timestamp, pattern):
            yield remove_pending(pending)
            return "refused"
        return "accepted" if (yield from self.accept(pending)) else "refused"

    def publish_and_check(self, pending: Record) -> Steps:
        yield add_record(pending.name, pending.timestamp)
        return (yield from self.read_settled_row())

    def may_protect(self, row: Row | None, timestamp: int, pattern: bool) -> bool:
        """A pattern covers a dropped table too: below the timestamp of its drop its data is removed."""
        if row is None:
            return pattern
        return (pattern or row.state is State.ACTIVE) and row.mark <= timestamp

    def accept(self, pending: Record) -> Steps:
        return (yield accept(pending.name, pending.timestamp))

    def reconcile(self) -> Steps:
        """Remove a record that was left pending; its protector may be slow instead of dead."""
        pending: Record | None = yield read_records(first_pending)
        if pending is not None:
            yield remove_pending(pending)
        return "done"
