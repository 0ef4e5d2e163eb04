"""The values of all metrics, from the status document and the tally: what every way of exporting them shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from sweep_tasks import metrics
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import StoreError
from sweep_tasks.metrics import Metric
from sweep_tasks.observation import status
from sweep_tasks.observation.entering import COMPACTION, LEGACY, OPERATIONS, RECONCILE, SWEEP
from sweep_tasks.observation.facts import read_facts
from sweep_tasks.observation.health import HEALTH_VALUES, Verdict
from sweep_tasks.observation.tally import Series
from sweep_tasks.protection import metrics as protection
from sweep_tasks.protection.report import Outcome
from sweep_tasks.store.contract import Store

_SUMMED = {SWEEP: metrics.SWEEP, LEGACY: metrics.LEGACY, COMPACTION: metrics.COMPACTION}
_PARKED_FOR = ("grace", "protected", "retention", "replicas", "paused", "due")


class Value(NamedTuple):
    metric: Metric
    labels: Mapping[str, str]
    value: float


DOWN = [Value(metrics.UP, {}, 0)]
"""All that is known of a store that does not answer, or can't be opened."""


def grouped(found: Iterable[Value]) -> dict[Metric, list[Value]]:
    """Of every metric its values, of those without any an empty list, in the order of their declaration."""
    by_metric: dict[Metric, list[Value]] = {metric: [] for metric in metrics.METRICS}
    for value in found:
        by_metric[value.metric].append(value)
    return by_metric


def values(store: Store, settings: Settings, clock: Clock) -> list[Value]:
    """As of now. A store that does not answer is a value too."""
    try:
        facts = read_facts(store, settings, clock)
    except StoreError:
        return DOWN
    document = status.document(facts, settings)
    return [
        Value(metrics.UP, {}, 1),
        *_of_status(document),
        *_of_shards(document["shards"]),
        *_of_sample(document, facts.sample),
        *_of_tally(facts.entered.series),
    ]


def _of_status(document: Mapping[str, Any]) -> Iterator[Value]:
    """An age that nobody knows is not nought, and is not there."""
    oldest = document["oldest_open_transaction"]
    ages = [each["age_s"] or 0 for each in document["protection_records"]]
    single = {
        metrics.HEALTH: HEALTH_VALUES[Verdict(document["health"]["verdict"])],
        metrics.TIMESTAMP: document["timestamp"],
        metrics.OPEN_TRANSACTIONS: document["open_transactions"],
        metrics.OLDEST_OPEN: oldest["age_s"] if oldest else 0,
        metrics.RECORDS: document["protections"],
        metrics.SPANS: document["protection_limits"]["spans"]["used"],
        metrics.OLDEST_RECORD: max(ages, default=0),
    }
    yield from (Value(metric, {}, value) for metric, value in single.items() if value is not None)
    for strategy, ts in document["thresholds"].items():
        yield Value(metrics.THRESHOLD, {"strategy": strategy}, ts)
        yield Value(metrics.OBJECTIVE, {"strategy": strategy}, document["objectives"][strategy])


def _of_shards(shards: Iterable[Mapping[str, Any]]) -> Iterator[Value]:
    for each in shards:
        labels = {"strategy": each["strategy"], "shard": str(each["shard"])}
        if each["lag_s"] is not None:
            yield Value(metrics.LAG, labels, each["lag_s"])
        yield Value(metrics.PROGRESS, labels, each["progress"])
        yield Value(metrics.BACKLOG, labels, each["backlog"]["timestamps"])


def _of_sample(document: Mapping[str, Any], sample: Mapping[str, Any] | None) -> Iterator[Value]:
    """Nothing before it was ever counted: nought would be a guess."""
    if sample is None:
        return
    for reason in _PARKED_FOR:
        yield Value(metrics.PARKED, {"reason": reason}, document["parked"]["by_reason"].get(reason, 0))
    yield Value(metrics.QUARANTINED, {}, document["quarantined"]["total"])
    yield Value(metrics.COUNTED, {}, max(0, document["now_ms"] - sample["at_ms"]) // 1000)


def _of_tally(entered: Collection[Series]) -> Iterator[Value]:
    """Counts that are nought are there too: an increase from nothing is seen by nobody."""
    for outcome in Outcome:
        yield Value(metrics.RECONCILED, {"outcome": outcome.value}, _sum(entered, RECONCILE, outcome.value))
    for operation, end in product(protection.OPERATIONS, protection.OUTCOMES):
        number = _sum(entered, OPERATIONS, f"{operation}.{end}")
        yield Value(metrics.OPERATIONS, {"operation": operation, "outcome": end}, number)
    for series in entered:
        if series.job in _SUMMED:
            for name, metric in _SUMMED[series.job].items():
                yield Value(metric, series.labels, series.sums.get(name, 0))
        if series.job == COMPACTION:
            yield Value(metrics.TOMBSTONES, series.labels, series.last["tombstones"])
            yield Value(metrics.NEAR_FAILING, series.labels, series.last["near_failing"])
            for blocker, number in series.last["kept"].items():
                yield Value(metrics.KEPT, {**series.labels, "blocker": blocker}, number)
        elif series.job == RECONCILE:
            yield Value(metrics.PROBLEMS, {}, series.last["problems"])


def _sum(entered: Iterable[Series], job: str, name: str) -> float:
    return sum(series.sums.get(name, 0) for series in entered if series.job == job)
