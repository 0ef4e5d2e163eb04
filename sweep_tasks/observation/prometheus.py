"""All metrics as Prometheus reads them: for an endpoint of the page, and for `sweepflow metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.metrics import Kind
from sweep_tasks.observation.values import Value, grouped, values
from sweep_tasks.store.contract import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily}


def exposition(store: Store, settings: Settings, clock: Clock) -> str:
    """In as many store calls as the status takes."""
    return as_text(values(store, settings, clock))


def as_text(found: Iterable[Value]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Found(list(found)))
    return generate_latest(registry).decode()


class _Found(Collector):
    def __init__(self, found: list[Value]) -> None:
        self._found = found

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric, found in grouped(self._found).items():
            family = _FAMILIES[metric.kind](metric.family, metric.help, labels=metric.labels)
            for value in found:
                family.add_metric([value.labels[name] for name in metric.labels], value.value)
            yield family
