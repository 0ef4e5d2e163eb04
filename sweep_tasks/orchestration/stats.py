"""What tasks did, told to wherever Airflow sends its own figures (StatsD, OpenTelemetry), under the declared names.

A task's process ends before anybody could fetch Prometheus' figures from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.observability import stats

from sweep_tasks import metrics
from sweep_tasks.observation.entering import sweep_done
from sweep_tasks.observation.health import HEALTH_VALUES, Verdict
from sweep_tasks.observation.tally import Try
from sweep_tasks.protection.metrics import listening


@contextmanager
def operations_told() -> Iterator[None]:
    """Every operation by how it ended, however the block ends; those that did not happen as nought."""
    with listening() as heard:
        try:
            yield
        finally:
            for name, number in heard.items():
                operation, outcome = name.split(".")
                stats.incr(metrics.OPERATIONS.airflow({"operation": operation, "outcome": outcome}), number)


def tell_report(document: Mapping[str, Any]) -> None:
    """Of a reconciliation: how many there are and what became of them."""
    single = {metrics.RECORDS: "records", metrics.SPANS: "spans", metrics.OLDEST_RECORD: "oldest_age_s"}
    for metric, name in single.items():
        stats.gauge(metric.airflow({}), document[name])
    stats.gauge(metrics.PROBLEMS.airflow({}), len(document["problems"]))
    for outcome, number in document["outcomes"].items():
        stats.incr(metrics.RECONCILED.airflow({"outcome": outcome}), number)


def tell_sweep(summary: Mapping[str, Any], by: Try) -> None:
    """Of one shard; a dry run did nothing."""
    if not summary["dry_run"]:
        done = sweep_done(summary, by, 0)
        for name, metric in metrics.SWEEP.items():
            stats.incr(metric.airflow(done.labels), round(done.amounts[name]))


def tell_status(document: Mapping[str, Any]) -> None:
    """How the store is: what the page and the command show, once a run."""
    stats.gauge(metrics.HEALTH.airflow({}), HEALTH_VALUES[Verdict(document["health"]["verdict"])])
    for shard in document["shards"]:
        labels = {"strategy": shard["strategy"], "shard": str(shard["shard"])}
        if shard["lag_s"] is not None:
            stats.gauge(metrics.LAG.airflow(labels), shard["lag_s"])
        stats.gauge(metrics.BACKLOG.airflow(labels), shard["backlog"]["timestamps"])


def tell_compaction(document: Mapping[str, Any]) -> None:
    """Of a node's round: what went, what is left, and what is about to fail."""
    node = {"node": document["node"].replace(".", "_")}
    stats.incr(metrics.COMPACTION["dropped"].airflow(node), 0 if document["dry_run"] else document["dropped"])
    stats.gauge(metrics.TOMBSTONES.airflow(node), document["tombstones"]["after"])
    stats.gauge(metrics.NEAR_FAILING.airflow(node), len(document["near_failing"]))
    for blocker, number in document["kept"].items():
        stats.gauge(metrics.KEPT.airflow(node | {"blocker": blocker}), number)
