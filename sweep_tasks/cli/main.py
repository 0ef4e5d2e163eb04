"""The root of the `sweepflow` command."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sweep_tasks.cli import (
    airflow,
    compaction,
    demo,
    deploy,
    dev,
    doctor,
    explain,
    legacy_sweep,
    metrics,
    pauses,
    protections,
    queue,
    ranges,
    scenario,
    status,
    sweep,
    tables,
    vacuum,
)
from sweep_tasks.cli.command import JsonOption, StoreOption, command
from sweep_tasks.store import StoreLocation, initialise_store

app = typer.Typer(
    name="sweepflow",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(tables.app, name="tables")
app.add_typer(queue.app, name="queue")
app.add_typer(scenario.app, name="scenario")
app.add_typer(compaction.app, name="compaction")
compaction.app.command("ranges")(ranges.show_ranges)
compaction.app.command("vacuum")(vacuum.vacuum)
app.add_typer(airflow.app, name="airflow")
app.add_typer(deploy.app, name="deploy")
app.add_typer(dev.app, name="dev")
app.command()(demo.demo)
app.command()(sweep.sweep)
app.command()(doctor.doctor)
app.command()(legacy_sweep.legacy_sweep)
app.command()(status.status)
app.command()(explain.explain)
app.command()(metrics.metrics)
app.command()(pauses.pause)
app.command()(pauses.resume)
app.command()(pauses.journal)
app.command()(protections.protect)
app.command()(protections.release)
app.add_typer(protections.app, name="protections")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sweepflow {version('sweepflow')}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    store: StoreOption = None,
    as_json: JsonOption = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where a defect happened.")] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """Sweeping for multi-version key-value stores.

    Exit codes: 0 done; 1 failed; 2 bad input; 3 not found; 4 the store is not initialised, locked or unreachable;
    5 conflict (exists already, or somebody else was first); 6 and 7 of 'status': somebody should look, a shard is
    behind; 70 a defect of sweepflow.
    """
    ctx.obj = {"store": store, "as_json": as_json, "traceback": traceback}


@app.command()
def init(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Create what a store needs, or bring one of an older version up. Safe to repeat."""
    with command(ctx, store, as_json) as run:
        created = initialise_store(run.settings.store, run.settings)
        where = str(StoreLocation.parse(run.settings.store))
        run.answer(
            {"store": where, "created": created},
            lambda out: out.print(f"{where} is {'initialised' if created else 'ready, nothing to do'}"),
        )


def main() -> None:
    app()
