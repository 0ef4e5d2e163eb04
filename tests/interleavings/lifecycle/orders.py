"""Reversed orders and omitted clauses in truncate and drop: each breaks an invariant.

Every class replaces one clause of the protocol and names the processes that find the violation. Reversals without one
are in `harmless.py`.
"""

# ruff: noqa: ARG002 (a clause does not use all that its variants need)
from __future__ import annotations

from typing import ClassVar

from tests.interleavings.lifecycle.checks import Violation
from tests.interleavings.lifecycle.protocol import Claim, Protocol, Steps, Then
from tests.interleavings.lifecycle.scenarios import (
    ACTIVE,
    ALTER,
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
from tests.interleavings.lifecycle.world import (
    Event,
    Row,
    State,
    delete,
    drop_physical,
    fresh,
    overwrite,
    read_records,
    read_row,
    swap,
)


class Wrong(Protocol):
    scenario: ClassVar[Scenario]
    harm: ClassVar[Violation]


# --- truncate and drop ------------------------------------------------------------------------------------------------


class TimestampBeforeTheAnnouncement(Wrong):
    """A snapshot taken in between reads one cell before the truncate and the other one after it."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_SNAPSHOT

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        timestamp: int = yield fresh()
        announced = row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        return Claim(announced, timestamp, (yield from self.covered()))


class TimestampBeforeTheAnnouncementWithAWriter(TimestampBeforeTheAnnouncement):
    """A writer that started before it and commits after it passes both checks, and is emptied away."""

    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.LOST_COMMIT


class AnnouncementWithoutCompare(Wrong):
    """A change of strategy since the row was read is undone by the announcement."""

    scenario = on(ACTIVE, TRUNCATE, ALTER)
    harm = Violation.LOST_CHANGE

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row._replace(state=kind, owner=owner)
        yield overwrite(announced)
        timestamp: int = yield fresh()
        return Claim(announced, timestamp, (yield from self.covered()))


class ProtectionsBeforeTheAnnouncement(Wrong):
    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        covered: bool = yield from self.covered()
        announced = row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        return Claim(announced, (yield fresh()), covered)


class PendingRecordsDoNotCount(Wrong):
    """A protector that has read the row accepts after the truncate has read its record."""

    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def covered(self) -> Steps:
        return (yield read_records(lambda records: any(record.accepted for record in records)))


class MarkBeforeTheProtections(Wrong):
    """A reader that rolls the announcement back does not know the mark that was there before."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_PRESENT

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        announced = row._replace(state=kind, owner=owner)
        if not (yield swap(row, announced)):
            return None
        timestamp: int = yield fresh()
        marked = announced._replace(mark=timestamp)
        if not (yield swap(announced, marked)):
            return None
        return Claim(marked, timestamp, (yield from self.covered()))


class PagesBeforeTheDecision(Wrong):
    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.WRONG_PRESENT

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        yield from self.delete(claim.announced.incarnation, claim.timestamp)
        return (yield from super().decide(claim, kind, forced))


class DropBeforeTheDecision(Wrong):
    scenario = on(ACTIVE, DROP, READ)
    harm = Violation.WRONG_PRESENT

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        yield from self.finish(claim.announced.incarnation)
        return (yield from super().decide(claim, kind, forced))


class DecisionWithoutCompare(Wrong):
    """A protection was accepted after the announcement had been rolled back."""

    scenario = on(ACTIVE, TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        event = Event(claim.timestamp, kind is State.DROPPING, forced)
        return (yield overwrite(self.decided(claim, kind), event))


class RefusalWithoutCompare(Wrong):
    """Another attempt has taken over and decided: its mark is undone, while it deletes."""

    scenario = on(ACTIVE, TRUNCATE, ANOTHER_TRUNCATE, PROTECT)
    harm = Violation.WRONG_PRESENT

    def refuse(self, claim: Claim) -> Steps:
        yield overwrite(claim.announced.rolled_back())


class OneOwnerForAllAttempts(Wrong):
    """The second announcement equals the first, which was rolled back for a protection."""

    scenario = on(ACTIVE, TRUNCATE, ANOTHER_TRUNCATE, PROTECT)
    harm = Violation.BROKEN_PROTECTION

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        return (yield from super().claim(row, kind, "the same"))


class LostDecisionCarriedOut(Wrong):
    """An attempt that was rolled back deletes nevertheless."""

    scenario = on(ACTIVE, TRUNCATE, READ)
    harm = Violation.WRONG_PRESENT

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        yield from super().decide(claim, kind, forced)
        return True


class LostAnswerOfADropFoundInTheMark(Wrong):
    """A drop that does not know whether it has decided takes the mark of a later truncate for its own."""

    scenario = on(ACTIVE, DROP, TRUNCATE)
    harm = Violation.WRONG_PRESENT

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        yield from super().decide(claim, kind, forced)
        row: Row | None = yield read_row()
        return row is not None and row.mark >= claim.timestamp


class AnnouncementNeverTakenOver(Wrong):
    """An attempt that died leaves the table in a state in which no other can start."""

    scenario = on(ACTIVE, TRUNCATE)
    harm = Violation.DEAD_END

    def claim(self, row: Row, kind: State, owner: str) -> Steps:
        return None if row.announced else (yield from super().claim(row, kind, owner))


class PagesWithoutABound(Wrong):
    """Rows written since the decision are deleted as well."""

    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.WRONG_PRESENT

    def delete(self, incarnation: int, below: int) -> Steps:
        yield delete(incarnation, "a", None)
        return "done"


class PagesBelowANewerTimestamp(Wrong):
    """The bound is taken when the pages are deleted, and not the one that was decided."""

    scenario = on(ACTIVE, TRUNCATE, WRITE)
    harm = Violation.WRONG_PRESENT

    def delete(self, incarnation: int, below: int) -> Steps:
        return Then(super().delete, (incarnation, (yield fresh())))


class RowRemovedByADrop(Wrong):
    """The next table of this name is the first again, and a second, slower drop removes it."""

    scenario = on(ACTIVE, DROP, CREATE, WRITE)
    harm = Violation.WRONG_PRESENT

    def decide(self, claim: Claim, kind: State, forced: bool) -> Steps:
        if kind is State.TRUNCATING:
            return (yield from super().decide(claim, kind, forced))
        return (yield swap(claim.announced, None, Event(claim.timestamp, True, forced)))


class DropKeepsTheOldMark(Wrong):
    """A pattern is accepted at a timestamp at which the table still existed; its data is removed."""

    scenario = on(ACTIVE, DROP, PROTECT_PATTERN)
    harm = Violation.BROKEN_PROTECTION

    def decided(self, claim: Claim, kind: State) -> Row:
        decided = super().decided(claim, kind)
        return decided._replace(mark=claim.announced.mark) if kind is State.DROPPING else decided


class GoneRolledBack(Wrong):
    """A reader that treats `gone` as one more announcement restores a table whose data is being removed."""

    scenario = on(ACTIVE, DROP, READ)
    harm = Violation.WRONG_SNAPSHOT

    def must_roll_back(self, row: Row) -> bool:
        return row.state is not State.ACTIVE


class GoneAnnouncedAgain(Wrong):
    """A second drop announces over one that has decided; rolled back, the table is there without its data."""

    scenario = on(ACTIVE, DROP, ANOTHER_DROP, PROTECT_PATTERN)
    harm = Violation.WRONG_PRESENT

    def is_final(self, row: Row) -> bool:
        return False


class DropOfThePresentIncarnation(Wrong):
    """The physical table that is dropped is the one that the row names by then."""

    scenario = on(ACTIVE, DROP, CREATE)
    harm = Violation.WRONG_PRESENT

    def finish(self, incarnation: int) -> Steps:
        row: Row | None = yield read_row()
        yield drop_physical(row.incarnation if row else incarnation)
        return "done"
