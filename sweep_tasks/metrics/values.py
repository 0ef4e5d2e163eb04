"""The current values of all metrics, from the status and the tally. All exporters use them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.diagnosis.problems import HEALTH_VALUES
from sweep_tasks.diagnosis.state import read_state
from sweep_tasks.diagnosis.status import ShardStatus, Status, status_of
from sweep_tasks.errors import StoreError
from sweep_tasks.metrics import declarations as metrics
from sweep_tasks.metrics.declarations import Metric
from sweep_tasks.metrics.samples import QueueSample
from sweep_tasks.metrics.tally import (
    COMPACTION,
    LEGACY,
    OPERATIONS,
    RECONCILE,
    SWEEP,
    LastCompaction,
    LastReconciliation,
    Series,
)
from sweep_tasks.protection import metrics as protection
from sweep_tasks.protection.reconciliation import RecordOutcome
from sweep_tasks.store.contract import Store

_SUMMED = {SWEEP: metrics.SWEEP, LEGACY: metrics.LEGACY, COMPACTION: metrics.COMPACTION}
_PARKED_FOR = ("grace", "protected", "retention", "replicas", "paused", "due")


class Value(NamedTuple):
    metric: Metric
    labels: Mapping[str, str]
    value: float


DOWN = [Value(metrics.UP, {}, 0)]
"""The values of a store that does not answer or can't be opened."""


def grouped(found: Iterable[Value]) -> dict[Metric, list[Value]]:
    """Return the values of every metric, in the order of their declaration; an empty list for one without values."""
    by_metric: dict[Metric, list[Value]] = {metric: [] for metric in metrics.METRICS}
    for value in found:
        by_metric[value.metric].append(value)
    return by_metric


def values(store: Store, settings: Settings, clock: Clock) -> list[Value]:
    """Return the values as of now; those of `DOWN` for a store that does not answer."""
    try:
        state = read_state(store, settings, clock)
    except StoreError:
        return DOWN
    found = status_of(state, settings)
    return [
        Value(metrics.UP, {}, 1),
        *_status_values(found),
        *_shard_values(found.shards),
        *(_sample_values(state.sample, state.now_ms) if state.sample else ()),
        *_tally_values(state.recorded.series),
    ]


def _status_values(found: Status) -> Iterator[Value]:
    """An age that is not known has no value: 0 would be wrong."""
    oldest = found.oldest_open_transaction
    single = {
        metrics.HEALTH: HEALTH_VALUES[found.health.verdict],
        metrics.TIMESTAMP: found.timestamp,
        metrics.OPEN_TRANSACTIONS: found.open_transactions,
        metrics.OLDEST_OPEN: oldest.age_s if oldest else 0,
        metrics.RECORDS: found.protections,
        metrics.SPANS: found.protection_limits.spans.used,
        metrics.OLDEST_RECORD: max((each.age_s or 0 for each in found.protection_records), default=0),
    }
    yield from (Value(metric, {}, value) for metric, value in single.items() if value is not None)
    for strategy, ts in found.thresholds.items():
        yield Value(metrics.THRESHOLD, {"strategy": strategy}, ts)
        yield Value(metrics.OBJECTIVE, {"strategy": strategy}, found.objectives[strategy])


def _shard_values(shards: Iterable[ShardStatus]) -> Iterator[Value]:
    for each in shards:
        labels = {"strategy": each.strategy, "shard": str(each.shard)}
        if each.lag_s is not None:
            yield Value(metrics.LAG, labels, each.lag_s)
        yield Value(metrics.PROGRESS, labels, each.progress)
        yield Value(metrics.BACKLOG, labels, each.backlog.timestamps)


def _sample_values(sample: QueueSample, now_ms: int) -> Iterator[Value]:
    for reason in _PARKED_FOR:
        yield Value(metrics.PARKED, {"reason": reason}, sample.parked.by_reason.get(reason, 0))
    yield Value(metrics.QUARANTINED, {}, sum(sample.quarantined.by_shard.values()))
    yield Value(metrics.COUNTED, {}, max(0, now_ms - sample.at_ms) // 1000)


def _tally_values(recorded: Collection[Series]) -> Iterator[Value]:
    """Counters that are 0 are included: Prometheus sees no increase of a counter that begins at 1."""
    for outcome in RecordOutcome:
        yield Value(metrics.RECONCILED, {"outcome": outcome.value}, _sum(recorded, RECONCILE, outcome.value))
    for operation, end in product(protection.OPERATIONS, protection.OUTCOMES):
        number = _sum(recorded, OPERATIONS, f"{operation}.{end}")
        yield Value(metrics.OPERATIONS, {"operation": operation, "outcome": end}, number)
    for series in recorded:
        for name, metric in _SUMMED.get(series.job, {}).items():
            yield Value(metric, series.labels, series.sums.get(name, 0))
        if isinstance(series.last, LastCompaction):
            yield Value(metrics.TOMBSTONES, series.labels, series.last.tombstones)
            yield Value(metrics.NEAR_FAILING, series.labels, series.last.near_failing)
            for blocker, number in series.last.kept.items():
                yield Value(metrics.KEPT, {**series.labels, "blocker": blocker}, number)
        elif isinstance(series.last, LastReconciliation):
            yield Value(metrics.PROBLEMS, {}, series.last.problems)


def _sum(recorded: Iterable[Series], job: str, name: str) -> float:
    return sum(series.sums.get(name, 0) for series in recorded if series.job == job)
