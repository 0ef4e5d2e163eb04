"""What the facts mean: sentences, each with what to run. Pure.

A finding either asks for something to be done or is only worth knowing. One that keeps everything else from being
looked at stops the examination. What would be refused, because somebody has paused it or because it is too early, is
not asked for: it is said what to do first.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import pendulum

from sweep_tasks.clock import from_ms
from sweep_tasks.doctor.facts import Facts, Sample, ShardFacts, TableFacts
from sweep_tasks.errors import NotInitialised, OlderSchema, SweepflowError
from sweep_tasks.model import ScanReason, SweepStrategy
from sweep_tasks.queue.progress import NEVER_SWEPT
from sweep_tasks.sweep.pauses import EVERYTHING

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
    """Why what is to be run would be refused now, or would change nothing."""


def unreachable(error: SweepflowError, where: str) -> Finding:
    """Of a store that could not be opened or stopped answering."""
    init = f"sweepflow init --store '{where}'" if isinstance(error, NotInitialised | OlderSchema) else None
    return Finding(Level.STOP, "store", error.code, str(error).removeprefix("store: "), init)


def findings(facts: Facts) -> list[Finding]:
    """What asks for something first."""
    of_sweeps = [*_of_time(facts), *_of_shards(facts)]
    if facts.is_paused(EVERYTHING):
        of_sweeps = [_once_resumed(each) for each in of_sweeps]
    found = [*_of_pauses(facts), *of_sweeps, *_in_the_way(facts), *_of_tables(facts)]
    return sorted(found, key=lambda finding: list(Level).index(finding.level))


def _later(finding: Finding, when: str, waits_for: str) -> Finding:
    """Of what can't be done yet."""
    if not finding.run:
        return finding
    return finding._replace(level=Level.NOTE, run=f"{when}: {finding.run}", waits_for=waits_for)


def _once_resumed(finding: Finding) -> Finding:
    return _later(finding, "once it is resumed", "paused")


def _of_pauses(facts: Facts) -> Iterator[Finding]:
    if not facts.pauses:
        return
    named = [f"{each.what} by {each.by} since {from_ms(each.since_ms)}: {each.reason}" for each in facts.pauses]
    more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    what = [each.what for each in facts.pauses[:_MOST_NAMED]]
    resume = (f"sweepflow resume {'--everything' if each == EVERYTHING else each}" for each in what)
    yield Finding(
        Level.DO, "pauses", "paused", f"paused is {'; '.join(named[:_MOST_NAMED])}{more}",
        f"{', '.join(resume)}, when the reason is gone; sweepflow pause --list shows all",
    )  # fmt: skip


def _of_time(facts: Facts) -> Iterator[Finding]:
    if not facts.tables:
        create = "sweepflow tables create NAMESPACE.NAME"
        yield Finding(Level.NOTE, "tables", "no_tables", "there are none yet", create)
    elif not facts.clock_known:
        yield Finding(
            Level.DO,
            "clock",
            "clock_unknown",
            "the store does not know yet which timestamp an hour ago was, since nobody has swept or written through "
            "sweepflow; the first sweep starts that record, and conservative tables can be swept one retention later",
            "sweepflow sweep",
        )


def _of_shards(facts: Facts) -> Iterator[Finding]:
    never = [each for each in facts.shards if each.progress == NEVER_SWEPT]
    if facts.queued.number and len(never) == len(facts.shards):
        yield Finding(
            Level.DO,
            "queue",
            "never_swept",
            f"{_least(facts.queued.number, facts.queued.at_least)} entries are queued and no shard was ever swept",
            "sweepflow sweep --dry-run, then sweepflow sweep; for every hour: the DAG targeted_sweep",
        )
        return
    behind = [each for each in facts.shards if each.lag_s is not None and each.lag_s > each.objective_s]
    if behind and facts.tables:
        worst = max(behind, key=lambda each: each.lag_s or 0)
        yield Finding(
            Level.DO,
            "lag",
            "behind",
            f"{len(behind)} of {len(facts.shards)} shards are behind their objective, {_named(worst)} the most: "
            f"{_time(worst.lag_s or 0)}",
            "sweepflow sweep, and see that the DAG targeted_sweep runs every hour",
        )


def _in_the_way(facts: Facts) -> Iterator[Finding]:
    oldest = facts.oldest_transaction
    if oldest and (oldest.age_s or 0) >= _LONG_OPEN_S:
        yield Finding(
            Level.DO,
            "transactions",
            "open_transaction",
            f"a transaction of {oldest.owner} is open for {_time(oldest.age_s or 0)}, and no sweep goes beyond "
            f"{oldest.lease}",
            "end that process; its lease runs out by itself then",
        )
    record = facts.oldest_protection
    if record:
        old = facts.protection_max_age_s and (record.age_s or 0) > facts.protection_max_age_s
        yield Finding(
            Level.DO if old else Level.NOTE,
            "protections",
            "too_old" if old else "protected",
            f"there are {facts.protections}, the oldest at {record.ts} (record {record.id} of type {record.owner}) for "
            f"{_time(record.age_s or 0)}",
            "sweepflow protections shows what each holds back; sweepflow release ID gives one up",
        )
    if facts.parked:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(facts.parked.items()))
        yield Finding(
            Level.NOTE, "parked", "parked",
            f"{'at least ' if facts.parked_at_least else ''}{reasons} entries wait, parked; "
            "sweeps take them up by themselves when what holds them is gone",
        )  # fmt: skip
    if facts.quarantined.number:
        number = _least(facts.quarantined.number, facts.quarantined.at_least)
        yield Finding(
            Level.DO, "quarantine", "quarantined", f"{number} queue entries could not be read and were set aside",
            "sweepflow queue quarantine list, then retry",
        )  # fmt: skip


def _of_tables(facts: Facts) -> Iterator[Finding]:
    for each in facts.tables:
        if each.strategy is SweepStrategy.NOTHING:
            yield from _of_unswept_table(each)
        elif each.scan_running:
            yield Finding(Level.NOTE, str(each.table), "scan_running", f"is being scanned by {each.scan_running}",
                          f"sweepflow legacy-sweep {each.table} --status")  # fmt: skip
        elif each.scan_due:
            yield _unless_paused(facts, each, _of_due_scan(each))
    yield from _of_first_scans(facts)
    unseen = [str(each.table) for each in facts.tables if each.sample is None]
    if unseen:
        names = ", ".join(unseen[:3]) + (f" and {len(unseen) - 3} more" if len(unseen) > 3 else "")
        yield Finding(
            Level.NOTE,
            "sample",
            "not_sampled",
            f"there was no time to look into {names}",
            "sweepflow doctor --sample-seconds 300",
        )


def _of_unswept_table(each: TableFacts) -> Iterator[Finding]:
    if each.sample and each.sample.versions_per_cell >= _MANY_VERSIONS:
        yield Finding(
            Level.NOTE,
            str(each.table),
            "strategy_nothing",
            f"is never swept (strategy nothing) and keeps about {each.sample.versions_per_cell:.1f} versions of a cell",
            f"sweepflow tables set-strategy {each.table} conservative, if nobody needs the old ones",
        )


def _unless_paused(facts: Facts, each: TableFacts, finding: Finding) -> Finding:
    return _once_resumed(finding) if facts.is_paused(str(each.table)) else finding


def _of_due_scan(each: TableFacts) -> Finding:
    what = {
        ScanReason.UNQUEUED: "was swept by nothing for some time: what was overwritten then has no queue entries",
        ScanReason.MARKERS: "was conservative before: sentinels and delete markers are left in it",
    }
    codes = {ScanReason.UNQUEUED: "scan_due_unqueued", ScanReason.MARKERS: "scan_due_markers"}
    assert each.scan_due is not None  # noqa: S101
    early = f"; too early for a scan: {each.scan_lacks.sentence}" if each.scan_lacks else ""
    alone = f"; {each.not_by_turns}" if each.not_by_turns else ""
    finding = Finding(
        Level.DO, str(each.table), codes[each.scan_due.why], f"{what[each.scan_due.why]}{early}{alone}",
        f"sweepflow legacy-sweep {each.table}{_or_by_turns(each)}",
    )  # fmt: skip
    return _later(finding, "later", each.scan_lacks) if each.scan_lacks else finding


def _or_by_turns(each: TableFacts) -> str:
    return "" if each.not_by_turns else ", or let the DAG legacy_sweep do it"


def _of_first_scans(facts: Facts) -> Iterator[Finding]:
    """Where the queue is as long as what could go, its sweeps will find most of that; only then it shows what a scan is
    needed for."""
    found = [(each, each.sample) for each in facts.tables if each.sample and _wants_a_first_scan(each, each.sample)]
    found.sort(key=lambda of: -of[1].of_all(of[1].goes_later))
    goes = sum(sample.of_all(sample.goes_later) for _, sample in found)
    if found and (facts.queued.at_least or facts.queued.number >= goes / 2):
        yield Finding(
            Level.NOTE,
            "scans",
            "never_scanned",
            f"{len(found)} tables were never scanned, and about {_grouped(goes)} of their versions are of no use; "
            "sweeps of the queue find what was queued, and what is left afterwards is for scans",
            "sweepflow doctor again, when the queue is swept",
        )
        return
    for each, sample in found[:_MOST_NAMED]:
        yield _unless_paused(facts, each, _of_first_scan(each, sample))
    if len(found) > _MOST_NAMED:
        more = Finding(
            Level.DO, "scans", "never_scanned",
            f"{len(found) - _MOST_NAMED} more tables are like that; the table above shows them",
            "let the DAG legacy_sweep do it",
        )  # fmt: skip
        yield _once_resumed(more) if facts.is_paused(EVERYTHING) else more


def _wants_a_first_scan(each: TableFacts, sample: Sample) -> bool:
    unattended = each.last_scan_ms is None and each.scan_due is None and each.scan_running is None
    return unattended and bool(sample.versions) and sample.goes_later / sample.versions >= _WORTH_A_SCAN


def _of_first_scan(each: TableFacts, sample: Sample) -> Finding:
    goes, versions = sample.of_all(sample.goes_later), sample.of_all(sample.versions)
    least = "at least " if sample.at_least else "about " if sample.share < 1 else ""
    when = "" if each.reach else "; it is refused until one retention has passed since the first sweep or transaction"
    return Finding(
        Level.DO,
        str(each.table),
        "never_scanned",
        f"{least}{_grouped(goes)} of {_grouped(versions)} versions are of no use, "
        f"{_grouped(sample.of_all(sample.goes_now))} of them could go now, and it was never scanned; to read all of it "
        f"takes one process {_time(round(sample.scan_seconds))}",
        f"sweepflow legacy-sweep {each.table} --dry-run, then without{_or_by_turns(each)}{when}",
        None if each.reach else "retention",
    )


def _named(shard: ShardFacts) -> str:
    return f"{shard.strategy} shard {shard.shard}"


def _least(number: int, at_least: bool) -> str:
    return f"{'at least ' if at_least else ''}{_grouped(number)}"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _time(seconds: int) -> str:
    return pendulum.duration(seconds=seconds).in_words() if seconds else "less than a second"
