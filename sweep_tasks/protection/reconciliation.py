"""Reconciliation: compares the protection records with the state of their owners, releases and reports.

A change that was left unfinished is completed or undone. For the other records, the owner is asked. Only an owner that
reports its work as finished, or the record's own expiry, releases a record. The release is a compare-and-set on the
version that was judged, so a record that was renewed meanwhile stays. Everything else is kept, and reported if it needs
attention.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import NotFound, OutcomeUnknown, RecordChanged, StoreUnavailable, SweepflowError
from sweep_tasks.protection.catalog import Outcomes, ProtectionCatalog
from sweep_tasks.protection.ledger import ProtectionMetadata
from sweep_tasks.protection.metrics import count_call
from sweep_tasks.protection.owners import Answer, Owners
from sweep_tasks.protection.records import Record, State
from sweep_tasks.texts import duration

# ---------------------------------------------------------------------------------------------------------------------
# The report: the owner, age and outcome of each record, and what needs attention. Pure.
#
# Records are named by their id. The rows they cover and the details of their owners are left out.
# ---------------------------------------------------------------------------------------------------------------------

_NEXT_STEP = "check whether it is still needed, then run 'sweepflow release {name}'"


class RecordOutcome(StrEnum):
    """What a reconciliation decided about a record."""

    RELEASED = "released"
    KEPT = "kept"
    PENDING = "pending"
    """Another process is changing it, or an open transaction will decide about it."""
    DROPPED = "dropped"
    """Removed: its creation was never completed, or a transaction that has committed released it."""
    CHANGED = "changed"
    """It was due for release, but another process renewed, moved or released it at that moment."""
    GONE = "gone"
    UNKNOWN = "unknown"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    """The store or the catalog refused the change."""


REMAINING = frozenset(RecordOutcome) - {RecordOutcome.RELEASED, RecordOutcome.DROPPED}
_NEEDS_ATTENTION = {
    RecordOutcome.GONE: f"its owner is gone; {_NEXT_STEP}",
    RecordOutcome.UNKNOWN: "{why}; install the package that provides it, or run 'sweepflow release {name}'",
    RecordOutcome.UNANSWERED: "its owner did not answer: {why}",
    RecordOutcome.FAILED: "it could not be resolved or released: {why}",
}


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """The result for one record."""

    id: str
    owner: str
    age_s: int | None
    """None for a record of an older version, which did not store its creation time."""
    outcome: RecordOutcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """Something that needs attention."""

    about: str
    """A key that stays the same while the problem lasts."""
    finding: str
    do: str = ""
    record: str | None = None
    """The record to release, if that solves the problem."""

    @property
    def sentence(self) -> str:
        return f"{self.finding}; {self.do}" if self.do else self.finding

    def reported(self) -> ReportedProblem:
        return ReportedProblem(self.about, self.sentence)


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """A problem as it is stored and passed between tasks."""

    about: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one reconciliation."""

    as_of_ms: int
    dry_run: bool
    meta: ProtectionMetadata
    findings: tuple[RecordFinding, ...]
    recounted: bool = False
    broken_owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def oldest_age_s(self) -> int:
        return max((each.age_s or 0 for each in self.findings if each.outcome in REMAINING), default=0)

    def counts(self) -> dict[str, int]:
        """Return the number of records by outcome, including outcomes that did not occur."""
        found = [each.outcome for each in self.findings]
        return {outcome.value: found.count(outcome) for outcome in RecordOutcome}

    def document(self, settings: Settings) -> ReportDocument:
        """Return the report as it is stored and passed between tasks."""
        return ReportDocument(
            as_of_ms=self.as_of_ms,
            dry_run=self.dry_run,
            records=self.meta.records,
            spans=self.meta.spans,
            recounted=self.recounted,
            oldest_age_s=self.oldest_age_s,
            outcomes=self.counts(),
            findings=list(self.findings),
            problems=[each.reported() for each in problems(self, settings)],
        )


class ReportDocument(BaseModel, defer_build=True):
    """The report as JSON. Unknown keys are ignored: another version may have written them."""

    model_config = ConfigDict(frozen=True)

    as_of_ms: int
    dry_run: bool
    records: int
    spans: int
    recounted: bool
    oldest_age_s: int
    outcomes: dict[str, int]
    findings: list[RecordFinding]
    problems: list[ReportedProblem]


class ReportedClock(BaseModel, defer_build=True):
    """A host whose clock is wrong."""

    model_config = ConfigDict(frozen=True)

    code: str
    host: str
    by_ms: int
    since_ms: int
    about: str
    sentence: str


class TaskReport(ReportDocument):
    """The result of the Airflow task: the report, and the hosts whose clocks are wrong."""

    clocks: list[ReportedClock] = []


def problems(report: Report, settings: Settings) -> list[RecordProblem]:
    """Return what needs attention, one sentence each."""
    found = [problem for each in report.findings if (problem := _with_record(each, settings.protection_max_age_s))]
    found += [RecordProblem(f"owner {name}", why) for name, why in report.broken_owners.items()]
    limits = {"records": settings.max_protection_records, "spans": settings.max_protection_spans}
    return found + list(_near_limits(report.meta._asdict(), limits, settings.protection_limit_warning))


def _with_record(found: RecordFinding, max_age_s: int) -> RecordProblem | None:
    name = shlex.quote(found.id)
    if found.outcome in _NEEDS_ATTENTION:
        problem = _NEEDS_ATTENTION[found.outcome].format(name=name, why=found.why)
        return RecordProblem(f"record {found.id} {found.outcome}", f"{_described(found)}: {problem}")
    if max_age_s and found.outcome in REMAINING and (found.age_s is None or found.age_s > max_age_s):
        allowed = f"older than the allowed {duration(max_age_s)} (protection_max_age_s)"
        return RecordProblem(
            f"record {found.id} too_old",
            f"{_described(found)}: {allowed}",
            _NEXT_STEP.format(name=name),
            record=found.id,
        )
    return None


def _described(found: RecordFinding) -> str:
    return f"record {found.id!r} of owner type {found.owner}, {age(found.age_s)}"


def _near_limits(used: Mapping[str, int], limits: Mapping[str, int], warning: float) -> Iterable[RecordProblem]:
    for what, limit in limits.items():
        if limit and used[what] >= limit * warning:
            yield RecordProblem(
                f"limit {what}",
                f"protections: {used[what]} of at most {limit} {what} are in use",
                f"release unneeded ones, or raise the setting max_protection_{what}",
            )


def readable(document: ReportDocument) -> list[str]:
    """Return the report as lines of text: a summary, then one line for each record."""
    counts = [f"{number} {outcome}" for outcome, number in document.outcomes.items() if number]
    dry = " (dry run: nothing was changed)" if document.dry_run else ""
    corrected = "; the counts were wrong and were corrected" if document.recounted else ""
    summary = f"{document.records} records with {document.spans} spans: {', '.join(counts) or 'nothing to do'}"
    each = [
        f"{found.outcome}: {_described(found)}" + (f" ({found.why})" if found.why else "")
        for found in document.findings
    ]
    return [f"{summary}{corrected}{dry}", *each]


def age(seconds: int | None) -> str:
    return "of unknown age" if seconds is None else f"{duration(seconds)} old"


# ---------------------------------------------------------------------------------------------------------------------
# The reconciliation itself.
# ---------------------------------------------------------------------------------------------------------------------

A_MOVE_TAKES_S = 10
"""A record does not store when its move began. A move that is unchanged after this time was abandoned."""
_KEPT_FOR = {
    Answer.RUNNING: RecordOutcome.KEPT,
    Answer.GONE: RecordOutcome.GONE,
    Answer.UNKNOWN: RecordOutcome.UNKNOWN,
    Answer.UNANSWERED: RecordOutcome.UNANSWERED,
}


def expired(record: Record, now_ms: int) -> bool:
    return record.expires_ms is not None and record.expires_ms <= now_ms


def being_verified(record: Record, now_ms: int, pending_s: int) -> bool:
    """Return True if the process that creates this record is probably still verifying it. For a record of a
    transaction, the transaction decides."""
    young = abs(now_ms - record.created_ms) < pending_s * 1000
    return record.state is State.PENDING and record.transaction is None and young


def unfinished(record: Record) -> bool:
    return record.state is State.PENDING or record.held_ts is not None or record.released_by is not None


def age_s(record: Record, now_ms: int) -> int | None:
    return max(0, now_ms - record.created_ms) // 1000 if record.created_ms else None


class Reconciler:
    """Runs one reconciliation of all records."""

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
        """`outcomes` returns how transactions ended, and aborts those whose process is dead."""
        self._catalog = catalog
        self._owners = owners
        self._outcomes = outcomes
        self._settings = settings
        self._clock = clock or SystemClock()
        self._dry_run = dry_run

    def run(self) -> Report:
        """Reconcile every record and return the report. A dry run changes nothing."""
        with count_call("reconcile"):
            recounted = not self._dry_run and self._catalog.recount()
            findings = tuple(self._reconcile())
            return Report(
                self._clock.now_ms(),
                self._dry_run,
                self._catalog.metadata(),
                findings,
                recounted,
                {name: str(error) for name, error in self._owners.broken().items()},
            )

    def _reconcile(self) -> Iterator[RecordFinding]:
        """Reconcile each record. Those that are moving come last, and are checked again a little later."""
        records = self._catalog.records()
        moving = {record.id: record for record in records if record.held_ts is not None}
        yield from (self._reconcile_one(record) for record in records if record.id not in moving)
        if moving:
            self._clock.sleep(A_MOVE_TAKES_S)
            yield from self._reconcile_moving(moving, self._catalog.records())

    def _reconcile_moving(self, before: dict[str, Record], now: Iterable[Record]) -> Iterator[RecordFinding]:
        for record in now:
            if record.id in before:
                moving = record.held_ts is not None and record.version != before[record.id].version
                yield (
                    self._finding(record, RecordOutcome.PENDING, "it is being moved")
                    if moving
                    else self._reconcile_one(record)
                )

    def _reconcile_one(self, record: Record) -> RecordFinding:
        """Raise only if the store can't be reached: a problem with one record must not stop the others."""
        try:
            return self._settle(record) if unfinished(record) else self._check_owner(record)
        except (StoreUnavailable, OutcomeUnknown):
            raise
        except (RecordChanged, NotFound):
            return self._finding(record, RecordOutcome.CHANGED, "another process changed it meanwhile")
        except SweepflowError as error:
            return self._finding(record, RecordOutcome.FAILED, str(error))

    def _settle(self, record: Record) -> RecordFinding:
        if being_verified(record, self._clock.now_ms(), self._settings.protection_pending_s):
            return self._finding(record, RecordOutcome.PENDING, "it is being verified")
        if self._dry_run:
            return self._finding(record, RecordOutcome.PENDING, "it would be resolved")
        resolved = self._catalog.resolve(record, self._outcomes)
        if resolved is None:
            return self._finding(record, RecordOutcome.DROPPED)
        if resolved.state is State.PENDING:
            return self._finding(resolved, RecordOutcome.PENDING, "its transaction is still open")
        return self._check_owner(resolved)

    def _check_owner(self, record: Record) -> RecordFinding:
        if expired(record, self._clock.now_ms()):
            return self._release(record, "it has expired")
        asked = self._owners.ask(record)
        if asked.answer is Answer.FINISHED:
            return self._release(record, "its owner has finished")
        return self._finding(record, _KEPT_FOR[asked.answer], asked.why)

    def _release(self, record: Record, why: str) -> RecordFinding:
        if not self._dry_run:
            self._catalog.release(record.id, record.version)
        return self._finding(record, RecordOutcome.RELEASED, why)

    def _finding(self, record: Record, outcome: RecordOutcome, why: str = "") -> RecordFinding:
        return RecordFinding(record.id, record.meta_type, age_s(record, self._clock.now_ms()), outcome, why)
