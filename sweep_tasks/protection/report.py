"""What a reconciliation found: of each record its owner, age and verdict, and what a person has to decide. Pure.

Records are named by their id. The rows they cover and the details of their owners stay where they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from sweep_tasks.config import Settings
from sweep_tasks.durations import words
from sweep_tasks.protection.ledger import Meta

_WAY_OUT = "see whether it is still needed, then 'sweepflow release {name}'"


class Outcome(StrEnum):
    RELEASED = "released"
    KEPT = "kept"
    PENDING = "pending"
    """Somebody is at work on it, or a transaction has yet to decide about it."""
    DROPPED = "dropped"
    """Left behind by somebody who did not finish taking it, or released by a transaction that has committed."""
    CHANGED = "changed"
    """It was to be released, and somebody took, moved or released it at that moment."""
    GONE = "gone"
    UNKNOWN = "unknown"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    """The store or the catalog refused what was to be done."""


STANDING = frozenset(Outcome) - {Outcome.RELEASED, Outcome.DROPPED}
_FOR_A_PERSON = {
    Outcome.GONE: f"its owner is gone; {_WAY_OUT}",
    Outcome.UNKNOWN: "{why}; install the package that does, or release it with 'sweepflow release {name}'",
    Outcome.UNANSWERED: "its owner could not be asked: {why}",
    Outcome.FAILED: "it could not be settled or released: {why}",
}


class Finding(NamedTuple):
    id: str
    owner: str
    age_s: int | None
    """None for a record of a time when that was not noted."""
    outcome: Outcome
    why: str = ""


class Problem(NamedTuple):
    about: str
    """The same for as long as the problem is."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    as_of_ms: int
    dry_run: bool
    meta: Meta
    findings: tuple[Finding, ...]
    recounted: bool = False
    broken_owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def oldest_age_s(self) -> int:
        return max((each.age_s or 0 for each in self.findings if each.outcome in STANDING), default=0)

    def counts(self) -> dict[str, int]:
        """Of every outcome, those that did not occur too."""
        found = [each.outcome for each in self.findings]
        return {outcome.value: found.count(outcome) for outcome in Outcome}

    def document(self, settings: Settings) -> dict[str, Any]:
        """As JSON."""
        return {
            "as_of_ms": self.as_of_ms,
            "dry_run": self.dry_run,
            "records": self.meta.records,
            "spans": self.meta.spans,
            "recounted": self.recounted,
            "oldest_age_s": self.oldest_age_s,
            "outcomes": self.counts(),
            "findings": [each._asdict() | {"outcome": each.outcome.value} for each in self.findings],
            "problems": [each._asdict() for each in problems(self, settings)],
        }


def problems(report: Report, settings: Settings) -> list[Problem]:
    """What a person has to decide or mend, a sentence each."""
    found = [problem for each in report.findings if (problem := _with_record(each, settings.protection_max_age_s))]
    found += [Problem(f"owner {name}", why) for name, why in report.broken_owners.items()]
    limits = {"records": settings.max_protection_records, "spans": settings.max_protection_spans}
    return found + list(_near_limits(report.meta._asdict(), limits, settings.protection_limit_warning))


def _with_record(found: Finding, max_age_s: int) -> Problem | None:
    name = shlex.quote(found.id)
    if found.outcome in _FOR_A_PERSON:
        said = _FOR_A_PERSON[found.outcome].format(name=name, why=found.why)
        return Problem(f"record {found.id} {found.outcome}", f"{_who(found)}: {said}")
    if max_age_s and found.outcome in STANDING and (found.age_s is None or found.age_s > max_age_s):
        allowed = f"allowed are {words(max_age_s)} (protection_max_age_s)"
        return Problem(f"record {found.id} too_old", f"{_who(found)}: {allowed}; {_WAY_OUT.format(name=name)}")
    return None


def _who(found: Finding) -> str:
    return f"record {found.id!r} of owner type {found.owner}, {age(found.age_s)}"


def _near_limits(used: Mapping[str, int], limits: Mapping[str, int], warning: float) -> Iterable[Problem]:
    for what, limit in limits.items():
        if limit and used[what] >= limit * warning:
            yield Problem(
                f"limit {what}",
                f"protections: {used[what]} of at most {limit} {what} are in use; release what is no longer needed, "
                f"or raise the setting max_protection_{what}",
            )


def readable(document: Mapping[str, Any]) -> list[str]:
    """The document of a report for people, a line each: the whole, then every record."""
    counts = [f"{number} {outcome}" for outcome, number in document["outcomes"].items() if number]
    dry = " (a dry run: nothing was changed)" if document["dry_run"] else ""
    mended = "; the counts were wrong and are mended" if document["recounted"] else ""
    whole = f"{document['records']} records with {document['spans']} spans: {', '.join(counts) or 'nothing to do'}"
    each = [
        f"{found['outcome']}: record {found['id']!r} of owner type {found['owner']}, {age(found['age_s'])}"
        + (f" ({found['why']})" if found["why"] else "")
        for found in document["findings"]
    ]
    return [f"{whole}{mended}{dry}", *each]


def age(seconds: int | None) -> str:
    return "of unknown age" if seconds is None else f"{words(seconds)} old"
