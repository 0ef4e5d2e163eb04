"""Sends all metrics to an OpenTelemetry collector over HTTP, once. Scheduled runs push them regularly.

The counters are those of the store, so every push sends the same sums, whichever process makes it. Their start time is
that of the store and not of the process: otherwise the collector would treat every push as a counter reset.
"""

from __future__ import annotations

import logging

from opentelemetry.exporter.otlp.proto.http import metric_exporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.errors import StoreError, SweepflowError
from sweep_tasks.metrics.declarations import PREFIX, Metric, MetricKind
from sweep_tasks.metrics.values import Value, grouped, values
from sweep_tasks.store.contract import Store
from sweep_tasks.texts import without_secrets

logging.getLogger(metric_exporter.__name__).addFilter(lambda _: False)
"""The exporter logs the URL with its secrets. A filter stays in place when logging is configured again."""

_UNITS = {"seconds": "s", "1": "1"}
_NS = 1_000_000
TIMEOUT_S = 10.0


def push(store: Store, settings: Settings, clock: Clock, endpoint: str, timeout_s: float | None = None) -> int:
    """Send all values to `endpoint`, such as http://collector:4318/v1/metrics. Return how many."""
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    found = values(store, settings, clock)
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=timeout_s)
    try:
        data = as_data(found, _started_ms(store, clock), clock.now_ms())
        if exporter.export(data, timeout_millis=timeout_s * 1000) is not MetricExportResult.SUCCESS:
            shown = without_secrets(endpoint)
            raise SweepflowError(
                f"metrics: {shown} did not accept the metrics; check that an OpenTelemetry collector listens there, "
                "the usual path is /v1/metrics",
                code="unavailable",
                retryable=True,
                endpoint=shown,
            )
    finally:
        exporter.shutdown()
    return len(found)


def as_data(found: list[Value], started_ms: int, now_ms: int) -> MetricsData:
    converted = [_converted(metric, these, started_ms, now_ms) for metric, these in grouped(found).items() if these]
    scope = ScopeMetrics(InstrumentationScope(PREFIX), converted, "")
    return MetricsData([ResourceMetrics(Resource({"service.name": PREFIX}), [scope], "")])


def _started_ms(store: Store, clock: Clock) -> int:
    """Return the time of the first clock sample: no counter is older, and it never changes."""
    try:
        first = ClockHistory(store).first()
    except StoreError:
        first = None  # then there are no counters either
    return first.wall_ms if first else clock.now_ms()


def _converted(metric: Metric, found: list[Value], started_ms: int, now_ms: int) -> OtlpMetric:
    counter = metric.kind is MetricKind.COUNTER
    points = [
        NumberDataPoint(dict(value.labels), (started_ms if counter else now_ms) * _NS, now_ms * _NS, value.value)
        for value in found
    ]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if counter else Gauge(points)
    return OtlpMetric(metric.family, metric.help, _UNITS.get(metric.unit, f"{{{metric.unit}}}"), data)
