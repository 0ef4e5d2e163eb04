"""`sweepflow demo`: a shop's store with six hours of history, swept, and a report of what that did."""

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
from rich.console import Console

from spark_jobs.environment import java_problem
from sweep_tasks.cli.airflow import DEFAULT_FOLDER as AIRFLOW_FOLDER
from sweep_tasks.cli.command import JsonOption, command
from sweep_tasks.cli.steps import Steps
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.demo import report
from sweep_tasks.demo.engines import sweep_by_spark, sweep_here
from sweep_tasks.demo.measure import Measured, measure
from sweep_tasks.demo.place import DEFAULT_FOLDER, Place
from sweep_tasks.demo.through_airflow import ENDED, OTHER_TASKS, Telling, run_dag, running_airflow, sweep_tasks
from sweep_tasks.demo.workload import MINUTES, Loaded, load
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.observation.entering import enter_sweep, sample
from sweep_tasks.observation.tally import COMMAND, Try
from sweep_tasks.opening import open_store
from sweep_tasks.orchestration.local_airflow import LocalAirflow
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.queue.encoding import MAX_SHARDS
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store

Document = dict[str, Any]
Sweep = Callable[[Store, Settings, Steps], list[Document]]
_WORTH_SAYING = ("running", "up_for_retry")


class Engine(StrEnum):
    SPARK = "spark"
    LOCAL = "local"


def demo(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option(help="Where the demo's store is made; one from before is replaced.")] = (
        DEFAULT_FOLDER
    ),
    engine: Annotated[
        Engine, typer.Option(help="spark: a job for each strategy and shard; local: this process.")
    ] = Engine.SPARK,
    shards: Annotated[int, typer.Option(min=1, max=MAX_SHARDS, help="Queues of each strategy.")] = 2,
    airflow: Annotated[
        bool, typer.Option("--airflow", help="By a run of the targeted_sweep DAG, in an Airflow started for it.")
    ] = False,
    only_load: Annotated[
        bool, typer.Option("--only-load", help="Make the store if there is none yet, and sweep nothing.")
    ] = False,
    one_behind: Annotated[
        bool, typer.Option("--one-behind", help="With --only-load: sweep a new store, all but one shard of it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fill a new store with six hours of a shop's history, sweep it, and report what went and what stays, and why."""
    with command(ctx, None, as_json) as run:
        if airflow and engine is Engine.LOCAL:
            raise BadValue("engine", "Airflow's tasks run on Spark; leave out --engine or --airflow")
        if engine is Engine.SPARK and not only_load:
            check_java()
        if one_behind and not only_load:
            raise BadValue("one_behind", "is for a store that is only loaded; give --only-load as well")
        place = Place(folder)
        settings = load_settings(store=place.url, shards=shards)
        steps = Steps()
        if only_load:
            run.answer(_only_load(place, settings, steps, one_behind), lambda out: None)
            return
        with _airflow(settings, steps) if airflow else nullcontext(_ENGINES[engine]) as sweep:
            found = _demonstrate(place, settings, steps, sweep)
        found |= {"engine": engine.value, "airflow": airflow}
        run.answer(found, lambda out: _show(out, found))


def check_java() -> None:
    problem = java_problem()
    if problem:
        raise problem


def _only_load(place: Place, settings: Settings, steps: Steps, one_behind: bool) -> Document:
    """The open transaction ends with this process."""
    new = not place.exists()
    if new:
        with _opened_anew(place, settings, steps) as store:
            load_history(store, settings, steps).report.close()
            if one_behind:
                _sweep_but_one(store, settings, steps)
    else:
        steps.say(f"{place.url} is there already and stays as it is")
    return {"store": place.url, "created": new}


def _sweep_but_one(store: Store, settings: Settings, steps: Steps) -> None:
    """As if the task of one shard had failed ever since: something for an operator to find and to mend."""
    with steps.step("sweeping all shards but one") as step:
        left = SweepStrategy.CONSERVATIVE, settings.shards - 1
        summaries = list(sweep_here(store, settings, SystemClock(), leave_out=left))
        by = Try(COMMAND, secrets.token_hex(8), "demo")
        for summary in summaries:
            enter_sweep(store, SystemClock(), summary, by)
        sample(store, SystemClock())
        step.done = f"{len(summaries)} shards are swept; {left[0]} shard {left[1]} is left behind"


def _opened_anew(place: Place, settings: Settings, steps: Steps) -> Store:
    """A power cut may cost the demo's last moments: that is worth the seconds."""
    hasty = settings.model_copy(update={"sqlite_durability": "normal"})
    if place.make_anew(hasty):
        steps.say(f"{place.url} is from an earlier demo and is replaced")
    return open_store(place.url, hasty)


def load_history(store: Store, settings: Settings, steps: Steps, business_every: int = 1) -> Loaded:
    with steps.step(f"living through {MINUTES // 60} hours of a shop", total=MINUTES) as step:
        loaded = load(
            store, settings, SystemClock(), settings.shards, business_every=business_every, on_minute=step.reach
        )
        step.done = (
            f"{MINUTES // 60} hours of a shop's history: {loaded.transactions:,} transactions, {loaded.writes:,} writes"
        )
    return loaded


def _demonstrate(place: Place, settings: Settings, steps: Steps, sweep: Sweep) -> Document:
    with _opened_anew(place, settings, steps) as store:
        loaded = load_history(store, settings, steps)
        try:
            before = measured(store, steps, "before")
            summaries = sweep(store, settings, steps)
            after = measured(store, steps, "after")
            found = report.document(store, settings, SystemClock(), summaries, before, after)
        finally:
            loaded.report.close()
    return {"store": place.url} | found


def measured(store: Store, steps: Steps, when: str) -> Measured:
    with steps.step(f"measuring the store {when} the sweep") as step:
        found = measure(store)
        step.done = f"{when} the sweep: {sum(found.versions.values()):,} versions of {found.cells:,} cells"
    return found


# --- engines ----------------------------------------------------------------------------------------------------


def _locally(store: Store, settings: Settings, steps: Steps) -> list[Document]:
    with steps.step("sweeping in this process") as step:
        summaries = list(sweep_here(store, settings, SystemClock()))
        step.done = f"{len(summaries)} sweeps in this process"
    return summaries


def _by_spark(store: Store, settings: Settings, steps: Steps) -> list[Document]:  # noqa: ARG001
    total = len(QUEUES) * settings.shards
    summaries: list[Document] = []
    with steps.step("Spark", total=total) as step:
        for summary in sweep_by_spark(settings, step.now):
            summaries.append(summary)
            step.reach(len(summaries))
        step.done = f"{total} Spark jobs, one for each strategy and shard"
    return summaries


@contextmanager
def _airflow(settings: Settings, steps: Steps) -> Iterator[Sweep]:
    """Before anything else: its folder may be in use, and then a store would be replaced under somebody's eyes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as until_the_end:
        with steps.step("starting Airflow") as step:
            airflow = until_the_end.enter_context(running_airflow(AIRFLOW_FOLDER, settings, step.now))
            step.done = "Airflow is up: API server, scheduler, dag processor, triggerer"
        try:
            yield functools.partial(through, airflow)
        finally:
            with steps.step("stopping Airflow") as step:
                until_the_end.close()
                step.done = "Airflow is stopped"


def through(
    airflow: LocalAirflow,
    store: Store,  # noqa: ARG001
    settings: Settings,
    steps: Steps,
    run: Callable[[LocalAirflow, int, Telling], list[Document]] = run_dag,
) -> list[Document]:
    ended: set[str] = set()
    with steps.step(TARGETED_SWEEP, total=len(sweep_tasks(settings.shards)) + OTHER_TASKS) as step:

        def on_change(task: str, state: str) -> None:
            if state in ENDED:
                ended.add(task)
                step.reach(len(ended))
            if state in ENDED or state in _WORTH_SAYING:
                steps.say(f"    {task} {state.replace('_', ' ')}")

        summaries = run(airflow, settings.shards, on_change)
        step.done = f"{len(ended)} tasks of {TARGETED_SWEEP}, one Spark job for each strategy and shard"
    return summaries


_ENGINES: dict[Engine, Sweep] = {Engine.LOCAL: _locally, Engine.SPARK: _by_spark}


def _show(out: Console, found: Document) -> None:
    report.show(out, found)
    out.print(
        "\nThe demo's open transaction has ended with it. What it held back goes now with\n"
        f"  sweepflow sweep --store {found['store']}\n"
        "and how far every shard is, shows\n"
        f"  sweepflow status --store {found['store']}",
        highlight=False,
    )
