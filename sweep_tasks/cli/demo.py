"""`sweepflow demo`: create a store with six hours of a shop's history, sweep it, and report the result."""

from __future__ import annotations

import functools
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from spark_jobs.environment import java_problem
from sweep_tasks.cli.airflow import DEFAULT_FOLDER as AIRFLOW_FOLDER
from sweep_tasks.cli.command import Console, Steps, command
from sweep_tasks.cli.options import JsonOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.demo.engines import (
    ENDED,
    OTHER_TASKS,
    TaskChange,
    run_airflow,
    run_dag,
    sweep_by_spark,
    sweep_here,
    sweep_tasks,
)
from sweep_tasks.demo.measure import Measured, measure
from sweep_tasks.demo.report import DemoReport, report_on, show
from sweep_tasks.demo.workload import DEFAULT_FOLDER, MINUTES, DemoFolder, Loaded, load
from sweep_tasks.errors import BadValue
from sweep_tasks.extras import require
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.metrics.samples import sample, tally_sweep
from sweep_tasks.metrics.tally import COMMAND, TaskAttempt
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.queue.encoding import MAX_SHARDS
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.sweep.summary import Summary

JsonObject = dict[str, Any]
SweepFunction = Callable[[Store, Settings, Steps], list[Summary]]
_SHOWN_STATES = ("running", "up_for_retry")


class DemoEngine(StrEnum):
    SPARK = "spark"
    LOCAL = "local"


def demo(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option(help="The folder of the demo's store; an earlier one is replaced.")] = (
        DEFAULT_FOLDER
    ),
    engine: Annotated[
        DemoEngine, typer.Option(help="spark: a job for each strategy and shard; local: this process.")
    ] = DemoEngine.SPARK,
    shards: Annotated[int, typer.Option(min=1, max=MAX_SHARDS, help="Queues of each strategy.")] = 2,
    airflow: Annotated[
        bool, typer.Option("--airflow", help="Sweep by a run of the targeted_sweep DAG, in a temporary Airflow.")
    ] = False,
    only_load: Annotated[
        bool, typer.Option("--only-load", help="Create the store if there is none yet, and sweep nothing.")
    ] = False,
    one_behind: Annotated[
        bool, typer.Option("--one-behind", help="With --only-load: sweep all shards but one of a new store.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fill a new store with six hours of a shop's history, sweep it, and report what was removed, what stays, and
    why."""
    with command(ctx, None, as_json) as run:
        if airflow and engine is DemoEngine.LOCAL:
            raise BadValue("engine", "Airflow's tasks run on Spark; leave out --engine or --airflow")
        if engine is DemoEngine.SPARK and not only_load:
            check_java()
        if one_behind and not only_load:
            raise BadValue("one_behind", "needs --only-load; give both options")
        place = DemoFolder(folder)
        settings = load_settings(store=place.url, shards=shards)
        steps = Steps()
        if only_load:
            run.answer(_only_load(place, settings, steps, one_behind), lambda out: None)
            return
        with _start_airflow(settings, steps) if airflow else nullcontext(_ENGINES[engine]) as sweep:
            found = _run_demo(place, settings, steps, sweep)
        found = found.model_copy(update={"engine": engine.value, "airflow": airflow})
        run.answer(found.document(), lambda out: _show(out, found))


def check_java() -> None:
    require("pyspark")
    problem = java_problem()
    if problem:
        raise problem


def _only_load(place: DemoFolder, settings: Settings, steps: Steps, one_behind: bool) -> JsonObject:
    """Create the store unless it exists. Its open transaction ends with this process."""
    new = not place.exists()
    if new:
        with _open_new_store(place, settings, steps) as store:
            load_history(store, settings, steps).report.close()
            if one_behind:
                _sweep_but_one(store, settings, steps)
    else:
        steps.say(f"{place.url} exists already and is not changed")
    return {"store": place.url, "created": new}


def _sweep_but_one(store: Store, settings: Settings, steps: Steps) -> None:
    """Leave one shard out, as if its task had always failed: a problem for an operator to find and fix."""
    with steps.step("sweeping all shards but one") as step:
        left = SweepStrategy.CONSERVATIVE, settings.shards - 1
        summaries = list(sweep_here(store, settings, SystemClock(), leave_out=left))
        by = TaskAttempt(COMMAND, secrets.token_hex(8), "demo")
        for summary in summaries:
            tally_sweep(store, SystemClock(), summary, by)
        sample(store, SystemClock())
        step.done = f"{len(summaries)} shards are swept; {left[0]} shard {left[1]} is behind"


def _open_new_store(place: DemoFolder, settings: Settings, steps: Steps) -> Store:
    """Create the store again and open it. A power failure may destroy it, which is fine for a demo and much faster."""
    if place.recreate(settings):
        steps.say(f"{place.url} is from an earlier demo and is replaced")
    return SQLiteStore(place.file, busy_timeout_s=settings.sqlite_busy_timeout_s, durability="off")


def load_history(store: Store, settings: Settings, steps: Steps, business_every: int = 1) -> Loaded:
    with steps.step(f"writing {MINUTES // 60} hours of a shop's history", total=MINUTES) as step:
        loaded = load(
            store, settings, SystemClock(), settings.shards, business_every=business_every, on_minute=step.advance_to
        )
        step.done = (
            f"{MINUTES // 60} hours of a shop's history: {loaded.transactions:,} transactions, {loaded.writes:,} writes"
        )
    return loaded


def _run_demo(place: DemoFolder, settings: Settings, steps: Steps, sweep: SweepFunction) -> DemoReport:
    with _open_new_store(place, settings, steps) as store:
        loaded = load_history(store, settings, steps)
        try:
            before = measure_store(store, steps, "before")
            summaries = sweep(store, settings, steps)
            after = measure_store(store, steps, "after")
            found = report_on(store, settings, SystemClock(), summaries, before, after)
        finally:
            loaded.report.close()
    return found.model_copy(update={"store": place.url})


def measure_store(store: Store, steps: Steps, when: str) -> Measured:
    with steps.step(f"measuring the store {when} the sweep") as step:
        found = measure(store)
        step.done = f"{when} the sweep: {sum(found.versions.values()):,} versions of {found.cells:,} cells"
    return found


# --- engines ----------------------------------------------------------------------------------------------------


def _sweep_locally(store: Store, settings: Settings, steps: Steps) -> list[Summary]:
    with steps.step("sweeping in this process") as step:
        summaries = list(sweep_here(store, settings, SystemClock()))
        step.done = f"{len(summaries)} sweeps in this process"
    return summaries


def _sweep_on_spark(store: Store, settings: Settings, steps: Steps) -> list[Summary]:  # noqa: ARG001
    total = len(QUEUES) * settings.shards
    summaries: list[Summary] = []
    with steps.step("Spark", total=total) as step:
        for summary in sweep_by_spark(settings, step.now):
            summaries.append(summary)
            step.advance_to(len(summaries))
        step.done = f"{total} Spark jobs, one for each strategy and shard"
    return summaries


@contextmanager
def _start_airflow(settings: Settings, steps: Steps) -> Iterator[SweepFunction]:
    """Start Airflow before anything else: its folder may be in use, and then the store must not be replaced."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as until_the_end:
        with steps.step("starting Airflow") as step:
            airflow = until_the_end.enter_context(run_airflow(AIRFLOW_FOLDER, settings, step.now))
            step.done = "Airflow is up: API server, scheduler, dag processor, triggerer"
        try:
            yield functools.partial(sweep_by_airflow, airflow)
        finally:
            with steps.step("stopping Airflow") as step:
                until_the_end.close()
                step.done = "Airflow is stopped"


def sweep_by_airflow(
    airflow: LocalAirflow,
    store: Store,  # noqa: ARG001
    settings: Settings,
    steps: Steps,
    run: Callable[[LocalAirflow, int, TaskChange], list[Summary]] = run_dag,
) -> list[Summary]:
    ended: set[str] = set()
    with steps.step(TARGETED_SWEEP, total=len(sweep_tasks(settings.shards)) + OTHER_TASKS) as step:

        def on_change(task: str, state: str) -> None:
            if state in ENDED:
                ended.add(task)
                step.advance_to(len(ended))
            if state in ENDED or state in _SHOWN_STATES:
                steps.say(f"    {task} {state.replace('_', ' ')}")

        summaries = run(airflow, settings.shards, on_change)
        step.done = f"{len(ended)} tasks of {TARGETED_SWEEP}, one Spark job for each strategy and shard"
    return summaries


_ENGINES: dict[DemoEngine, SweepFunction] = {DemoEngine.LOCAL: _sweep_locally, DemoEngine.SPARK: _sweep_on_spark}


def _show(out: Console, report: DemoReport) -> None:
    show(out, report)
    out.print(
        "\nThe open transaction of the demo has ended. To remove what it held back:\n"
        f"  sweepflow sweep --store {report.store}\n"
        "To show the progress of every shard:\n"
        f"  sweepflow status --store {report.store}",
        highlight=False,
    )
