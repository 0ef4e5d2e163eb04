"""The `sweepflow` command: its commands, the options of all of them, and `init`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sweep_tasks.cli import (
    airflow,
    clock,
    compaction,
    demo,
    deploy,
    dev,
    doctor,
    explain,
    journal,
    legacy_sweep,
    metrics,
    pauses,
    protections,
    queue,
    scenario,
    status,
    sweep,
    tables,
)
from sweep_tasks.cli.command import JsonOption, SharedOptions, StoreOption, command
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
app.add_typer(clock.app, name="clock")
app.add_typer(scenario.app, name="scenario")
app.add_typer(compaction.app, name="compaction")
compaction.app.command("ranges")(compaction.show_ranges)
compaction.app.command("vacuum")(compaction.vacuum)
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
app.add_typer(journal.app, name="journal")
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
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the traceback of an unexpected error.")] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """Sweep old versions from multi-version key-value stores.

    Exit codes: 0 done; 1 failed; 2 bad input; 3 not found; 4 the store is missing, not initialised, locked or
    unreachable; 5 conflict (exists already, or another process was first); 6 something needs attention ('status',
    'journal verify'); 7 a shard is behind ('status'); 70 a bug in sweepflow; 130 interrupted by Ctrl-C.
    """
    ctx.obj = SharedOptions(store, as_json, traceback)


@app.command()
def init(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Create the tables of a store, or upgrade a store of an older version. Safe to repeat."""
    with command(ctx, store, as_json) as run:
        created = initialise_store(run.settings.store, run.settings)
        where = str(StoreLocation.parse(run.settings.store))
        run.answer(
            {"store": where, "created": created},
            lambda out: out.print(f"{where} is {'initialised' if created else 'up to date'}"),
        )


def main() -> None:
    app()
