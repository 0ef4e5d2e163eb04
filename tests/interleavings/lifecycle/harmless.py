"""Reversals that break no invariant, with the reason for each. They are not counted among the orders that are found."""

# ruff: noqa: ARG002 (a clause does not use all that its variants need)
from __future__ import annotations

from typing import ClassVar

from tests.interleavings.lifecycle.protocol import Claim, Protocol, Steps
from tests.interleavings.lifecycle.scenarios import (
    ABSENT,
    ACTIVE,
    ALTER,
    ANOTHER_CREATE,
    ANOTHER_DROP,
    ANOTHER_TRUNCATE,
    CREATE,
    DROP,
    PROTECT,
    PROTECT_PATTERN,
    READ,
    TRUNCATE,
    WRITE,
    Scenario,
    on,
)
from tests.interleavings.lifecycle.world import Event, Row, State, alter, create_physical, fresh, read_row, swap


class Harmless(Protocol):
    """One clause replaced, and nothing lost by it in this model."""

    scenario: ClassVar[Scenario]
    """The processes that it concerns most."""


class ProtectionsBeforeTheTimestamp(Harmless):
    """Both are still after the announcement. A protector whose record came too late to be read meets the announcement
    or its outcome, and neither depends on when the timestamp was taken."""

    scenario = on(ACTIVE, TRUNCATE, ANOTHER_TRUNCATE, PROTECT)

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        covered: bool = yield from self.covered()
        return Claim(announced, (yield fresh()), covered)


class TakenOverUnderTheOldOwner(Harmless):
    """Two attempts then decide from one row, but the row leaves that value once, so one of them fails; both have taken
    their timestamp and read the protections after the announcement. An own id makes the first owner stop sooner."""

    scenario = on(ACTIVE, TRUNCATE, ANOTHER_DROP, PROTECT)

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row if row.announced else row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        timestamp: int = yield fresh()
        return Claim(announced, timestamp, (yield from self.covered()))


class PagesUpToTheTimestamp(Harmless):
    """Deleting at F too, and not only below it: F was handed out once, to the truncate, and is no writer's start."""

    scenario = on(ACTIVE, TRUNCATE, WRITE, READ)

    def delete(self, incarnation: int, below: int) -> Steps:
        return (yield from super().delete(incarnation, below + 1))


class LostAnswersFoundInTheRow(Harmless):
    """An attempt that does not learn whether its compare-and-set took place reads the row. Its announcement is known by
    its owner. A truncate is decided where the mark is at or above F, its own or a later one: deleting below F is right
    either way. A drop is decided if the table is dropped or was created again."""

    scenario = on(ACTIVE, TRUNCATE, DROP, PROTECT)

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row._replace(state=kind, owner=owner)
        yield swap(row, announced)
        if (yield read_row()) != announced:
            return None
        timestamp: int = yield fresh()
        return Claim(announced, timestamp, (yield from self.covered()))

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        yield from super().decide(claim, kind, forced)
        row: Row | None = yield read_row()
        if row is None:
            return False
        if row.incarnation > claim.announced.incarnation:
            return True
        return row.state is State.GONE if kind is State.DROPPING else row.mark >= claim.timestamp


class WriterChecksAtTheEndOnly(Harmless):
    """The second check decides alone. The first one is for the sweep, which is not part of this model."""

    scenario = on(ACTIVE, DROP, CREATE, WRITE, READ)

    def check_write(self, table: int, start: int) -> Steps:
        yield from ()
        return True

    def check_again(self, table: int, start: int) -> Steps:
        return (yield from super().check_write(table, start))


class WriterRollsBackAnnouncements(Harmless):
    """A writer that waits and rolls back, as readers and protectors do, instead of aborting. With it, a table that is
    only written also recovers from an attempt that died."""

    scenario = on(ACTIVE, TRUNCATE, WRITE, READ)

    def check_write(self, table: int, start: int) -> Steps:
        row: Row | None = yield from self.read_settled_row()
        return row is not None and self.may_write(row, table, start)


class AlterOfAnAnnouncedTable(Harmless):
    """The change leaves the announcement in place, and the owner's compare-and-set of the whole row fails, as it does
    after a take-over. The change would be lost if the owner compared its id alone."""

    scenario = on(ACTIVE, TRUNCATE, DROP, ALTER)

    def alter(self) -> Steps:
        row: Row | None = yield read_row()
        if row is None or row.state is State.GONE:
            return "refused"
        return "done" if (yield alter(row, row._replace(strategy="thorough"))) else "lost"


class MarkOfTheFirstTableTakenEarly(Harmless):
    """No snapshot has seen anything of a table that never existed. Only a create after a drop needs a mark taken
    after the row was read."""

    scenario = on(ABSENT, CREATE, ANOTHER_CREATE, PROTECT_PATTERN, READ)

    def create(self) -> Steps:
        mark: int = yield fresh()
        row: Row | None = yield read_row()
        if row is not None:
            return (yield from super().create())
        yield create_physical(1)
        return "done" if (yield swap(None, Row(State.ACTIVE, "", mark, 1), Event(mark))) else "lost"
