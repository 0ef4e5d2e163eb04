"""What a task did to protections and to nodes, told to wherever Airflow sends its own figures (StatsD, OpenTelemetry).

A task's process ends before anybody could fetch Prometheus' figures from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.observability import stats

from sweep_tasks.protection.metrics import operations

PREFIX = "sweepflow.protection"
COMPACTION = "sweepflow.compaction"


@contextmanager
def operations_told() -> Iterator[None]:
    """Every operation by how it ended, however the block ends; those that did not happen as nought."""
    before = _counts()
    try:
        yield
    finally:
        for name, number in _counts().items():
            stats.incr(f"{PREFIX}.{name}", int(number - before[name]))


def tell_report(document: Mapping[str, Any]) -> None:
    """Of a reconciliation: how many there are and what became of them."""
    for name in ("records", "spans", "oldest_age_s"):
        stats.gauge(f"{PREFIX}.{name}", document[name])
    stats.gauge(f"{PREFIX}.problems", len(document["problems"]))
    for outcome, number in document["outcomes"].items():
        stats.incr(f"{PREFIX}.reconciled.{outcome}", number)


def tell_compaction(document: Mapping[str, Any]) -> None:
    """Of a node's round: what went, what is left, and what is about to fail."""
    node = document["node"].replace(".", "_")
    stats.incr(f"{COMPACTION}.{node}.dropped", 0 if document["dry_run"] else document["dropped"])
    stats.gauge(f"{COMPACTION}.{node}.tombstones", document["tombstones"]["after"])
    stats.gauge(f"{COMPACTION}.{node}.near_failing", len(document["near_failing"]))
    for blocker, number in document["kept"].items():
        stats.gauge(f"{COMPACTION}.{node}.kept.{blocker}", number)


def _counts() -> dict[str, float]:
    samples = [sample for family in operations.collect() for sample in family.samples if sample.name.endswith("_total")]
    return {f"{each.labels['operation']}.{each.labels['outcome']}": each.value for each in samples}
