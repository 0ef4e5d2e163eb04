"""Declares every metric once: name, kind, unit, help and labels; and the alerts.

Prometheus, OpenTelemetry, Airflow's own stats, the dashboard, the alert rules and the page in docs/ are generated from
these declarations. Runs add counters up in the store, so they survive every process; gauges are read on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

PREFIX = "sweepflow"


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(NamedTuple):
    name: str
    kind: MetricKind
    unit: str
    """What is counted, or `seconds`."""
    help: str
    labels: tuple[str, ...] = ()
    stat: str | None = None
    """Its name in Airflow's stats, with labels in braces; without one, the parts of the name are joined by dots."""

    @property
    def prometheus(self) -> str:
        return f"{PREFIX}_{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"

    @property
    def family(self) -> str:
        """The name for OpenTelemetry and for Prometheus' client library: without the suffix of a counter."""
        return f"{PREFIX}_{self.name}"

    def airflow(self, labels: Mapping[str, str]) -> str:
        if self.stat:
            return self.stat.format(**labels)
        return ".".join([PREFIX, *self.name.split("_", 1), *(labels[name] for name in self.labels)])


class AlertRule(NamedTuple):
    name: str
    expression: str
    for_: str
    severity: str
    summary: str
    do: str


_QUEUE = ("strategy", "shard")
_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

SWEEP = {
    "runs": Metric("sweep_runs", _COUNTER, "runs", "Sweeps of a shard that ended, without dry runs", _QUEUE),
    "entries": Metric("sweep_entries", _COUNTER, "entries", "Queue entries processed for the first time", _QUEUE),
    "range_deletes": Metric("sweep_range_deletes", _COUNTER, "cells", "Cells that got a range tombstone", _QUEUE),
    "sentinels": Metric("sweep_sentinels", _COUNTER, "cells", "Cells that got a sentinel", _QUEUE),
    "aborted_deletes": Metric(
        "sweep_aborted_deletes", _COUNTER, "versions", "Versions of aborted writes deleted", _QUEUE
    ),
    "parked": Metric("sweep_parked", _COUNTER, "entries", "Entries newly parked", _QUEUE),
    "unparked": Metric("sweep_unparked", _COUNTER, "entries", "Parked entries that were processed", _QUEUE),
    "quarantined": Metric(
        "sweep_quarantined", _COUNTER, "entries", "Entries quarantined because they can't be read", _QUEUE
    ),
    "cleaned_partitions": Metric(
        "sweep_cleaned_partitions", _COUNTER, "partitions", "Fine partitions removed from the queue", _QUEUE
    ),
    "timestamps": Metric("sweep_timestamps", _COUNTER, "timestamps", "Timestamps that progress passed", _QUEUE),
    "seconds": Metric("sweep_seconds", _COUNTER, "seconds", "Time spent sweeping", _QUEUE),
}
_TABLE = ("table",)
LEGACY = {
    "runs": Metric("legacy_runs", _COUNTER, "runs", "Scans of a table that ended, without dry runs", _TABLE),
    "versions": Metric("legacy_versions", _COUNTER, "versions", "Versions examined by scans", _TABLE),
    "deleted": Metric("legacy_deleted", _COUNTER, "versions", "Versions deleted by scans", _TABLE),
    "sentinels": Metric("legacy_sentinels", _COUNTER, "cells", "Cells that got a sentinel from a scan", _TABLE),
    "seconds": Metric("legacy_seconds", _COUNTER, "seconds", "Time spent scanning", _TABLE),
}
_NODE = ("node",)
COMPACTION = {
    "runs": Metric("compaction_runs", _COUNTER, "runs", "Rounds on a node that ended, without dry runs", _NODE),
    "dropped": Metric(
        "compaction_dropped", _COUNTER, "tombstones", "Tombstones dropped by compactions", _NODE,
        f"{PREFIX}.compaction.{{node}}.dropped",
    ),
    "bytes_rewritten": Metric(
        "compaction_rewritten_bytes", _COUNTER, "bytes", "Bytes written by these compactions", _NODE
    ),
}  # fmt: skip
TOMBSTONES = Metric(
    "compaction_tombstones", _GAUGE, "tombstones", "Tombstones left on a node after its last round", _NODE,
    f"{PREFIX}.compaction.{{node}}.tombstones",
)  # fmt: skip
NEAR_FAILING = Metric(
    "compaction_near_failing", _GAUGE, "partitions", "Partitions of which reads are about to fail, at the last round",
    _NODE, f"{PREFIX}.compaction.{{node}}.near_failing",
)  # fmt: skip
KEPT = Metric(
    "compaction_kept", _GAUGE, "tombstones", "Tombstones left by the last round, by what keeps them",
    ("node", "blocker"), f"{PREFIX}.compaction.{{node}}.kept.{{blocker}}",
)  # fmt: skip
RECONCILED = Metric(
    "protection_reconciled", _COUNTER, "records", "Records reconciled with their owners, by outcome",
    ("outcome",), f"{PREFIX}.protection.reconciled.{{outcome}}",
)  # fmt: skip
OPERATIONS = Metric(
    "protection_operations", _COUNTER, "operations", "Operations on protections, by outcome",
    ("operation", "outcome"), f"{PREFIX}.protection.{{operation}}.{{outcome}}",
)  # fmt: skip

UP = Metric("up", _GAUGE, "1", "1 if the store answered")
HEALTH = Metric("health", _GAUGE, "1", "0: up to date, 1: needs attention, 2: behind")
TIMESTAMP = Metric("timestamp", _GAUGE, "timestamps", "The last timestamp handed out")
THRESHOLD = Metric(
    "threshold", _GAUGE, "timestamps", "The published threshold: reads below it are refused", ("strategy",)
)
OBJECTIVE = Metric("lag_objective_seconds", _GAUGE, "seconds", "The greatest lag that is allowed", ("strategy",))
LAG = Metric("lag_seconds", _GAUGE, "seconds", "Lag of a shard, by the clock", _QUEUE)
PROGRESS = Metric(
    "progress", _GAUGE, "timestamps", "Everything that started up to this timestamp is swept; -1: never swept", _QUEUE
)
BACKLOG = Metric("backlog_timestamps", _GAUGE, "timestamps", "Timestamps that are not swept yet", _QUEUE)
OPEN_TRANSACTIONS = Metric("open_transactions", _GAUGE, "transactions", "Transactions that hold a lease")
OLDEST_OPEN = Metric(
    "oldest_open_transaction_seconds", _GAUGE, "seconds", "Age of the oldest open transaction, where sweeps stop"
)
RECORDS = Metric(
    "protection_records", _GAUGE, "records", "Protection records", (), f"{PREFIX}.protection.records"
)  # fmt: skip
SPANS = Metric(
    "protection_spans", _GAUGE, "spans", "Tables and row ranges that these records cover", (),
    f"{PREFIX}.protection.spans",
)  # fmt: skip
OLDEST_RECORD = Metric(
    "protection_oldest_age_seconds", _GAUGE, "seconds", "Age of the oldest record", (),
    f"{PREFIX}.protection.oldest_age_s",
)  # fmt: skip
PROBLEMS = Metric(
    "protection_problems", _GAUGE, "problems", "Protections that need a decision, at the last reconciliation",
    (), f"{PREFIX}.protection.problems",
)  # fmt: skip
PARKED = Metric("parked_entries", _GAUGE, "entries", "Parked entries, when they were last counted", ("reason",))
QUARANTINED = Metric("quarantined_entries", _GAUGE, "entries", "Quarantined entries, when they were last counted")
COUNTED = Metric("counted_age_seconds", _GAUGE, "seconds", "Time since parked and quarantined entries were counted")

METRICS: tuple[Metric, ...] = (
    UP, HEALTH, LAG, OBJECTIVE, PROGRESS, BACKLOG, TIMESTAMP, THRESHOLD, OPEN_TRANSACTIONS, OLDEST_OPEN, RECORDS, SPANS,
    OLDEST_RECORD, PROBLEMS, PARKED, QUARANTINED, COUNTED, TOMBSTONES, NEAR_FAILING, KEPT, *SWEEP.values(),
    *LEGACY.values(), *COMPACTION.values(), RECONCILED, OPERATIONS,
)  # fmt: skip

ALERTS: tuple[AlertRule, ...] = (
    AlertRule(
        "SweepflowUnreachable", f"{UP.prometheus} == 0 or absent({UP.prometheus})", "5m", "critical",
        "the store did not answer for five minutes",
        "start the store, or correct its address; 'sweepflow status' shows the error",
    ),
    AlertRule(
        "SweepflowBehind",
        f"{LAG.prometheus} > on (strategy) group_left {OBJECTIVE.prometheus}", "5m", "critical",
        "{{ $labels.strategy }} shard {{ $labels.shard }} is further behind than its objective",
        "'sweepflow status' shows the cause",
    ),
    AlertRule(
        "SweepflowNothingSwept", f"sum(increase({SWEEP['runs'].prometheus}[3h])) == 0", "10m", "warning",
        "no sweep has ended in three hours", "check that the DAG targeted_sweep is not paused and does not fail",
    ),
    AlertRule(
        "SweepflowTransactionLeftOpen", f"{OLDEST_OPEN.prometheus} > 3600", "5m", "warning",
        "a transaction has been open for more than an hour, and sweeps stop at its start",
        "'sweepflow status' shows its owner; end that process",
    ),
    AlertRule(
        "SweepflowQuarantine", f"{QUARANTINED.prometheus} > 0", "15m", "warning",
        "queue entries can't be read and are quarantined", "'sweepflow queue quarantine list' shows the reasons",
    ),
    AlertRule(
        "SweepflowReplicasMissing", f'{PARKED.prometheus}{{reason="replicas"}} > 0', "2h", "warning",
        "deletes of thorough tables wait for replicas", "check whether a node is down, and repair it",
    ),
    AlertRule(
        "SweepflowProtections", f"{PROBLEMS.prometheus} > 0", "30m", "warning",
        "protections need a decision", "see the log of the task check in protected_timestamps",
    ),
    AlertRule(
        "SweepflowProtectionOperationsFail",
        f'sum by (operation) (increase({OPERATIONS.prometheus}{{outcome="failed"}}[1h])) > 0', "0m", "warning",
        "operations {{ $labels.operation }} on protections fail", "check that the store can be reached",
    ),
    AlertRule(
        "SweepflowReadsNearFailing", f"{NEAR_FAILING.prometheus} > 0", "10m", "critical",
        "reads on node {{ $labels.node }} are about to fail because of too many tombstones",
        "see the report of the last run of the DAG compaction for what keeps them",
    ),
    AlertRule(
        "SweepflowNotCounted", f"{COUNTED.prometheus} > 7200", "30m", "info",
        "parked and quarantined entries were not counted for two hours", "runs count them: check that they end",
    ),
)  # fmt: skip
