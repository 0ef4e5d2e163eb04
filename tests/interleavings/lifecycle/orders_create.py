"""Reversed orders and omitted clauses in create and alter: each breaks an invariant."""

from __future__ import annotations

from tests.interleavings.lifecycle.checks import Violation
from tests.interleavings.lifecycle.orders import Wrong
from tests.interleavings.lifecycle.protocol import Steps
from tests.interleavings.lifecycle.scenarios import (
    ACTIVE,
    ALTER,
    ANOTHER_CREATE,
    CREATE,
    DROP,
    GONE,
    READ,
    TRUNCATE,
    WRITE,
    on,
)
from tests.interleavings.lifecycle.world import Event, Row, State, alter, create_physical, fresh, read_row, swap


class CreatedWithTheOldMark(Wrong):
    """A snapshot from before the drop reads the new table."""

    scenario = on(ACTIVE, DROP, CREATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is not State.GONE:
            return "exists"
        yield from self.finish(row.incarnation)
        created = Row(State.ACTIVE, "", 1, row.incarnation + 1)
        yield create_physical(created.incarnation)
        return "done" if (yield swap(row, created, Event((yield fresh())))) else "lost"


class MarkOfANewTableTakenFirst(Wrong):
    """Between the mark and the row a snapshot read the old table, and the old table was dropped."""

    scenario = on(ACTIVE, DROP, CREATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def create(self) -> Steps:
        mark: int = yield fresh()
        row: Row | None = yield read_row()
        if row is None or row.state is not State.GONE:
            return "exists"
        yield from self.finish(row.incarnation)
        created = Row(State.ACTIVE, "", mark, row.incarnation + 1)
        yield create_physical(created.incarnation)
        return "done" if (yield swap(row, created, Event(mark))) else "lost"


class PhysicalNameUsedAgain(Wrong):
    """A drop that was slow removes the table that came after."""

    scenario = on(ACTIVE, DROP, CREATE, WRITE)
    harm = Violation.WRONG_PRESENT

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is not State.GONE:
            return "exists"
        yield from self.finish(row.incarnation)
        mark: int = yield fresh()
        yield create_physical(row.incarnation)
        return "done" if (yield swap(row, row._replace(state=State.ACTIVE, mark=mark), Event(mark))) else "lost"


class AnnouncedDropTakenForDone(Wrong):
    """The physical table is removed while its drop is only announced, and may still be refused."""

    scenario = on(ACTIVE, DROP, CREATE)
    harm = Violation.WRONG_PRESENT

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state not in (State.DROPPING, State.GONE):
            return "exists"
        yield from self.finish(row.incarnation)
        mark: int = yield fresh()
        created = Row(State.ACTIVE, "", mark, row.incarnation + 1)
        yield create_physical(created.incarnation)
        return "done" if (yield swap(row, created, Event(mark))) else "lost"


class RowBeforeThePhysicalTable(Wrong):
    """A crash in between leaves a table that exists and cannot be used."""

    scenario = on(GONE, CREATE)
    harm = Violation.WRONG_PRESENT

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is not State.GONE:
            return "exists"
        yield from self.finish(row.incarnation)
        mark: int = yield fresh()
        created = Row(State.ACTIVE, "", mark, row.incarnation + 1)
        if not (yield swap(row, created, Event(mark))):
            return "lost"
        yield create_physical(created.incarnation)
        return "done"


class CreateThatLosesCleansUp(Wrong):
    """The physical table it removes is the one that the other create has just put into service."""

    scenario = on(GONE, CREATE, ANOTHER_CREATE)
    harm = Violation.WRONG_PRESENT

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        end: str = yield from super().create()
        if end == "lost":
            yield from self.finish(row.incarnation + 1 if row else 1)
        return end


class CreateLeavesThePredecessor(Wrong):
    """Only the row recorded that the physical table of a dropped one still exists."""

    scenario = on(ACTIVE, DROP, CREATE)
    harm = Violation.LITTER

    def create(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is not State.GONE:
            return "exists"
        mark: int = yield fresh()
        created = Row(State.ACTIVE, "", mark, row.incarnation + 1)
        yield create_physical(created.incarnation)
        return "done" if (yield swap(row, created, Event(mark))) else "lost"


class AlterWithoutCompare(Wrong):
    """The mark from before the truncate is restored."""

    scenario = on(ACTIVE, TRUNCATE, ALTER)
    harm = Violation.WRONG_PRESENT

    def alter(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is not State.ACTIVE:
            return "refused"
        yield alter(row, row._replace(strategy="thorough"), compare=False)
        return "done"


class AlterOfADroppedTable(Wrong):
    """A change in any state revives a table without its data."""

    scenario = on(ACTIVE, DROP, ALTER)
    harm = Violation.WRONG_PRESENT

    def alter(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None:
            return "refused"
        altered = row._replace(state=State.ACTIVE, owner="", strategy="thorough")
        return "done" if (yield alter(row, altered)) else "lost"
