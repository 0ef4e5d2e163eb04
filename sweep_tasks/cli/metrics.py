"""`sweepflow metrics`: every figure as Prometheus reads it, or to a collector; and what is made of their names."""

from __future__ import annotations

from typing import Annotated

import typer

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import EXIT_UNAVAILABLE, BadValue, StoreError
from sweep_tasks.observation import grafana
from sweep_tasks.observation.prometheus import as_text
from sweep_tasks.observation.values import DOWN, Value, values


def metrics(
    ctx: typer.Context,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="The dashboard for Grafana; needs no store.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="The alert rules for Prometheus; needs no store.")] = False,
    otlp: Annotated[
        str | None, typer.Option(metavar="URL", help="Send them to an OpenTelemetry collector instead.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print all figures in Prometheus' text format; with --json as a list.

    A store that does not answer is a figure too, sweepflow_up 0; then the exit code is 4.
    """
    with command(ctx, store, as_json) as run:
        if sum((dashboard, rules, otlp is not None)) > 1:
            raise BadValue("metrics", "--dashboard, --rules and --otlp exclude each other; give one of them")
        if dashboard or rules:
            typer.echo(grafana.dashboard() if dashboard else grafana.rules(), nl=False)
            return
        if otlp is not None:
            from sweep_tasks.observation.otlp import push

            sent = push(run.store, run.settings, SystemClock(), otlp)
            run.answer({"sent": sent}, lambda out: out.print(f"{sent} values sent"))
            return
        found = _values(run)
        document = [
            {"name": each.metric.prometheus, "labels": dict(each.labels), "value": each.value} for each in found
        ]
        run.answer({"metrics": document}, lambda _: typer.echo(as_text(found), nl=False))
        if found == DOWN:
            raise typer.Exit(EXIT_UNAVAILABLE)


def _values(run: Command) -> list[Value]:
    """A store that can't even be opened is told like one that stopped answering."""
    try:
        return values(run.store, run.settings, SystemClock())
    except StoreError:
        return DOWN
