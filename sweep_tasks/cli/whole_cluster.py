"""`sweepflow dev cluster`: the parts of docker-compose.yaml as processes of this machine, and one hourly sweep by them.

PostgreSQL for Airflow's metadata, a Spark master with two workers, three Cassandra nodes, Airflow; the demo's history
in the store, one run of the schedule, and a look whether all that must stay is still there. Everything is stopped at
the end, whatever the end is.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sweep_tasks.catalog import Catalog
from sweep_tasks.cli.command import JsonOption, StoreOption, command
from sweep_tasks.cli.demo import check_java, load_history, measured, through
from sweep_tasks.cli.steps import Steps
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.demo import report
from sweep_tasks.demo.through_airflow import TASKS_AT_ONCE, run_scheduled_dag
from sweep_tasks.demo.unharmed import everything, harm, readable_moments
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.dev.postgres import LocalPostgres, postgres_programs
from sweep_tasks.dev.spark import HERE, LocalSpark
from sweep_tasks.errors import BadValue, JobFailed, PartNotReady, SweptTooMuch
from sweep_tasks.opening import open_store
from sweep_tasks.orchestration.local_airflow import LocalAirflow
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store, initialise_store

DEFAULT_FOLDER = Path(".sweepflow", "cluster")
SHARDS = 2
WORKERS = 2
CORES_OF_A_WORKER = 2
"""Each strategy is swept on two cores, both at once: as in docker-compose.yaml, whatever this machine has."""
SPARK_IS_UP = "Spark is up"
ALL_IS_STOPPED = "everything is stopped"
_HEAP = "512m"
_KEYSPACE = "sweepflow"
_HOUR = timedelta(hours=1)
_BUSINESS_EVERY = 4
"""Minutes: a transaction on three nodes of one small machine takes a hundred times as long as on SQLite."""

Document = dict[str, Any]


def cluster(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Option(help="Where the parts work and keep their logs; what an earlier run left is replaced.")
    ] = DEFAULT_FOLDER,
    nodes: Annotated[int, typer.Option(min=1, max=3, help="Cassandra nodes, 1 or 3, each with all data.")] = 3,
    stay: Annotated[bool, typer.Option("--stay", help="Leave everything up after the sweep, until Ctrl-C.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start what docker-compose.yaml starts, without containers, run one hourly sweep across it, and stop it all.

    With --store no Cassandra is started; the store named must be new or empty.
    """
    with command(ctx, store, as_json) as run:
        check_java()
        postgres_programs()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        given = store or (ctx.obj or {}).get("store")
        with _claimed(folder), _started(folder.absolute(), given, nodes, Steps()) as whole:
            found = whole.swept()
            run.answer(found, lambda out: _show(out, found))
            if stay:
                sys.stdout.flush()
                whole.wait()


class _Whole:
    """All parts, up and healthy."""

    def __init__(self, airflow: LocalAirflow, spark: LocalSpark, settings: Settings, steps: Steps) -> None:
        self._airflow = airflow
        self._spark = spark
        self._settings = settings
        self._steps = steps

    def swept(self) -> Document:
        """One hourly run over the demo's history; raises if it removed nothing, or too much."""
        with open_store(self._settings.store, self._settings) as store:
            loaded = load_history(store, self._settings, self._steps, _BUSINESS_EVERY)
            try:
                return {"store": self._settings.store} | self._sweep(store)
            finally:
                loaded.report.close()

    def _sweep(self, store: Store) -> Document:
        was, before = everything(store), measured(store, self._steps, "before")
        summaries = through(self._airflow, store, self._settings, self._steps, run_scheduled_dag)
        after = measured(store, self._steps, "after")
        with self._steps.step("looking whether all that must stay is there") as step:
            now = everything(store)
            moments = readable_moments(store)  # after the data: whatever a sweep takes is published before
            if found := harm(was, now, moments):
                raise SweptTooMuch(f"sweep: {len(found)} of the moments looked at read differently now: {found[0]}")
            step.done = f"all that can still be read is there, at {len(set().union(*moments.values()))} moments"
        document = report.document(store, self._settings, SystemClock(), summaries, before, after)
        _check_removed(document["shards"])
        return document | {"moments": {str(table): len(asked) for table, asked in moments.items()}}

    def wait(self) -> None:
        """Until Ctrl-C."""
        user, password = self._airflow.secrets.admin
        self._steps.say(
            f"\nAirflow is at {self._airflow.address}, user {user}, password {password}\n"
            f"Spark's master is {self._spark.address}\nthe store is {self._settings.store}\nCtrl-C stops everything."
        )
        try:
            while True:
                self._airflow.check()
                self._spark.check()
                time.sleep(1)
        except KeyboardInterrupt:
            self._steps.say("")


def _check_removed(shards: list[Document]) -> None:
    removed = {strategy: sum(each["removed"] for each in shards if each["strategy"] == strategy) for strategy in QUEUES}
    idle = [strategy.value for strategy, versions in removed.items() if versions <= 0]
    if idle:
        raise JobFailed(f"sweep: no version of a {' or '.join(idle)} table went, although hours of them are old enough")


# --- parts ------------------------------------------------------------------------------------------------------


@contextmanager
def _started(folder: Path, store: str | None, nodes: int, steps: Steps) -> Iterator[_Whole]:
    """In the order of docker-compose.yaml: what others need comes first, and is stopped last."""
    with ExitStack() as parts:
        try:
            url = store or _cassandra(folder / "cassandra", nodes, parts, steps)
            settings = _settings(url, folder)
            with steps.step("sweepflow init") as step:
                initialise_store(url, settings)
                _check_empty(settings)
                step.done = f"the store {url} is initialised"
            with steps.step("starting Spark") as step:
                spark = parts.enter_context(_spark(folder / "spark"))
                step.done = f"{SPARK_IS_UP}: a master and {WORKERS} workers"
            with steps.step("starting PostgreSQL") as step:
                postgres = parts.enter_context(LocalPostgres(folder / "postgres.log"))
                step.done = "PostgreSQL is up"
            with steps.step("starting Airflow") as step:
                airflow = parts.enter_context(_airflow(folder / "airflow", settings, spark, postgres, step.now))
                step.done = (
                    "Airflow is up, with its metadata in PostgreSQL: API server, scheduler, dag processor, triggerer"
                )
            yield _Whole(airflow, spark, settings, steps)
        finally:
            with steps.step("stopping everything") as step:
                parts.close()
                step.done = ALL_IS_STOPPED


def _check_empty(settings: Settings) -> None:
    """Nobody's data is swept by way of trial."""
    with open_store(settings.store, settings) as store:
        if Catalog(store).list():
            raise BadValue("store", "holds tables already; name one that is new or empty", reason="not_empty")


def _cassandra(folder: Path, nodes: int, parts: ExitStack, steps: Steps) -> str:
    with steps.step("starting Cassandra") as step:
        nodes_here = LocalCluster(folder, nodes, dies_with_parent=True, say=step.now)
        nodes_here.stop(remove=True)
        parts.enter_context(nodes_here)
        step.done = f"Cassandra is up: {nodes} node{'s' if nodes > 1 else ''}"
    return nodes_here.url(_KEYSPACE)


def _settings(url: str, folder: Path) -> Settings:
    """The schedule begins with the last full hour: its run is made at once."""
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return load_settings(
        store=url,
        shards=SHARDS,
        sweep_tasks_at_once=1,
        catch_up_from=this_hour - _HOUR,
        task_retry_delay_s=5,
        task_folder=folder / "tasks",
    )


def _spark(folder: Path) -> LocalSpark:
    shutil.rmtree(folder, ignore_errors=True)
    return LocalSpark(folder, WORKERS, cores=CORES_OF_A_WORKER, memory="2g", cores_of_a_job=CORES_OF_A_WORKER)


def _airflow(
    folder: Path, settings: Settings, spark: LocalSpark, postgres: LocalPostgres, say: Callable[[str], None]
) -> LocalAirflow:
    shutil.rmtree(folder, ignore_errors=True)
    variables = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.address,
        "SPARK_LOCAL_IP": HERE,
        "SPARK_DRIVER_MEMORY": _HEAP,
        "SPARK_EXECUTOR_MEMORY": _HEAP,
    }
    return LocalAirflow(
        folder, settings, spark_master=spark.address, tasks_at_once=TASKS_AT_ONCE, variables=variables, say=say
    )


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Two at once in one folder would take each other's parts away. The kernel gives the claim back however we end."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "claim").open("ab") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PartNotReady(
                f"folder: {folder} is in use by a cluster that is still up; stop that one, or name another folder",
                field="folder",
                reason="in_use",
            ) from None
        yield


def _show(out: Console, found: Document) -> None:
    report.show(out, found)
    went = sum(each["removed"] for each in found["shards"])
    out.print(
        f"\nOne hourly run, {len(found['shards'])} shards, all of them well: {went:,} versions went, and whatever can "
        "still be read reads as before.",
        highlight=False,
    )
