"""`sweepflow scenario run`: operations as JSON lines, one outcome a line."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sweep_tasks.cli.command import JsonOption, StoreOption, command, lines_of
from sweep_tasks.errors import EXIT_FAILED, NotYet
from sweep_tasks.scenario.runner import run_scenario
from sweep_tasks.store import initialise_store

app = typer.Typer(help="Rules at work, step by step.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Rules at work, step by step."""


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


@app.command()
def run(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - reads them from standard input.")],
    store: StoreOption = None,
    engine: Annotated[Engine, typer.Option(help="What sweeps.")] = Engine.LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and print the outcome of each operation as a JSON line.

    Without --store everything happens in memory; a store that holds data goes on with it. Ends with 1 if any operation
    failed.
    """
    with command(ctx, store, as_json, default_store="memory:") as running:
        if engine is Engine.SPARK:
            raise NotYet("engine: spark is not part of this version; use local")
        initialise_store(running.settings.store, running.settings)
        failed = False
        for outcome in run_scenario(lines_of(file), running.store, running.settings):
            print(json.dumps(outcome), flush=True)
            failed = failed or "error" in outcome
        if failed:
            raise typer.Exit(EXIT_FAILED)
