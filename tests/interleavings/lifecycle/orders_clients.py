"""Reversed orders and omitted clauses in readers, writers and protectors: each breaks an invariant."""

# ruff: noqa: ARG002 (a clause does not use all that its variants need)
from __future__ import annotations

from tests.interleavings.lifecycle.checks import Violation
from tests.interleavings.lifecycle.orders import Wrong
from tests.interleavings.lifecycle.protocol import Steps
from tests.interleavings.lifecycle.scenarios import (
    ACTIVE,
    CREATE,
    DROP,
    FORCED_TRUNCATE,
    PROTECT,
    PROTECT_PATTERN,
    READ,
    READ_ONE,
    READ_TWICE,
    RECONCILE,
    SLOW_CREATE,
    TRUNCATE,
    WRITE,
    on,
)
from tests.interleavings.lifecycle.world import (
    Found,
    Record,
    Row,
    State,
    accept,
    add_record,
    decide,
    fresh,
    overwrite,
    put,
    read_row,
    read_versions,
)

# --- readers ----------------------------------------------------------------------------------------------------------


class RollBackWithoutCompare(Wrong):
    """The truncate has decided since the reader saw its announcement; its mark is undone while it deletes."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def roll_back(self, row: Row) -> Steps:
        return (yield overwrite(row.rolled_back()))


class AnswerByTheAnnouncedRow(Wrong):
    """The reader waits for the end of an announcement, or rolls it back, but judges by the row that it met first."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def read_and_validate(self, timestamp: int, table: int, cell: str) -> Steps:
        versions: Found | None = yield from self.read_decided(timestamp, table, cell)
        met: Row | None = yield read_row()
        yield from self.read_settled_row()
        return met, versions


class ValidationBeforeTheRead(Wrong):
    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def read_and_validate(self, timestamp: int, table: int, cell: str) -> Steps:
        row: Row | None = yield from self.read_settled_row()
        versions: Found | None = yield from self.read_decided(timestamp, table, cell)
        return row, versions


class UnfinishedWritePassedOver(Wrong):
    """Its commit timestamp was taken before the snapshot's, and is put afterwards."""

    scenario = on(ACTIVE, WRITE, READ_ONE)
    harm = Violation.WRONG_SNAPSHOT

    def read_decided(self, timestamp: int, table: int, cell: str) -> Steps:
        return (yield read_versions(table, cell, timestamp))


class ReadBelowTheMark(Wrong):
    scenario = on(ACTIVE, TRUNCATE, READ_TWICE)
    harm = Violation.WRONG_SNAPSHOT

    def may_read(self, row: Row, table: int, timestamp: int, protected: bool = False) -> bool:
        return row.state is not State.GONE and row.incarnation == table


class ProtectedReadBelowTheMark(Wrong):
    """The truncate was forced: the protected data is removed, and the reader gets no error."""

    scenario = on(ACTIVE, FORCED_TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def may_read(self, row: Row, table: int, timestamp: int, protected: bool = False) -> bool:
        return super().may_read(row, table, row.mark if protected else timestamp)


class VersionsBelowTheMarkExist(Wrong):
    """A page is not deleted yet, or was deleted while a replica was down."""

    scenario = on(ACTIVE, TRUNCATE)
    harm = Violation.WRONG_PRESENT

    def visible(self, row: Row, versions: Found, timestamp: float) -> int | None:
        return super().visible(row._replace(mark=0), versions, timestamp)


class VersionsJudgedByAnEarlierMark(Wrong):
    """The mark that hides versions was read before them, the one that is validated after them."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def read_and_validate(self, timestamp: int, table: int, cell: str) -> Steps:
        before: Row | None = yield read_row()
        row, versions = yield from super().read_and_validate(timestamp, table, cell)
        if before is None or row is None or row.mark > timestamp:
            return None, None
        return row._replace(mark=before.mark), versions


class ReaderIgnoresTheIncarnation(Wrong):
    """A client that found the table before it was dropped reads there, and validates by the row of the next one. The
    physical table is there again because a create that had lost the race for it was slow."""

    scenario = on(ACTIVE, SLOW_CREATE, DROP, CREATE, WRITE, READ_ONE)
    harm = Violation.WRONG_SNAPSHOT

    def may_read(self, row: Row, table: int, timestamp: int, protected: bool = False) -> bool:
        return super().may_read(row, row.incarnation, timestamp)


class DroppedTableReadAsEmpty(Wrong):
    scenario = on(ACTIVE, DROP, READ)
    harm = Violation.WRONG_SNAPSHOT

    def get(self, timestamp: int, table: int | None, cell: str, *others: str) -> Steps:
        return (yield from super().get(timestamp, table or 0, cell, *others))

    def read_and_validate(self, timestamp: int, table: int, cell: str) -> Steps:
        row, versions = yield from super().read_and_validate(timestamp, table, cell)
        return row, versions or ()

    def may_read(self, row: Row, table: int, timestamp: int, protected: bool = False) -> bool:
        return row.state is State.GONE or super().may_read(row, table, timestamp)


# --- writers ----------------------------------------------------------------------------------------------------------


class WriterChecksOnce(Wrong):
    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.LOST_COMMIT

    def check_again(self, table: int, start: int) -> Steps:
        yield from ()
        return True


class WriterChecksBeforeItsCommitTimestamp(Wrong):
    """The truncate takes its timestamp between the second check and the commit timestamp."""

    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.LOST_COMMIT

    def write(self, cell: str) -> Steps:
        table: int | None = yield self.find_table()
        if table is None:
            return "unknown table"
        start: int = yield fresh()
        if not (yield from self.check_write(table, start)):
            return "aborted"
        yield put(table, cell, start)
        if not (yield from self.check_write(table, start)):
            return "aborted"
        commit: int = yield fresh()
        return "committed" if (yield decide(start, commit, cell)) == commit else "aborted"


class WriterIgnoresAnnouncements(Wrong):
    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.LOST_COMMIT

    def may_write(self, row: Row, table: int, start: int) -> bool:
        return row.state is not State.GONE and row.incarnation == table and row.mark <= start


class WriterIgnoresTheMark(Wrong):
    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.LOST_COMMIT

    def may_write(self, row: Row, table: int, start: int) -> bool:
        return row.state is State.ACTIVE and row.incarnation == table


class WriterIgnoresTheIncarnation(Wrong):
    """The value is written to the dropped table, but the commit counts for the new table."""

    scenario = on(ACTIVE, DROP, CREATE, WRITE)
    harm = Violation.WRONG_PRESENT

    def may_write(self, row: Row, table: int, start: int) -> bool:
        return super().may_write(row, row.incarnation, start)


# --- protectors -------------------------------------------------------------------------------------------------------


class RowBeforeTheRecord(Wrong):
    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def publish_and_check(self, pending: Record) -> Steps:
        row: Row | None = yield from self.read_settled_row()
        yield add_record(pending.name, pending.timestamp)
        return row


class ProtectorIgnoresAnnouncements(Wrong):
    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def publish_and_check(self, pending: Record) -> Steps:
        yield add_record(pending.name, pending.timestamp)
        row: Row | None = yield read_row()
        return row.rolled_back() if row is not None and row.announced else row


class ProtectorIgnoresTheMark(Wrong):
    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def may_protect(self, row: Row | None, timestamp: int, pattern: bool) -> bool:
        return row is not None and row.state is State.ACTIVE


class PatternPassesOverDroppedTables(Wrong):
    """Accepted at a timestamp at which the table was there, after it was dropped."""

    scenario = on(ACTIVE, DROP, PROTECT_PATTERN)
    harm = Violation.BROKEN_PROTECTION

    def may_protect(self, row: Row | None, timestamp: int, pattern: bool) -> bool:
        return row is None or row.state is State.GONE or super().may_protect(row, timestamp, pattern)


class AcceptedWithoutCompare(Wrong):
    """The record had been removed as one left behind, and the truncate did not see it."""

    scenario = on(ACTIVE, TRUNCATE, PROTECT, RECONCILE)
    harm = Violation.BROKEN_PROTECTION

    def accept(self, pending: Record) -> Steps:
        return (yield accept(pending.name, pending.timestamp, compare=False))
