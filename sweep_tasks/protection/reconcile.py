"""Bring the records in line with what became of their owners.

Each record that somebody left half done is finished or dropped; of the others the owner is asked. Only an owner that
says it is finished, or the record's own expiry, releases: that is a compare-and-set on the version that was judged, so
a record that was taken again meanwhile stays. Everything else is kept, and reported if a person has to look at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import NotFound, OutcomeUnknown, RecordChanged, StoreUnavailable, SweepflowError
from sweep_tasks.protection.catalog import Outcomes, ProtectionCatalog
from sweep_tasks.protection.metrics import counted
from sweep_tasks.protection.owners import Answer, Asked, Owners
from sweep_tasks.protection.records import Record, State
from sweep_tasks.protection.report import Finding, Outcome, Report

A_MOVE_TAKES_S = 10
"""Nothing tells since when a record moves. One that stands unchanged after this long was left behind."""
_KEPT_FOR = {
    Answer.RUNNING: Outcome.KEPT,
    Answer.GONE: Outcome.GONE,
    Answer.UNKNOWN: Outcome.UNKNOWN,
    Answer.UNANSWERED: Outcome.UNANSWERED,
}


def expired(record: Record, now_ms: int) -> bool:
    return record.expires_ms is not None and record.expires_ms <= now_ms


def left_alone(record: Record, now_ms: int, pending_s: int) -> bool:
    """Whether whoever takes this record is probably still at it. One made in a transaction is that one's to decide."""
    young = abs(now_ms - record.created_ms) < pending_s * 1000
    return record.state is State.PENDING and record.transaction is None and young


def unfinished(record: Record) -> bool:
    return record.state is State.PENDING or record.held_ts is not None or record.released_by is not None


def age_s(record: Record, now_ms: int) -> int | None:
    return max(0, now_ms - record.created_ms) // 1000 if record.created_ms else None


class Reconciler:
    def __init__(
        self,
        catalog: ProtectionCatalog,
        owners: Owners,
        outcomes: Outcomes,
        settings: Settings,
        clock: Clock | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        """`outcomes` tells how transactions ended, and ends those whose owner is dead."""
        self._catalog = catalog
        self._owners = owners
        self._outcomes = outcomes
        self._settings = settings
        self._clock = clock or SystemClock()
        self._dry_run = dry_run

    def run(self) -> Report:
        with counted("reconcile"):
            recounted = not self._dry_run and self._catalog.recount()
            findings = tuple(self._findings())
            return Report(
                self._clock.now_ms(),
                self._dry_run,
                self._catalog.metadata(),
                findings,
                recounted,
                {name: str(error) for name, error in self._owners.broken().items()},
            )

    def _findings(self) -> Iterator[Finding]:
        """Those on the move last: they are looked at again a little later."""
        records = self._catalog.records()
        moving = {record.id: record for record in records if record.held_ts is not None}
        yield from (self._found(record) for record in records if record.id not in moving)
        if moving:
            self._clock.sleep(A_MOVE_TAKES_S)
            yield from self._moved(moving, self._catalog.records())

    def _moved(self, before: dict[str, Record], now: Iterable[Record]) -> Iterator[Finding]:
        for record in now:
            if record.id in before:
                still_at_it = record.held_ts is not None and record.version != before[record.id].version
                yield self._finding(record, Outcome.PENDING, "it moves") if still_at_it else self._found(record)

    def _found(self, record: Record) -> Finding:
        """Never an error but that the store can't be reached: one record must not hold up the others."""
        try:
            return self._settled(record) if unfinished(record) else self._judged(record)
        except (StoreUnavailable, OutcomeUnknown):
            raise
        except (RecordChanged, NotFound):
            return self._finding(record, Outcome.CHANGED, "somebody changed it meanwhile")
        except SweepflowError as error:
            return self._finding(record, Outcome.FAILED, str(error))

    def _settled(self, record: Record) -> Finding:
        if left_alone(record, self._clock.now_ms(), self._settings.protection_pending_s):
            return self._finding(record, Outcome.PENDING, "it is being verified")
        if self._dry_run:
            return self._finding(record, Outcome.PENDING, "it would be settled")
        standing = self._catalog.settle(record, self._outcomes)
        if standing is None:
            return self._finding(record, Outcome.DROPPED)
        if standing.state is State.PENDING:
            return self._finding(standing, Outcome.PENDING, "its transaction is under way")
        return self._judged(standing)

    def _judged(self, record: Record) -> Finding:
        if expired(record, self._clock.now_ms()):
            return self._released(record, "it has expired")
        asked = self._owners.ask(record)
        if asked.answer is Answer.FINISHED:
            return self._released(record, "its owner has finished")
        return self._kept(record, asked)

    def _kept(self, record: Record, asked: Asked) -> Finding:
        return self._finding(record, _KEPT_FOR[asked.answer], asked.why)

    def _released(self, record: Record, why: str) -> Finding:
        if not self._dry_run:
            self._catalog.release(record.id, record.version)
        return self._finding(record, Outcome.RELEASED, why)

    def _finding(self, record: Record, outcome: Outcome, why: str = "") -> Finding:
        return Finding(record.id, record.meta_type, age_s(record, self._clock.now_ms()), outcome, why)
