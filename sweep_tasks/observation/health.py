"""Is anything wrong, and what does one do about it? Pure: facts in, a verdict with sentences out.

*behind*: a shard has missed its objective, so what should be gone is not. *attention*: nothing is late yet, but
somebody has to look. The same verdict is the colour of the page, the exit code of the command and a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from sweep_tasks.clock import from_ms
from sweep_tasks.config import Settings
from sweep_tasks.durations import words
from sweep_tasks.observation.facts import Facts
from sweep_tasks.protection.reconcile import age_s
from sweep_tasks.protection.report import Finding, Outcome, Report, problems
from sweep_tasks.sweep.lag import ShardLag, behind, objectives, sentences
from sweep_tasks.sweep.pauses import EVERYTHING as EVERYTHING_PAUSED


class Verdict(StrEnum):
    OK = "ok"
    ATTENTION = "attention"
    BEHIND = "behind"


HEALTH_VALUES = {Verdict.OK: 0, Verdict.ATTENTION: 1, Verdict.BEHIND: 2}
"""As a figure."""


class Cause(StrEnum):
    """Why sweeps do not catch up, as far as the facts show."""

    PAUSED = "paused"
    OPEN_TRANSACTION = "open_transaction"
    NOT_RUNNING = "not_running"
    LIMITS = "limits"
    CAPACITY = "capacity"


class Remedy(NamedTuple):
    cause: Cause
    do: str
    press: str = ""


class Trouble(NamedTuple):
    verdict: Verdict
    about: str
    """The same for as long as the trouble lasts."""
    sentence: str
    do: str
    """In a terminal."""
    press: str = ""
    """On the page, where that is another way: what to press there."""
    cause: Cause | None = None
    """Of shards that are behind."""


def troubles(facts: Facts, settings: Settings) -> list[Trouble]:
    """The worst first."""
    found = [
        *_reads(facts),
        *_late(facts, settings),
        *_unknown(facts),
        *_paused(facts),
        *_counted(facts),
        *_protections(facts, settings),
    ]
    return sorted(found, key=lambda trouble: trouble.verdict is not Verdict.BEHIND)


def verdict(found: list[Trouble]) -> Verdict:
    worst = {trouble.verdict for trouble in found}
    return next((each for each in (Verdict.BEHIND, Verdict.ATTENTION) if each in worst), Verdict.OK)


def document(facts: Facts, settings: Settings) -> dict[str, Any]:
    found = troubles(facts, settings)
    return {
        "verdict": verdict(found).value,
        "problems": [
            each._asdict() | {"verdict": each.verdict.value, "cause": each.cause and each.cause.value} for each in found
        ],
    }


def _reads(facts: Facts) -> Iterator[Trouble]:
    """What the last round of compaction on each node has told: nothing is worse than a read that fails."""
    for series in facts.entered.series:
        near = series.last.get("near_failing", 0) if series.job == "compaction" else 0
        if near:
            yield Trouble(
                Verdict.ATTENTION,
                f"reads on {series.labels['node']}",
                f"reads of {near} partitions on node {series.labels['node']} are about to fail: they meet nearly as "
                "many tombstones as the server allows",
                "the report of the last run of the DAG compaction says what keeps those tombstones",
                "see Tombstones by node and table below: it names the partitions and what keeps their tombstones",
            )


def _paused(facts: Facts) -> Iterator[Trouble]:
    for what, pause in facts.paused.listed():
        since = words(max(0, facts.now_ms - pause.since_ms) // 1000)
        lift = "--everything" if what == EVERYTHING_PAUSED else what
        yield Trouble(
            Verdict.ATTENTION,
            f"{what} paused",
            f"{what} is paused, by {pause.by} for {since}: {pause.reason}",
            f"'sweepflow resume {lift}' when that is over; nothing of it is swept until then",
        )


def _late(facts: Facts, settings: Settings) -> Iterator[Trouble]:
    allowed = objectives(settings)
    late = behind(facts.lags(), allowed)
    for sentence in sentences(late, allowed):
        strategy = sentence.split(" shard")[0]
        ours = [each for each in late if each.strategy.value == strategy]
        cause, do, press = _remedy(facts, ours, settings)
        yield Trouble(Verdict.BEHIND, f"{strategy} lag", sentence, do, press, cause)


def _unknown(facts: Facts) -> Iterator[Trouble]:
    """Lag is told by when timestamps were handed out. Whoever runs transactions or sweeps notes that."""
    if facts.waits_unknown:
        do = "see that the DAG targeted_sweep is switched on and its tasks are not red"
        yield Trouble(
            Verdict.ATTENTION,
            "lag unknown",
            "entries wait, and how far behind sweeping is can't be told: nobody ever noted the time of a timestamp",
            f"{do}, or run 'sweepflow sweep'",
            f"press Sweep, and {do}",
        )


def _remedy(facts: Facts, late: list[ShardLag], settings: Settings) -> Remedy:
    """What stands in the way, as far as the facts tell: what to do in a terminal, and what to press on the page."""
    if facts.paused.everything:
        return Remedy(
            Cause.PAUSED,
            "everything is paused: 'sweepflow resume --everything' when that is over",
            "everything is paused: press Resume above when that is over",
        )
    holding = _holding(facts, min(objectives(settings)[each.strategy] for each in late))
    if holding:
        return Remedy(Cause.OPEN_TRANSACTION, holding)
    last = {
        (series.labels["strategy"], series.labels["shard"]): series.last
        for series in facts.entered.series
        if series.job == "sweep"
    }
    runs = [last.get((each.strategy.value, str(each.shard))) for each in late]
    ended = [run["ended_ms"] for run in runs if run]
    if not ended or facts.now_ms - max(ended) > 2 * 3_600_000:
        nothing = f"no sweep of {'it' if len(late) == 1 else 'them'} has ended in the last two hours: "
        check = "see that the DAG targeted_sweep is switched on and its tasks are not red"
        return Remedy(
            Cause.NOT_RUNNING,
            f"{nothing}{check}, or run 'sweepflow sweep'",
            f"{nothing}press Sweep, and {check}",
        )
    stopped = {run["stopped"] for run in runs if run and run.get("stopped")}
    if stopped & {"entries", "seconds", "tombstones"}:
        do = "sweeps run and end at their limits: raise those, sweep_tasks_at_once, or the number of shards"
        return Remedy(Cause.LIMITS, do)
    do = "sweeps run and do not catch up: raise sweep_tasks_at_once or the number of shards, or the objective"
    return Remedy(Cause.CAPACITY, do)


def _holding(facts: Facts, longer_than_s: int) -> str | None:
    for lease in facts.leases[:1]:
        since_ms, at_least = facts.open_since_ms(lease)
        if since_ms is None or at_least or facts.now_ms - since_ms > longer_than_s * 1000:
            return (
                f"the transaction of {lease.owner} is open {_since(since_ms, at_least)}, and no sweep goes past it: "
                "end that process, and its lease runs out by itself"
            )
    return None


def _since(since_ms: int | None, at_least: bool) -> str:
    if since_ms is None:
        return "since nobody knows when"
    return f"since {from_ms(since_ms).to_datetime_string()} UTC{' at least' if at_least else ''}"


def _counted(facts: Facts) -> Iterator[Trouble]:
    sample = facts.sample or {}
    aside = sum(sample.get("quarantined", {}).get("by_shard", {}).values())
    if aside:
        yield Trouble(
            Verdict.ATTENTION,
            "quarantine",
            f"{aside} entries of the queue can't be judged and are set aside",
            "'sweepflow queue quarantine list' tells why; mend that, then 'sweepflow queue quarantine retry'",
            "the reasons are below, at Quarantined entries: mend that, then press Retry quarantined",
        )
    replicas = sample.get("parked", {}).get("by_reason", {}).get("replicas", 0)
    if replicas:
        yield Trouble(
            Verdict.ATTENTION,
            "replicas",
            f"{replicas} deletes of thorough tables wait until every replica confirms",
            "see whether a node is down; with all of them back, the next sweep takes what waited",
        )


def _reconciled(facts: Facts, listed: int) -> Iterator[Trouble]:
    """The last reconciliation told about every record once; those that are listed here already are left out."""
    for series in facts.entered.series:
        more = series.last["problems"] - listed if series.job == "reconcile" else 0
        if more > 0:
            since = words(max(0, facts.now_ms - series.last["ended_ms"]) // 1000)
            yield Trouble(
                Verdict.ATTENTION,
                "protections",
                f"{more} protections need a decision, by the last reconciliation {since} ago",
                "see task check of protected_timestamps: its log says which and why; the next run looks anew",
            )


def _protections(facts: Facts, settings: Settings) -> Iterator[Trouble]:
    """What a reconciliation would say without asking the owners, and what the last one said after asking them."""
    findings = tuple(
        Finding(record.id, record.meta_type, age_s(record, facts.now_ms), Outcome.KEPT) for record in facts.records
    )
    found = problems(Report(facts.now_ms, True, facts.meta, findings), settings)
    for problem in found:
        sentence, _, do = problem.sentence.rpartition("; ")
        press = "press Release below if it is no longer needed" if "sweepflow release" in do else ""
        yield Trouble(Verdict.ATTENTION, problem.about, sentence, do, press)
    yield from _reconciled(facts, len(found))
    left = [each for each in facts.records if each.expires_ms is not None and each.expires_ms <= facts.now_ms]
    overdue = [each for each in left if facts.now_ms - (each.expires_ms or 0) > 3_600_000]
    if overdue:
        longest = max(facts.now_ms - (each.expires_ms or 0) for each in overdue) // 1000
        yield Trouble(
            Verdict.ATTENTION,
            "reconciliation",
            f"{len(overdue)} protections have expired and still hold, the longest for {words(longest)}",
            "see that the DAG protected_timestamps is not paused and not red; it releases them",
        )
