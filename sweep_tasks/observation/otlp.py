"""All metrics to an OpenTelemetry collector, over HTTP. Once: whoever runs regularly pushes regularly.

The counters are those of the store, so every push tells the same sums whoever makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import MetricsNotTaken
from sweep_tasks.metrics import METRICS, PREFIX, Kind, Metric
from sweep_tasks.observation.values import Value, values
from sweep_tasks.store.contract import Store

_UNITS = {"seconds": "s", "1": "1"}


def push(store: Store, settings: Settings, clock: Clock, endpoint: str, timeout_s: float = 10.0) -> int:
    """How many values went out to `endpoint`, such as http://collector:4318/v1/metrics."""
    found = values(store, settings, clock)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], resource=Resource({"service.name": PREFIX}), shutdown_on_exit=False)
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=timeout_s)
    try:
        _declare(provider, found)
        told = reader.get_metrics_data()
        if told is None or exporter.export(told, timeout_millis=timeout_s * 1000) is not MetricExportResult.SUCCESS:
            raise MetricsNotTaken(endpoint)
    finally:
        exporter.shutdown()
        provider.shutdown()
    return len(found)


def _declare(provider: MeterProvider, found: Iterable[Value]) -> None:
    by_metric: dict[Metric, list[Value]] = {}
    for value in found:
        by_metric.setdefault(value.metric, []).append(value)
    meter = provider.get_meter(PREFIX)
    for metric in METRICS:
        create = meter.create_observable_counter if metric.kind is Kind.COUNTER else meter.create_observable_gauge
        unit = _UNITS.get(metric.unit, f"{{{metric.unit}}}")
        create(metric.family, [_observed(by_metric.get(metric, []))], unit, metric.help)


def _observed(found: list[Value]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(value.value, dict(value.labels)) for value in found]
