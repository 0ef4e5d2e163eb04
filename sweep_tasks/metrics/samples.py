"""Samples of what waits in the queue, the history of the last days, and the recording of runs.

Counting entries that are parked or quarantined takes at least one read per shard, which is too slow for a page. So a
sample is taken and stored when a run ends, and the page, the command and the metrics read the last one, with its time.
Counting is bounded: where a limit was reached, the numbers are a lower bound and the sample says so.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING

import structlog
from pydantic import BaseModel

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.lag import BacklogCounts, count_backlog, lags_at, queue_name, strategy_in, swept_up_to
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import SweepflowError
from sweep_tasks.logs import bind_log_names
from sweep_tasks.metrics.tally import (
    COMPACTION,
    DRY_RUN,
    KEPT_MS,
    LEGACY,
    OPERATIONS,
    RECONCILE,
    STEP_MS,
    SWEEP,
    AttemptFigures,
    CompactionDetails,
    ReconciliationDetails,
    RecordedRun,
    ScanDetails,
    Sums,
    SweepDetails,
    Tally,
    TaskAttempt,
)
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.metrics import OperationCounts, collect_counts
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry, Parking, Quarantine
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import OBSERVATIONS
from sweep_tasks.sweep.summary import LOCAL, Summary

if TYPE_CHECKING:
    from sweep_tasks.compaction.documents import RoundReport
    from sweep_tasks.legacy.run import LegacySummary
    from sweep_tasks.protection.reconciliation import ReportDocument

log = structlog.get_logger(__name__)

MOST = 10_000
_PAGE = 1_000
_REASONS = 5
_LATEST = Cell(b"sample", b"latest")
_POINTS = b"samples"

DUE = "due"
"""The reason of entries parked under a record that is released or has moved on: the next sweep processes them."""


# --- samples ----------------------------------------------------------------------------------------------------------


class ParkedCounts(BaseModel, frozen=True, defer_build=True):
    """Parked entries. Shards have the names of their queues (see `queue_name`)."""

    by_reason: dict[str, int]
    by_shard: dict[str, int]
    by_record: dict[str, int]
    at_least: bool


class QuarantinedCounts(BaseModel, frozen=True, defer_build=True):
    by_shard: dict[str, int]
    by_reason: dict[str, int] = {}
    """The most frequent reasons only."""
    at_least: bool


class QueueSample(BaseModel, frozen=True, defer_build=True):
    """What was counted in the queues of a store at one time."""

    at_ms: int
    lag_s: dict[str, int]
    """By strategy, that of the shard with the greatest lag."""
    parked: ParkedCounts
    quarantined: QuarantinedCounts
    backlog: BacklogCounts = BacklogCounts()


class SamplePoint(BaseModel, frozen=True, defer_build=True):
    """A sample as one point of the time line."""

    at_ms: int
    lag_s: dict[str, int]
    parked: int
    quarantined: int
    backlog: dict[str, int] | None = None
    """By strategy; None in points that older versions recorded."""


def take_sample(store: Store, clock: Clock, most: int = MOST) -> QueueSample:
    """Count what waits, and store the result."""
    found = count_waiting(store, clock, most)
    store.update(OBSERVATIONS, _LATEST, lambda _: json.dumps(found.model_dump()).encode())
    keep_point(store, found)
    return found


def latest_sample(store: Store) -> QueueSample | None:
    found = store.read(OBSERVATIONS, [_LATEST]).get(_LATEST)
    return QueueSample.model_validate_json(found) if found else None


def points(store: Store) -> dict[int, SamplePoint]:
    """Return the samples of the last days, by the beginning of each step in milliseconds."""
    found = store.read_rows(OBSERVATIONS, [_POINTS])
    return {
        read_var_long(cell.column)[0] * STEP_MS: SamplePoint.model_validate_json(value) for cell, value in found.items()
    }


def count_waiting(store: Store, clock: Clock, most: int = MOST) -> QueueSample:
    """Count the parked entries of each queue, the quarantined entries and the backlog."""
    protections = ProtectionCatalog(store).protections()
    reasons: Counter[str] = Counter()
    shards: Counter[str] = Counter()
    records: Counter[str] = Counter()
    full = False
    for strategy, shard in Progress(store).all():
        for (reason, record), number in _count_parked(store, strategy, shard, protections, most).items():
            full = full or number >= most
            reasons[reason] += number
            shards[queue_name(strategy, shard)] += number
            if record:
                records[record] += number
    quarantined = list(islice(Quarantine(store, TimestampService(store)).all(), most))
    return QueueSample(
        at_ms=clock.now_ms(),
        lag_s=_greatest_lags(store, clock),
        parked=ParkedCounts(by_reason=dict(reasons), by_shard=dict(shards), by_record=dict(records), at_least=full),
        quarantined=QuarantinedCounts(
            by_shard=dict(Counter(queue_name(each.strategy, each.shard) for each in quarantined)),
            by_reason=dict(Counter(each.reason for each in quarantined).most_common(_REASONS)),
            at_least=len(quarantined) >= most,
        ),
        backlog=count_backlog(store, Tally(store).read(), most),
    )


def _count_parked(
    store: Store, strategy: SweepStrategy, shard: int, protections: Protections, most: int
) -> Counter[tuple[str, str]]:
    """Count the parked entries of a queue by reason and record; under one hold not many more than `most`."""
    parking = Parking(store, TimestampService(store), strategy, shard)
    found: Counter[tuple[str, str]] = Counter()
    by_hold: Counter[Hold] = Counter()
    after = b""
    while entries := parking.page(after, min(_PAGE, most)).entries:
        for hold, under in groupby(entries, key=lambda entry: entry.hold):
            these = list(under)
            by_hold[hold] += len(these)
            found.update(_reason(entry, protections) for entry in these)
        last = entries[-1]
        after = parking.behind(last.hold) if by_hold[last.hold] >= most else last.column()
    return found


def _reason(entry: ParkedEntry, protections: Protections) -> tuple[str, str]:
    hold = entry.hold
    if hold.why is not HoldReason.PROTECTED:
        return hold.why.name.lower(), ""
    held = entry.commit >= protections.frees_below(hold.record, hold.record_ts)
    return (hold.why.name.lower(), hold.record) if held else (DUE, "")


def _greatest_lags(store: Store, clock: Clock) -> dict[str, int]:
    first = ClockHistory(store).first()
    lags = lags_at(clock.now_ms(), swept_up_to(store), first.wall_ms if first else clock.now_ms())
    greatest: dict[str, int] = {}
    for each in lags:
        greatest[each.strategy.value] = max(each.lag_s, greatest.get(each.strategy.value, 0))
    return greatest


def _by_strategy(by_shard: Mapping[str, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for queue, number in by_shard.items():
        found[strategy_in(queue)] += number
    return dict(found)


def keep_point(store: Store, sample: QueueSample) -> None:
    """Store a sample as a point of the time line: the last one of each step, for one week."""
    point = SamplePoint(
        at_ms=sample.at_ms,
        lag_s=sample.lag_s,
        parked=sum(sample.parked.by_reason.values()),
        quarantined=sum(sample.quarantined.by_shard.values()),
        backlog=_by_strategy(sample.backlog.by_shard),
    )
    step = sample.at_ms // STEP_MS
    store.update(OBSERVATIONS, Cell(_POINTS, var_long(step)), lambda _: json.dumps(point.model_dump()).encode())
    oldest = var_long(max(0, sample.at_ms - KEPT_MS) // STEP_MS)
    store.remove(OBSERVATIONS, [cell for cell in store.read_rows(OBSERVATIONS, [_POINTS]) if cell.column < oldest])


# --- history ----------------------------------------------------------------------------------------------------------


class HistoryPoint(BaseModel, frozen=True, defer_build=True):
    """One step of the time line."""

    at_ms: int
    work: dict[str, Sums]
    """By series, see `AttemptFigures.time_series`."""
    sample: SamplePoint | None


class PastRun(RecordedRun, frozen=True):
    dag: str
    run: str
    took_s: float


class History(BaseModel, frozen=True, defer_build=True):
    """Figures and samples over the last days, and the last runs. A step in which nothing ended has no point."""

    step_s: int
    points: list[HistoryPoint]
    runs: list[PastRun]


def history(store: Store) -> History:
    """Read the history in two store calls."""
    recorded = Tally(store).read()
    sampled = points(store)
    steps = sorted({*recorded.timeline, *sampled})
    runs = [_past_run(dag, run, found) for (dag, run), found in recorded.runs.items()]
    return History(
        step_s=STEP_MS // 1000,
        points=[HistoryPoint(at_ms=at, work=recorded.timeline.get(at, {}), sample=sampled.get(at)) for at in steps],
        runs=sorted(runs, key=lambda run: run.ended_ms, reverse=True),
    )


def _past_run(dag: str, run: str, found: RecordedRun) -> PastRun:
    return PastRun(
        dag=dag,
        run=run,
        tasks=found.tasks,
        named=sorted(found.named),
        began_ms=found.began_ms,
        ended_ms=found.ended_ms,
        took_s=round((found.ended_ms - found.began_ms) / 1000, 1),
        jobs=found.jobs,
    )


# --- recording runs ---------------------------------------------------------------------------------------------------
# The work is done when it is recorded. So a failure to record it is logged, and fails nothing.

SWEEP_COUNTS = (
    "entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "quarantined",
    "cleaned_partitions",
)  # fmt: skip


def tally_sweep(store: Store, clock: Clock, summary: Summary, by: TaskAttempt) -> None:
    """Record the sweep of one shard. What a dry run would do is recorded apart, for the list of runs."""
    work = sweep_work(summary, by, clock.now_ms())
    record(store, clock, replace(work, job=DRY_RUN) if summary.dry_run else work)


def tally_sweeps(store: Store, clock: Clock, summaries: Iterable[Summary], by: str) -> Iterator[Summary]:
    """Yield the summaries of a run outside Airflow, and record each shard as a task would. Sample at the end."""
    run_id, changed = uuid.uuid4().hex, False
    with bind_log_names(run=run_id):
        for summary in summaries:
            tally_sweep(store, clock, summary, TaskAttempt(by, run_id, f"{summary.strategy}.shard_{summary.shard}"))
            changed = changed or not summary.dry_run
            yield summary
    if changed:
        sample(store, clock)


def tally_reconciliation(store: Store, clock: Clock, report: ReportDocument, by: TaskAttempt) -> None:
    if not report.dry_run:
        amounts = {"runs": 1, **report.outcomes}
        details = ReconciliationDetails(
            records=report.records,
            spans=report.spans,
            oldest_age_s=report.oldest_age_s,
            problems=len(report.problems),
        )
        record(store, clock, AttemptFigures(RECONCILE, {}, by, amounts, clock.now_ms(), details=details))


def tally_scan(store: Store, clock: Clock, summary: LegacySummary, by: TaskAttempt) -> None:
    """Record one attempt of a table scan."""
    if not summary.dry_run:
        took_s = sum(summary.seconds.values())
        amounts = {name: getattr(summary.this_time, name) for name in ("versions", "deleted", "sentinels")}
        amounts |= {"runs": 1, "seconds": took_s}
        details = ScanDetails(ranges=summary.ranges, ranges_done=summary.ranges_done, stopped=summary.stopped)
        record(
            store, clock, AttemptFigures(LEGACY, {"table": summary.table}, by, amounts, clock.now_ms(), took_s, details)
        )


def tally_compaction(store: Store, clock: Clock, report: RoundReport, by: TaskAttempt) -> None:
    """Record a round of compaction on one node."""
    if not report.dry_run:
        amounts = {"runs": 1, "dropped": report.dropped, "bytes_rewritten": report.bytes_rewritten}
        details = CompactionDetails(
            tombstones=report.tombstones.after,
            near_failing=len(report.near_failing),
            kept=dict(report.kept),
        )
        record(
            store,
            clock,
            AttemptFigures(COMPACTION, {"node": report.node}, by, amounts, clock.now_ms(), details=details),
        )


def tally_operations(store: Store, clock: Clock, counts: OperationCounts, by: TaskAttempt) -> None:
    """Record what this process did to protections, by operation and outcome."""
    if any(counts.values()):
        amounts = {f"{operation}.{outcome}": number for (operation, outcome), number in counts.items()}
        record(store, clock, AttemptFigures(OPERATIONS, {}, by, amounts, clock.now_ms()))


@contextmanager
def tally_operations_in_block(store: Store, clock: Clock, by: TaskAttempt) -> Iterator[None]:
    """Count the operations on protections in this block, and record them however the block ends."""
    with collect_counts() as heard:
        try:
            yield
        finally:
            tally_operations(store, clock, heard, by)


def record(store: Store, clock: Clock, work: AttemptFigures) -> None:
    _log_failure("run_lost", "the figures of a run were not recorded", lambda: Tally(store, clock).record(work))


def sample(store: Store, clock: Clock) -> None:
    """Take a sample; a failure is logged."""
    _log_failure("sample_lost", "no sample was taken", lambda: take_sample(store, clock))


def push_metrics(store: Store, settings: Settings, clock: Clock) -> None:
    """Send all metrics to the collector that the settings name, if there is one; a failure is logged."""
    if settings.metrics_otlp_url:
        from sweep_tasks.metrics.otlp import push

        url = settings.metrics_otlp_url.get_secret_value()
        lost = "the collector did not accept the metrics"
        _log_failure("metrics_lost", lost, lambda: push(store, settings, clock, url))


def sweep_work(summary: Summary, by: TaskAttempt, ended_ms: int) -> AttemptFigures:
    took_s = sum(summary.seconds.values())
    amounts = {name: getattr(summary, name) for name in SWEEP_COUNTS}
    amounts |= {"runs": 1, "seconds": took_s, "timestamps": summary.progress - summary.progress_before}
    details = SweepDetails(
        entries=summary.entries,
        range_deletes=summary.range_deletes,
        progress=summary.progress,
        stopped=summary.stopped,
        engine=summary.engine or LOCAL,
    )
    labels = {"strategy": summary.strategy.value, "shard": str(summary.shard)}
    return AttemptFigures(SWEEP, labels, by, amounts, ended_ms, took_s, details)


def _log_failure(code: str, message: str, keep: Callable[[], object]) -> None:
    try:
        keep()
    except SweepflowError as error:
        log.warning(message, code=code, why=str(error))
