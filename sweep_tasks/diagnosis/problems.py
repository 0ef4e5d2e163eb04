"""Decides from the state of a store what is wrong with it and what to do. Pure: state in, problems and a verdict out.

*behind*: a shard misses its lag objective, so data that should be removed is still there. *attention*: nothing is late
yet, but an operator has to act. The verdict is the colour of the page, the exit code of `sweepflow status` and a
metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.clock import from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_problems import ClockCode
from sweep_tasks.diagnosis.documents import NOT_IN_DOCUMENT
from sweep_tasks.diagnosis.lag import ShardLag, behind, by_strategy, late_sentence, objectives
from sweep_tasks.diagnosis.state import StoreState
from sweep_tasks.metrics.tally import LastCompaction, LastReconciliation
from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection import reconciliation
from sweep_tasks.protection.reconciliation import RecordFinding, RecordOutcome, Report, age_s
from sweep_tasks.tables.pauses import EVERYTHING as EVERYTHING_PAUSED
from sweep_tasks.texts import duration

_OVERDUE_MS = 3_600_000
_NO_RUN_MS = 2 * 3_600_000
_CHECK_DAG = "check that the DAG targeted_sweep is switched on and its tasks do not fail"


class Verdict(StrEnum):
    OK = "ok"
    ATTENTION = "attention"
    BEHIND = "behind"


HEALTH_VALUES = {Verdict.OK: 0, Verdict.ATTENTION: 1, Verdict.BEHIND: 2}
"""The verdict as a metric."""


class Cause(StrEnum):
    """Why sweeps do not catch up, as far as the state shows, or what is wrong with a clock."""

    PAUSED = "paused"
    OPEN_TRANSACTION = "open_transaction"
    NOT_RUNNING = "not_running"
    LIMITS = "limits"
    CAPACITY = "capacity"
    CLOCK_AHEAD = ClockCode.AHEAD.value
    CLOCK_BEHIND = ClockCode.BEHIND.value
    CLOCK_SAMPLE_IN_FUTURE = ClockCode.FUTURE.value


class Remedy(NamedTuple):
    cause: Cause
    do: str
    press: str = ""


class Topic(StrEnum):
    """Problems for which the page offers a button."""

    LAG = "lag"
    PAUSE = "pause"
    QUARANTINE = "quarantine"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    verdict: Verdict
    about: str
    """An identifier that stays the same while the problem lasts."""
    sentence: str
    do: str
    """What to do in a terminal."""
    press: str = ""
    """What to press on the page, if that differs."""
    cause: Cause | None = None
    """For shards that are behind, and for clocks."""
    topic: Topic | None = field(default=None, metadata=NOT_IN_DOCUMENT)
    strategy: SweepStrategy | None = field(default=None, metadata=NOT_IN_DOCUMENT)
    """The strategy whose shards are behind."""
    record: str | None = field(default=None, metadata=NOT_IN_DOCUMENT)
    """The protection that could be released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    verdict: Verdict
    problems: list[Problem]


def diagnose(state: StoreState, settings: Settings) -> Health:
    """Return all problems, the worst first, and the verdict."""
    found = [
        *_failing_reads(state),
        *_late_shards(state, settings),
        *_unknown_lag(state),
        *_clocks(state, settings),
        *_pauses(state),
        *_waiting_entries(state),
        *_protections(state, settings),
    ]
    found.sort(key=lambda problem: problem.verdict is not Verdict.BEHIND)
    return Health(verdict=found[0].verdict if found else Verdict.OK, problems=found)


def _attention(
    about: str, sentence: str, do: str, press: str = "", *, topic: Topic | None = None, record: str | None = None
) -> Problem:
    return Problem(
        verdict=Verdict.ATTENTION, about=about, sentence=sentence, do=do, press=press, topic=topic, record=record
    )


def _failing_reads(state: StoreState) -> Iterator[Problem]:
    """From the last round of compaction on each node. First in the list: nothing is worse than a read that fails."""
    for series in state.recorded.series:
        if isinstance(series.last, LastCompaction) and series.last.near_failing:
            node = series.labels["node"]
            yield _attention(
                f"reads on {node}",
                f"reads of {series.last.near_failing} partitions on node {node} are about to fail: they find nearly as "
                "many tombstones as the server allows",
                "the report of the last run of the DAG compaction shows what keeps those tombstones",
                "see Tombstones by node and table below: it lists the partitions and what keeps their tombstones",
            )


def _pauses(state: StoreState) -> Iterator[Problem]:
    for what, pause in state.paused.listed():
        since = duration(max(0, state.now_ms - pause.since_ms) // 1000)
        lift = "--everything" if what == EVERYTHING_PAUSED else what
        yield _attention(
            f"{what} paused",
            f"{what} has been paused by {pause.by} for {since}: {pause.reason}",
            f"'sweepflow resume {lift}' when the reason is gone; until then it is not swept",
            topic=Topic.PAUSE,
        )


# --- lag --------------------------------------------------------------------------------------------------------------


def _late_shards(state: StoreState, settings: Settings) -> Iterator[Problem]:
    allowed = objectives(settings)
    for strategy, late in by_strategy(behind(state.lags(), allowed)).items():
        remedy = _remedy(state, late, settings)
        yield Problem(
            verdict=Verdict.BEHIND,
            about=f"{strategy} lag",
            sentence=late_sentence(strategy, late, allowed),
            do=remedy.do,
            press=remedy.press,
            cause=remedy.cause,
            topic=Topic.LAG,
            strategy=strategy,
        )


def _unknown_lag(state: StoreState) -> Iterator[Problem]:
    """Lag is computed from clock samples, which transactions and sweeps record."""
    if state.lag_unknown:
        yield _attention(
            "lag unknown",
            "entries wait, and their lag is not known because the store has no clock samples",
            f"{_CHECK_DAG}, or run 'sweepflow sweep'",
            f"press Sweep, and {_CHECK_DAG}",
        )


def _remedy(state: StoreState, late: list[ShardLag], settings: Settings) -> Remedy:
    """Return why these shards are behind, as far as the state shows, and what to do."""
    if state.paused.everything:
        return Remedy(
            Cause.PAUSED,
            "everything is paused: 'sweepflow resume --everything' when the reason is gone",
            "everything is paused: press Resume above when the reason is gone",
        )
    blocking = _blocking_transaction(state, min(objectives(settings)[each.strategy] for each in late))
    if blocking:
        return Remedy(Cause.OPEN_TRANSACTION, blocking)
    if stopped_clock := _stopped_clock(state, settings):
        return stopped_clock
    last_runs = {(series.labels["strategy"], series.labels["shard"]): last for series, last in state.sweeps()}
    runs = [last_runs.get((each.strategy.value, str(each.shard))) for each in late]
    ended = [run.ended_ms for run in runs if run]
    if not ended or state.now_ms - max(ended) > _NO_RUN_MS:
        nothing = f"no sweep of {'it' if len(late) == 1 else 'them'} has ended in the last two hours: "
        return Remedy(
            Cause.NOT_RUNNING,
            f"{nothing}{_CHECK_DAG}, or run 'sweepflow sweep'",
            f"{nothing}press Sweep, and {_CHECK_DAG}",
        )
    stopped = {run.stopped for run in runs if run and run.stopped}
    if stopped & {"entries", "seconds", "tombstones"}:
        do = "sweeps run and stop at their limits: raise those limits, sweep_tasks_at_once, or the number of shards"
        return Remedy(Cause.LIMITS, do)
    do = "sweeps run and do not catch up: raise sweep_tasks_at_once or the number of shards, or the objective"
    return Remedy(Cause.CAPACITY, do)


def _blocking_transaction(state: StoreState, longer_than_s: int) -> str | None:
    for lease in state.leases[:1]:
        since_ms, at_least = state.open_since_ms(lease)
        if since_ms is None or at_least or state.now_ms - since_ms > longer_than_s * 1000:
            return (
                f"the transaction of {lease.owner} is open {_since(since_ms, at_least)}, and sweeps stop at its start: "
                "end that process, and its lease expires"
            )
    return None


def _since(since_ms: int | None, at_least: bool) -> str:
    if since_ms is None:
        return "since an unknown time"
    return f"since {from_ms(since_ms).to_datetime_string()} UTC{' at least' if at_least else ''}"


# --- clocks -----------------------------------------------------------------------------------------------------------


def _clocks(state: StoreState, settings: Settings) -> Iterator[Problem]:
    for each in state.clock_problems(settings):
        yield Problem(
            verdict=Verdict.ATTENTION,
            about=each.about,
            sentence=each.sentence,
            do=each.do,
            cause=Cause(each.code.value),
        )


def _stopped_clock(state: StoreState, settings: Settings) -> Remedy | None:
    """Return the problem if no clock samples are recorded any more, so that no data becomes old enough to sweep."""
    if state.clock is None or abs(state.now_ms - state.clock.wall_ms) <= settings.clock_step_max_s * 1000:
        return None
    for each in state.clock_problems(settings):
        return Remedy(Cause(each.code.value), f"{each.sentence}: {each.do}")
    return None


# --- entries and protections ------------------------------------------------------------------------------------------


def _waiting_entries(state: StoreState) -> Iterator[Problem]:
    if state.sample is None:
        return
    quarantined = sum(state.sample.quarantined.by_shard.values())
    if quarantined:
        yield _attention(
            "quarantine",
            f"{quarantined} queue entries can't be read and are quarantined",
            "'sweepflow queue quarantine list' shows the reasons; fix the cause, then 'sweepflow queue quarantine "
            "retry'",
            "the reasons are below, at Quarantined entries: fix the cause, then press Retry quarantined",
            topic=Topic.QUARANTINE,
        )
    replicas = state.sample.parked.by_reason.get("replicas", 0)
    if replicas:
        yield _attention(
            "replicas",
            f"{replicas} deletes of thorough tables wait until every replica confirms",
            "check whether a node is down; when all nodes are up, the next sweep resumes what waited",
        )


def _protections(state: StoreState, settings: Settings) -> Iterator[Problem]:
    """What a reconciliation would report without asking the owners, and what the last one reported."""
    findings = tuple(
        RecordFinding(record.id, record.meta_type, age_s(record, state.now_ms), RecordOutcome.KEPT)
        for record in state.records
    )
    found = reconciliation.problems(Report(state.now_ms, True, state.meta, findings), settings)
    for each in found:
        press = "press Release below if it is no longer needed" if each.record else ""
        topic = Topic.RECORD if each.record else None
        yield _attention(each.about, each.finding, each.do, press, topic=topic, record=each.record)
    yield from _reconciled(state, len(found))
    overdue_ms = [
        state.now_ms - each.expires_ms
        for each in state.records
        if each.expires_ms is not None and state.now_ms - each.expires_ms > _OVERDUE_MS
    ]
    if overdue_ms:
        oldest = duration(max(overdue_ms) // 1000)
        yield _attention(
            "reconciliation",
            f"{len(overdue_ms)} protections have expired and are not released yet, the oldest {oldest} ago",
            "check that the DAG protected_timestamps is not paused and does not fail; it releases them",
        )


def _reconciled(state: StoreState, listed: int) -> Iterator[Problem]:
    """What the last reconciliation reported, without the records that are listed here already."""
    for series in state.recorded.series:
        last = series.last
        more = last.problems - listed if isinstance(last, LastReconciliation) else 0
        if more > 0:
            since = duration(max(0, state.now_ms - last.ended_ms) // 1000)
            yield _attention(
                "protections",
                f"{more} protections need a decision, according to the last reconciliation {since} ago",
                "see the log of task check of protected_timestamps for which and why; the next run checks again",
            )
