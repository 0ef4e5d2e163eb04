"""`sweepflow scenario run`: runs operations given as JSON lines, and prints one outcome per line."""

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
from sweep_tasks.cli.command import Command, command, lines_of
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.errors import EXIT_FAILED
from sweep_tasks.scenario.engines import LocalEngine, SweepEngine
from sweep_tasks.scenario.runner import initialise_if_missing, mark_for_scenarios, run_scenario
from sweep_tasks.store import StoreLocation

app = typer.Typer(help="Run scenarios: operations as JSON lines.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Run scenarios: operations as JSON lines."""


class ScenarioEngine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


@app.command()
def run(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - reads them from standard input.")],
    store: StoreOption = None,
    engine: Annotated[ScenarioEngine, typer.Option(help="What carries out the sweeps.")] = ScenarioEngine.LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and print the outcome of each operation as a JSON line.

    Without --store the store is in memory. A store that does not exist is created for scenarios. A store that a
    scenario created is used with its data; any other store is refused. The exit code is 1 if any operation failed.
    """
    with ExitStack() as stack, command(ctx, store, as_json, default_store="memory:") as running:
        sweeping: SweepEngine = LocalEngine()
        if engine is ScenarioEngine.SPARK:
            sweeping = stack.enter_context(_on_spark(running))
        if initialise_if_missing(running.settings.store, running.settings):
            mark_for_scenarios(running.store)
        failed = False
        for outcome in run_scenario(lines_of(file), running.store, running.settings, sweeping):
            print(json.dumps(outcome), flush=True)
            failed = failed or "error" in outcome
        if failed:
            raise typer.Exit(EXIT_FAILED)


@contextmanager
def _on_spark(running: Command) -> Iterator[SweepEngine]:
    """Start Spark. Its workers are other processes and can't use this process's memory, so a temporary file replaces a
    store in memory."""
    problem = java_problem()
    if problem:
        raise problem
    from spark_jobs.job import local_session
    from sweep_tasks.cli.spark_engine import SparkEngine

    with tempfile.TemporaryDirectory() as folder:
        if not StoreLocation.parse(running.settings.store).is_persistent:
            running.use_store(f"sqlite:///{folder}/store.db")
        spark = local_session("scenario")
        try:
            yield SparkEngine(spark, running.settings)
        finally:
            spark.stop()
