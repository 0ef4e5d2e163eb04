"""All metrics to an OpenTelemetry collector, over HTTP. Once: whoever runs regularly pushes regularly.

The counters are those of the store, so every push tells the same sums whoever makes it. They began with the store and
not with the process that pushes: told otherwise, a collector would take every push for a counter that was reset.
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
from opentelemetry.sdk.metrics.export import Metric as Told
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import MetricsNotTaken, StoreError
from sweep_tasks.metrics import PREFIX, Kind, Metric
from sweep_tasks.observation.values import Value, grouped, values
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.puncher import Puncher

logging.getLogger(metric_exporter.__name__).addFilter(lambda _: False)
"""It repeats the address, with the secrets in it. A filter outlasts whoever configures logging anew."""

_UNITS = {"seconds": "s", "1": "1"}
_NS = 1_000_000
TIMEOUT_S = 10.0


def push(store: Store, settings: Settings, clock: Clock, endpoint: str, timeout_s: float | None = None) -> int:
    """How many values went out to `endpoint`, such as http://collector:4318/v1/metrics."""
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    found = values(store, settings, clock)
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=timeout_s)
    try:
        told = as_data(found, _began_ms(store, clock), clock.now_ms())
        if exporter.export(told, timeout_millis=timeout_s * 1000) is not MetricExportResult.SUCCESS:
            raise MetricsNotTaken(endpoint)
    finally:
        exporter.shutdown()
    return len(found)


def as_data(found: list[Value], began_ms: int, now_ms: int) -> MetricsData:
    told = [_told(metric, of_it, began_ms, now_ms) for metric, of_it in grouped(found).items() if of_it]
    scope = ScopeMetrics(InstrumentationScope(PREFIX), told, "")
    return MetricsData([ResourceMetrics(Resource({"service.name": PREFIX}), [scope], "")])


def _began_ms(store: Store, clock: Clock) -> int:
    """The first moment on record: no counter is older, and it stays the same."""
    try:
        first = Puncher(store).first()
    except StoreError:
        first = None  # then no counter is told either
    return first.wall_ms if first else clock.now_ms()


def _told(metric: Metric, found: list[Value], began_ms: int, now_ms: int) -> Told:
    counter = metric.kind is Kind.COUNTER
    points = [
        NumberDataPoint(dict(value.labels), (began_ms if counter else now_ms) * _NS, now_ms * _NS, value.value)
        for value in found
    ]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if counter else Gauge(points)
    return Told(metric.family, metric.help, _UNITS.get(metric.unit, f"{{{metric.unit}}}"), data)
