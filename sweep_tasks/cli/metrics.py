"""`sweepflow metrics`: prints or sends all metrics, and prints the dashboard and the alert rules."""

from __future__ import annotations

from typing import Annotated

import typer

from sweep_tasks.cli.command import Command, command
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import EXIT_UNAVAILABLE, BadValue, StoreError
from sweep_tasks.metrics import exporters
from sweep_tasks.metrics.values import DOWN, Value, values
from sweep_tasks.texts import printable_lines


def metrics(
    ctx: typer.Context,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print the Grafana dashboard; needs no store.")
    ] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print the alert rules for Prometheus; needs no store.")
    ] = False,
    otlp: Annotated[
        str | None, typer.Option(metavar="URL", help="Send the metrics to an OpenTelemetry collector.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print all metrics in Prometheus' text format; with --json as a list.

    If the store does not answer, the only metric is sweepflow_up 0, and the exit code is 4.
    """
    with command(ctx, store, as_json) as run:
        if sum((dashboard, rules, otlp is not None)) > 1:
            raise BadValue("metrics", "--dashboard, --rules and --otlp can't be combined; give one of them")
        if dashboard or rules:
            typer.echo(exporters.dashboard() if dashboard else exporters.rules(), nl=False)
            return
        if otlp is not None:
            from sweep_tasks.metrics.otlp import push

            sent = push(run.store, run.settings, SystemClock(), otlp)
            run.answer({"sent": sent}, lambda out: out.print(f"{sent} values sent"))
            return
        found = _values(run)
        document = [
            {"name": each.metric.prometheus, "labels": dict(each.labels), "value": each.value} for each in found
        ]
        run.answer({"metrics": document}, lambda _: typer.echo(printable_lines(exporters.as_text(found)), nl=False))
        if found == DOWN:
            raise typer.Exit(EXIT_UNAVAILABLE)


def _values(run: Command) -> list[Value]:
    """Read the metrics. A store that can't be opened is reported like one that does not answer."""
    try:
        return values(run.store, run.settings, SystemClock())
    except StoreError:
        return DOWN
