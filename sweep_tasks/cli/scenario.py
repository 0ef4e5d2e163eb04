"""`sweepflow scenario run`: operations as JSON lines, one outcome a line."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spark_jobs.environment import java_problem
from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command, lines_of
from sweep_tasks.errors import EXIT_FAILED
from sweep_tasks.scenario.engines import LocalEngine, SweepEngine
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
    with ExitStack() as until_the_end, command(ctx, store, as_json, default_store="memory:") as running:
        sweeping: SweepEngine = LocalEngine()
        if engine is Engine.SPARK:
            sweeping = until_the_end.enter_context(_on_spark(running))
        initialise_store(running.settings.store, running.settings)
        failed = False
        for outcome in run_scenario(lines_of(file), running.store, running.settings, sweeping):
            print(json.dumps(outcome), flush=True)
            failed = failed or "error" in outcome
        if failed:
            raise typer.Exit(EXIT_FAILED)


@contextmanager
def _on_spark(running: Command) -> Iterator[SweepEngine]:
    """Spark's workers are other processes and can't see this one's memory: without a store it is a file of its own."""
    problem = java_problem()
    if problem:
        raise problem
    from spark_jobs.session import local_session
    from sweep_tasks.cli.spark_engine import SparkEngine

    with tempfile.TemporaryDirectory() as folder:
        if running.settings.store.startswith("memory:"):
            running.use_store(f"sqlite:///{folder}/store.db")
        spark = local_session("scenario")
        try:
            yield SparkEngine(spark, running.settings)
        finally:
            spark.stop()
