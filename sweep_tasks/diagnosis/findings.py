"""What the facts that the doctor found mean: findings, each with the command to run. Pure.

A finding either asks for an action or is only information. A finding that prevents the examination itself stops it. An
action that would be refused now, because of a pause or because it is too early, is not asked for: the finding says what
has to happen first.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.clock import from_ms
from sweep_tasks.diagnosis.state import Facts, LimitedCount, TableFacts, TableSample
from sweep_tasks.errors import NotInitialised, OtherSchema, SweepflowError
from sweep_tasks.model import ScanDue, ScanReason, SweepStrategy
from sweep_tasks.queue.progress import NEVER_SWEPT
from sweep_tasks.tables.pauses import EVERYTHING
from sweep_tasks.texts import duration

_LONG_OPEN_S = 3_600
_WORTH_A_SCAN = 0.01
_MANY_VERSIONS = 2.0
_MOST_NAMED = 5


class Level(StrEnum):
    STOP = "stop"
    DO = "do"
    NOTE = "note"


class Finding(NamedTuple):
    level: Level
    about: str
    code: str
    sentence: str
    run: str | None = None
    waits_for: str | None = None
    """Why the command would be refused now, or would change nothing."""


def unreachable(error: SweepflowError, where: str) -> Finding:
    """Return the finding for a store that could not be opened or stopped answering."""
    helps = isinstance(error, NotInitialised) or (isinstance(error, OtherSchema) and error.is_older)
    init = f"sweepflow init --store '{where}'" if helps else None
    return Finding(Level.STOP, "store", error.code, str(error).removeprefix("store: "), init)


def findings(facts: Facts) -> list[Finding]:
    """Return all findings, those that ask for an action first."""
    of_sweeps = [*_time_findings(facts), *_shard_findings(facts)]
    if facts.is_paused(EVERYTHING):
        of_sweeps = [_when_resumed(each) for each in of_sweeps]
    found = [
        *_pause_findings(facts),
        *_clock_findings(facts),
        *of_sweeps,
        *_blocking_findings(facts),
        *_table_findings(facts),
    ]
    return sorted(found, key=lambda finding: list(Level).index(finding.level))


def _postponed(finding: Finding, when: str, waits_for: str) -> Finding:
    """Turn a finding into information: its command would be refused now."""
    if not finding.run:
        return finding
    return finding._replace(level=Level.NOTE, run=f"{when}: {finding.run}", waits_for=waits_for)


def _when_resumed(finding: Finding) -> Finding:
    return _postponed(finding, "when it is resumed", "paused")


def _pause_findings(facts: Facts) -> Iterator[Finding]:
    if not facts.pauses:
        return
    named = [f"{each.what} by {each.by} since {from_ms(each.since_ms)}: {each.reason}" for each in facts.pauses]
    more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    what = [each.what for each in facts.pauses[:_MOST_NAMED]]
    resume = (f"sweepflow resume {'--everything' if each == EVERYTHING else each}" for each in what)
    yield Finding(
        Level.DO, "pauses", "paused", f"paused: {'; '.join(named[:_MOST_NAMED])}{more}",
        f"{', '.join(resume)}, when the reason is gone; sweepflow pause --list shows all",
    )  # fmt: skip


def _clock_findings(facts: Facts) -> Iterator[Finding]:
    for each in facts.clocks[:_MOST_NAMED]:
        yield Finding(Level.DO, each.about, each.code.value, each.sentence, each.do)


def _time_findings(facts: Facts) -> Iterator[Finding]:
    if not facts.tables:
        create = "sweepflow tables create NAMESPACE.NAME"
        yield Finding(Level.NOTE, "tables", "no_tables", "there are no tables yet", create)
    elif not facts.clock_known:
        yield Finding(
            Level.DO,
            "clock",
            "clock_unknown",
            "the store has no clock samples yet, so the age of its data is not known; the first sweep records one, and "
            "conservative tables can be swept one retention later",
            "sweepflow sweep",
        )


def _shard_findings(facts: Facts) -> Iterator[Finding]:
    never = [each for each in facts.shards if each.progress == NEVER_SWEPT]
    if facts.queued.number and len(never) == len(facts.shards):
        yield Finding(
            Level.DO,
            "queue",
            "never_swept",
            f"{_number(facts.queued)} entries are queued and no shard was ever swept",
            "sweepflow sweep --dry-run, then sweepflow sweep; to sweep every hour: the DAG targeted_sweep",
        )
        return
    behind = [each for each in facts.shards if each.lag_s is not None and each.lag_s > each.objective_s]
    if behind and facts.tables:
        worst = max(behind, key=lambda each: each.lag_s or 0)
        yield Finding(
            Level.DO,
            "lag",
            "behind",
            f"{len(behind)} of {len(facts.shards)} shards are behind their objective; {worst.strategy} shard "
            f"{worst.shard} has the greatest lag: {duration(worst.lag_s or 0)}",
            "sweepflow sweep, and check that the DAG targeted_sweep runs every hour",
        )


def _blocking_findings(facts: Facts) -> Iterator[Finding]:
    oldest = facts.oldest_transaction
    if oldest and (oldest.age_s or 0) >= _LONG_OPEN_S:
        yield Finding(
            Level.DO,
            "transactions",
            "open_transaction",
            f"a transaction of {oldest.owner} has been open for {duration(oldest.age_s or 0)}, and sweeps stop at "
            f"timestamp {oldest.lease}",
            "end that process; its lease then expires",
        )
    record = facts.oldest_protection
    if record:
        old = facts.protection_max_age_s and (record.age_s or 0) > facts.protection_max_age_s
        yield Finding(
            Level.DO if old else Level.NOTE,
            "protections",
            "too_old" if old else "protected",
            f"there are {facts.protections}, the oldest at {record.ts} (record {record.id} of type {record.owner}) for "
            f"{duration(record.age_s or 0)}",
            "sweepflow protections shows what each holds back; sweepflow release ID releases one",
        )
    if facts.parked:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(facts.parked.items()))
        yield Finding(
            Level.NOTE, "parked", "parked",
            f"parked entries by reason: {'at least ' if facts.parked_at_least else ''}{reasons}; "
            "sweeps process them when the reason is gone",
        )  # fmt: skip
    if facts.quarantined.number:
        yield Finding(
            Level.DO, "quarantine", "quarantined",
            f"{_number(facts.quarantined)} queue entries could not be read and are quarantined",
            "sweepflow queue quarantine list, then retry",
        )  # fmt: skip


def _table_findings(facts: Facts) -> Iterator[Finding]:
    for each in facts.tables:
        if each.strategy is SweepStrategy.NOTHING:
            yield from _unswept_table(each)
        elif each.scan_running:
            yield Finding(Level.NOTE, str(each.table), "scan_running", f"is being scanned by {each.scan_running}",
                          f"sweepflow legacy-sweep {each.table} --status")  # fmt: skip
        elif each.scan_due:
            yield _unless_paused(facts, each, _due_scan(each, each.scan_due))
    yield from _first_scans(facts)
    unseen = [str(each.table) for each in facts.tables if each.sample is None]
    if unseen:
        names = ", ".join(unseen[:3]) + (f" and {len(unseen) - 3} more" if len(unseen) > 3 else "")
        yield Finding(
            Level.NOTE,
            "sample",
            "not_sampled",
            f"there was no time to sample {names}",
            "sweepflow doctor --sample-seconds 300",
        )


def _unswept_table(each: TableFacts) -> Iterator[Finding]:
    if each.sample and each.sample.versions_per_cell >= _MANY_VERSIONS:
        yield Finding(
            Level.NOTE,
            str(each.table),
            "strategy_nothing",
            f"is never swept (strategy nothing) and keeps about {each.sample.versions_per_cell:.1f} versions of a cell",
            f"sweepflow tables set-strategy {each.table} conservative, if the old versions are not needed",
        )


def _unless_paused(facts: Facts, each: TableFacts, finding: Finding) -> Finding:
    return _when_resumed(finding) if facts.is_paused(str(each.table)) else finding


def _due_scan(each: TableFacts, due: ScanDue) -> Finding:
    what = {
        ScanReason.UNQUEUED: "had the strategy nothing for some time: versions overwritten then have no queue entries",
        ScanReason.MARKERS: "was conservative before: sentinels and delete markers are left in it",
        ScanReason.TRUNCATED: "was truncated, and not all of its old data is deleted yet; readers do not see the rest",
    }
    early = f"; too early for a scan: {each.scan_lacks.sentence}" if each.scan_lacks else ""
    unscheduled = f"; {each.not_by_turns}" if each.not_by_turns else ""
    finding = Finding(
        Level.DO, str(each.table), f"scan_due_{due.why}", f"{what[due.why]}{early}{unscheduled}",
        f"sweepflow legacy-sweep {each.table}{_or_scheduled(each)}",
    )  # fmt: skip
    return _postponed(finding, "later", each.scan_lacks) if each.scan_lacks else finding


def _or_scheduled(each: TableFacts) -> str:
    return "" if each.not_by_turns else ", or leave it to the DAG legacy_sweep"


def _first_scans(facts: Facts) -> Iterator[Finding]:
    """Tables that were never scanned. While the queue is as long as what could be removed, sweeps of the queue will
    remove most of that, so a scan is not asked for yet."""
    found = [(each, each.sample) for each in facts.tables if each.sample and _needs_first_scan(each, each.sample)]
    found.sort(key=lambda of: -of[1].of_all(of[1].goes_later))
    removable = sum(sample.of_all(sample.goes_later) for _, sample in found)
    if found and (facts.queued.at_least or facts.queued.number >= removable / 2):
        yield Finding(
            Level.NOTE,
            "scans",
            "never_scanned",
            f"{len(found)} tables were never scanned, and about {removable:,} of their versions are garbage; "
            "sweeps of the queue remove what was queued, and scans remove the rest",
            "sweepflow doctor again, when the queue is swept",
        )
        return
    for each, sample in found[:_MOST_NAMED]:
        yield _unless_paused(facts, each, _first_scan(each, sample))
    if len(found) > _MOST_NAMED:
        more = Finding(
            Level.DO, "scans", "never_scanned",
            f"{len(found) - _MOST_NAMED} more tables were never scanned; the table above lists them",
            "leave it to the DAG legacy_sweep",
        )  # fmt: skip
        yield _when_resumed(more) if facts.is_paused(EVERYTHING) else more


def _needs_first_scan(each: TableFacts, sample: TableSample) -> bool:
    unattended = each.last_scan_ms is None and each.scan_due is None and each.scan_running is None
    return unattended and bool(sample.versions) and sample.goes_later / sample.versions >= _WORTH_A_SCAN


def _first_scan(each: TableFacts, sample: TableSample) -> Finding:
    estimate = sample.estimate()
    least = "at least " if sample.at_least else "about " if sample.share < 1 else ""
    when = "" if each.reach else "; it is refused until one retention has passed since the first sweep or transaction"
    return Finding(
        Level.DO,
        str(each.table),
        "never_scanned",
        f"{least}{estimate.goes_later:,} of {estimate.versions:,} versions are garbage, {estimate.goes_now:,} of them "
        f"removable now, and the table was never scanned; a scan in one process takes "
        f"{duration(round(sample.scan_seconds))}",
        f"sweepflow legacy-sweep {each.table} --dry-run, then without{_or_scheduled(each)}{when}",
        None if each.reach else "retention",
    )


def _number(counted: LimitedCount) -> str:
    return f"{'at least ' if counted.at_least else ''}{counted.number:,}"
