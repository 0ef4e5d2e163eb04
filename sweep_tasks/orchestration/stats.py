"""Figures of tasks, sent where Airflow sends its own (StatsD, OpenTelemetry), under the declared names.

The process of a task ends before Prometheus could fetch figures from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.observability import stats

from sweep_tasks.diagnosis.problems import HEALTH_VALUES
from sweep_tasks.diagnosis.status import Status
from sweep_tasks.metrics import declarations as metrics
from sweep_tasks.metrics.samples import sweep_work
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.protection.metrics import collect_counts
from sweep_tasks.sweep.summary import Summary

if TYPE_CHECKING:
    from sweep_tasks.compaction.documents import RoundReport
    from sweep_tasks.protection.reconciliation import ReportDocument


@contextmanager
def send_operations() -> Iterator[None]:
    """Send the number of operations of the block by outcome, however it ends; 0 for those that did not happen."""
    with collect_counts() as heard:
        try:
            yield
        finally:
            for (operation, outcome), number in heard.items():
                stats.incr(metrics.OPERATIONS.airflow({"operation": operation, "outcome": outcome}), number)


def send_report(report: ReportDocument) -> None:
    """Send the figures of a reconciliation: the number of records, and how many had which outcome."""
    stats.gauge(metrics.RECORDS.airflow({}), report.records)
    stats.gauge(metrics.SPANS.airflow({}), report.spans)
    stats.gauge(metrics.OLDEST_RECORD.airflow({}), report.oldest_age_s)
    stats.gauge(metrics.PROBLEMS.airflow({}), len(report.problems))
    for outcome, number in report.outcomes.items():
        stats.incr(metrics.RECONCILED.airflow({"outcome": outcome}), number)


def send_sweep(summary: Summary, by: TaskAttempt) -> None:
    """Send the figures of one shard, unless it was a dry run."""
    if not summary.dry_run:
        done = sweep_work(summary, by, 0)
        for name, metric in metrics.SWEEP.items():
            stats.incr(metric.airflow(done.labels), round(done.amounts[name]))


def send_status(status: Status) -> None:
    """Send the state of the store once a run: what the page and the command show."""
    stats.gauge(metrics.HEALTH.airflow({}), HEALTH_VALUES[status.health.verdict])
    for shard in status.shards:
        labels = {"strategy": shard.strategy, "shard": str(shard.shard)}
        if shard.lag_s is not None:
            stats.gauge(metrics.LAG.airflow(labels), shard.lag_s)
        stats.gauge(metrics.BACKLOG.airflow(labels), shard.backlog.timestamps)


def send_compaction(report: RoundReport) -> None:
    """Send the figures of a node's round: what was removed, what is left, and which reads are about to fail."""
    node = {"node": report.node.replace(".", "_")}
    stats.incr(metrics.COMPACTION["dropped"].airflow(node), 0 if report.dry_run else report.dropped)
    stats.gauge(metrics.TOMBSTONES.airflow(node), report.tombstones.after)
    stats.gauge(metrics.NEAR_FAILING.airflow(node), len(report.near_failing))
    for blocker, number in report.kept.items():
        stats.gauge(metrics.KEPT.airflow(node | {"blocker": blocker}), number)
