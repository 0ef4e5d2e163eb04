"""A Grafana dashboard and Prometheus' alert rules, made from the declarations: what is not declared can't be shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from sweep_tasks import metrics
from sweep_tasks.metrics import ALERTS, METRICS, Alert, Kind, Metric

Document = dict[str, Any]
_UNITS = {"seconds": "s", "1": "none"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


class Panel(NamedTuple):
    metric: Metric
    title: str
    expression: str
    legend: str
    unit: str


def dashboard() -> str:
    """As Grafana imports it."""
    document = {
        "title": "sweepflow",
        "uid": "sweepflow",
        "tags": ["sweepflow"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels())],
    }
    return json.dumps(document, indent=2) + "\n"


def panels() -> list[Panel]:
    """One for each metric: gauges as they are, the worst of a strategy's shards; counters as rates."""
    return [_of(metric) for metric in METRICS]


def _of(metric: Metric) -> Panel:
    by = tuple(name for name in metric.labels if name != "shard")
    grouping = f" by ({', '.join(by)})" if by else ""
    legend = " ".join(f"{{{{{name}}}}}" for name in by) or metric.name.replace("_", " ")
    if metric.kind is Kind.COUNTER:
        expression = f"sum{grouping} (rate({metric.prometheus}[$__rate_interval]))"
        return Panel(metric, f"{metric.help}, per second", expression, legend, "short")
    worst = "min" if metric is metrics.PROGRESS else "max"
    unit = _UNITS.get(metric.unit, "short")
    return Panel(metric, metric.help, f"{worst}{grouping} ({metric.prometheus})", legend, unit)


def _panel(number: int, panel: Panel) -> Document:
    line, column = divmod(number, _COLUMNS)
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": f"{panel.metric.prometheus} ({panel.metric.unit})",
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expression, "legendFormat": panel.legend}],
    }


def rules(alerts: Iterable[Alert] = ALERTS) -> str:
    """As Prometheus loads them: JSON is YAML, and needs no care with quotes."""
    group = {
        "name": "sweepflow",
        "rules": [
            {
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.for_,
                "labels": {"severity": alert.severity},
                "annotations": {"summary": alert.summary, "description": f"What to do: {alert.do}."},
            }
            for alert in alerts
        ],
    }
    return json.dumps({"groups": [group]}, indent=2) + "\n"


def table() -> str:
    """The page in docs/: every metric with its kind, unit and labels."""
    lines = ["| metric | kind | unit | labels | meaning |", "| --- | --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        lines.append(f"| `{metric.prometheus}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


def alert_table() -> str:
    lines = ["| alert | for | severity | when | what to do |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.for_} | {each.severity} | {each.summary} | {each.do} |" for each in ALERTS]
    return "\n".join(lines) + "\n"
