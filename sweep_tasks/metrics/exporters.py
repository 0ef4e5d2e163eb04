"""Exports metrics to Prometheus, and generates the dashboard, the alert rules and the tables of docs/."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.metrics import declarations as metrics
from sweep_tasks.metrics.declarations import ALERTS, METRICS, AlertRule, Metric, MetricKind
from sweep_tasks.metrics.values import Value, grouped, values
from sweep_tasks.store.contract import Store

# --- Prometheus -------------------------------------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.GAUGE: GaugeMetricFamily}


def exposition(store: Store, settings: Settings, clock: Clock) -> str:
    """Return all metrics in Prometheus' text format. Takes as many store calls as the status."""
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


# --- the Grafana dashboard and Prometheus' alert rules, generated from the declarations -------------------------------

JsonObject = dict[str, Any]
_GRAFANA_UNITS = {"seconds": "s", "1": "none"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


GROUPS: dict[str, tuple[Metric, ...]] = {
    "Health": (metrics.UP, metrics.HEALTH, metrics.COUNTED),
    "Progress": (
        metrics.LAG, metrics.OBJECTIVE, metrics.BACKLOG, metrics.PROGRESS, metrics.TIMESTAMP, metrics.THRESHOLD,
    ),
    "What holds sweeps back": (
        metrics.OPEN_TRANSACTIONS, metrics.OLDEST_OPEN, metrics.PARKED, metrics.QUARANTINED, metrics.RECORDS,
        metrics.SPANS, metrics.OLDEST_RECORD, metrics.PROBLEMS,
    ),
    "Sweeps": tuple(metrics.SWEEP.values()),
    "Protections": (metrics.RECONCILED, metrics.OPERATIONS),
    "Table scans": tuple(metrics.LEGACY.values()),
    "Compaction": (metrics.TOMBSTONES, metrics.NEAR_FAILING, metrics.KEPT, *metrics.COMPACTION.values()),
}  # fmt: skip
"""The rows of the dashboard, the most urgent first."""
SINGLE_SHARDS = "Selected shards"
"""The title of the last row."""
BY_SHARD = (metrics.LAG, metrics.BACKLOG, metrics.SWEEP["entries"], metrics.SWEEP["seconds"])
_SHARDS = 'strategy=~"$strategy", shard=~"$shard"'


class Panel(NamedTuple):
    metric: Metric
    title: str
    expression: str
    legend: str
    unit: str


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    document = {
        "title": "sweepflow",
        "uid": "sweepflow",
        "tags": ["sweepflow"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _choice("strategy", "strategy"),
                _choice("shard", 'strategy=~"$strategy"'),
            ]
        },
        "panels": list(_laid_out()),
    }
    return json.dumps(document, indent=2) + "\n"


def rows() -> dict[str, list[Panel]]:
    """Return the panels by row: one panel for each metric, then the selected shards. Gauges show the worst shard of a
    strategy, counters are shown as rates."""
    grouped = {title: [_of(metric) for metric in these] for title, these in GROUPS.items()}
    return grouped | {SINGLE_SHARDS: [_of_shard(metric) for metric in BY_SHARD]}


def panels() -> list[Panel]:
    return [panel for row in rows().values() for panel in row]


def _choice(label: str, within: str) -> JsonObject:
    """Return a variable that selects some or all values of a label."""
    every = metrics.PROGRESS.prometheus  # of lag, which may be unknown, there may be no value
    asked = every if label == "strategy" else f"{every}{{{within}}}"
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({asked}, {label})",
        "refresh": 2,
        "sort": 3,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _of(metric: Metric) -> Panel:
    by = tuple(name for name in metric.labels if name != "shard")
    grouping = f" by ({', '.join(by)})" if by else ""
    legend = " ".join(f"{{{{{name}}}}}" for name in by) or metric.name.replace("_", " ")
    if metric.kind is MetricKind.COUNTER:
        expression = f"sum{grouping} (rate({metric.prometheus}[$__rate_interval]))"
        return Panel(metric, f"{metric.help}, per second", expression, legend, "short")
    worst = "min" if metric is metrics.PROGRESS else "max"
    unit = _GRAFANA_UNITS.get(metric.unit, "short")
    return Panel(metric, metric.help, f"{worst}{grouping} ({metric.prometheus})", legend, unit)


def _of_shard(metric: Metric) -> Panel:
    chosen, legend = f"{metric.prometheus}{{{_SHARDS}}}", "{{strategy}} {{shard}}"
    if metric.kind is MetricKind.COUNTER:
        return Panel(metric, f"{metric.help}, per second", f"rate({chosen}[$__rate_interval])", legend, "short")
    return Panel(metric, metric.help, chosen, legend, _GRAFANA_UNITS.get(metric.unit, "short"))


def _laid_out() -> Iterator[JsonObject]:
    """Yield each row with its title, followed by its panels, three in a line."""
    number, y = 0, 0
    for title, row in rows().items():
        number += 1
        place = {"x": 0, "y": y, "w": _WIDTH * _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}
        y += 1
        for at, panel in enumerate(row):
            line, column = divmod(at, _COLUMNS)
            number += 1
            yield _panel(number, panel, column * _WIDTH, y + line * _HEIGHT)
        y += -(-len(row) // _COLUMNS) * _HEIGHT


def _panel(number: int, panel: Panel, x: int, y: int) -> JsonObject:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": f"{panel.metric.prometheus} ({panel.metric.unit})",
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": panel.expression, "legendFormat": panel.legend}],
    }


def rules(alerts: Iterable[AlertRule] = ALERTS) -> str:
    """Return the rules as Prometheus loads them. JSON is valid YAML, and needs no special quoting."""
    group = {
        "name": "sweepflow",
        "rules": [
            {
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.for_,
                "labels": {"severity": alert.severity},
                "annotations": alert_texts(alert),
            }
            for alert in alerts
        ],
    }
    return json.dumps({"groups": [group]}, indent=2) + "\n"


def alert_texts(alert: AlertRule) -> dict[str, str]:
    """Return the texts of an alert; Prometheus replaces the labels."""
    return {"summary": alert.summary, "description": f"What to do: {alert.do}."}


def table() -> str:
    """Return the table of all metrics for docs/."""
    lines = ["| metric | kind | unit | labels | meaning |", "| --- | --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        lines.append(f"| `{metric.prometheus}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


def alert_table() -> str:
    lines = ["| alert | for | severity | when | what to do |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.for_} | {each.severity} | {each.summary} | {each.do} |" for each in ALERTS]
    return "\n".join(lines) + "\n"
