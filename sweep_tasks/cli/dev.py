"""`sweepflow dev`: real servers on this machine, each alone or all as one cluster."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sweep_tasks.cli.command import Console, Steps, command, escape
from sweep_tasks.cli.demo import check_java, load_history, measure_store, sweep_by_airflow
from sweep_tasks.cli.options import JsonOption, SharedOptions, StoreOption, YesOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.demo.engines import TASKS_AT_ONCE, run_scheduled_dag
from sweep_tasks.demo.measure import everything, harm, readable_moments
from sweep_tasks.demo.report import DemoReport, SweptShard, report_on, show
from sweep_tasks.errors import BadValue, ServerNotReady, SweepflowError
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.local.cassandra import LocalCluster, NodeStatus
from sweep_tasks.local.postgres import LocalPostgres, postgres_programs
from sweep_tasks.local.spark import HERE, LocalSpark
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.tables.catalog import Catalog

# ---------------------------------------------------------------------------------------------------------------------
# `sweepflow dev cluster`: the services of docker-compose.yaml as processes of this machine, and one hourly sweep.
#
# PostgreSQL for Airflow's metadata, a Spark master with two workers, three Cassandra nodes, Airflow; the demo's history
# in the store, one scheduled run, and a check that everything which can still be read is unchanged. Everything is
# stopped at the end, also after an error.
# ---------------------------------------------------------------------------------------------------------------------

CLUSTER_FOLDER = Path(".sweepflow", "cluster")
CLAIM = "claim"
SHARDS = 2
WORKERS = 2
CORES_OF_A_WORKER = 2
"""Each strategy is swept on two cores, both at the same time, as in docker-compose.yaml."""
SPARK_IS_UP = "Spark is up"
ALL_IS_STOPPED = "everything is stopped"
_HEAP = "512m"
_KEYSPACE = "sweepflow"
_HOUR = timedelta(hours=1)
_BUSINESS_EVERY = 4
"""Minutes: a transaction on three nodes of one small machine takes a hundred times as long as on SQLite."""


def cluster(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Option(help="The folder of all services and logs; files of an earlier run are replaced.")
    ] = CLUSTER_FOLDER,
    nodes: Annotated[
        int, typer.Option(min=1, max=3, help="Cassandra nodes, 1 or 3, each with a replica of all data.")
    ] = 3,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep everything running after the sweep, until Ctrl-C.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the services of docker-compose.yaml without containers, run one hourly sweep, and stop everything.

    With --store no Cassandra is started; that store must be new or empty.
    """
    with command(ctx, store, as_json) as run:
        check_java()
        postgres_programs()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        given = store or SharedOptions.of(ctx).store
        with _lock_folder(folder), _start_all(folder.absolute(), given, nodes, Steps()) as services:
            found = services.sweep_once()
            run.answer(found.document(), lambda out: _show(out, found))
            if stay:
                sys.stdout.flush()
                services.wait()


class _Cluster:
    """All services, running and healthy."""

    def __init__(self, airflow: LocalAirflow, spark: LocalSpark, settings: Settings, steps: Steps) -> None:
        self._airflow = airflow
        self._spark = spark
        self._settings = settings
        self._steps = steps

    def sweep_once(self) -> DemoReport:
        """Run one hourly sweep over the demo's history. Raise an error if it removed nothing, or too much."""
        with open_store(self._settings.store, self._settings) as store:
            loaded = load_history(store, self._settings, self._steps, _BUSINESS_EVERY)
            try:
                return self._sweep(store).model_copy(update={"store": self._settings.store})
            finally:
                loaded.report.close()

    def _sweep(self, store: Store) -> DemoReport:
        was, before = everything(store), measure_store(store, self._steps, "before")
        summaries = sweep_by_airflow(self._airflow, store, self._settings, self._steps, run_scheduled_dag)
        after = measure_store(store, self._steps, "after")
        with self._steps.step("checking that everything which can still be read is unchanged") as step:
            now = everything(store)
            moments = readable_moments(store)  # after the data: thresholds are published before removals
            if found := harm(was, now, moments):
                raise SweepflowError(
                    f"sweep: {len(found)} of the checked snapshots read differently after the sweep: {found[0]}; this "
                    "is a defect, report it",
                    code="swept_too_much",
                )
            timestamps = len(set().union(*moments.values()))
            step.done = f"everything that can still be read is unchanged, at {timestamps} timestamps"
        report = report_on(store, self._settings, SystemClock(), summaries, before, after)
        _check_removed(report.shards)
        return report.model_copy(update={"moments": {str(table): len(asked) for table, asked in moments.items()}})

    def wait(self) -> None:
        """Keep everything running until Ctrl-C."""
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


def _check_removed(shards: Collection[SweptShard]) -> None:
    removed = {strategy: sum(each.removed for each in shards if each.strategy is strategy) for strategy in QUEUES}
    idle = [strategy.value for strategy, versions in removed.items() if versions <= 0]
    if idle:
        raise SweepflowError(
            f"sweep: no version of a {' or '.join(idle)} table was removed, although hours of them are old enough; "
            "this is a defect, report it"
        )


# --- services ------------------------------------------------------------------------------------------------------


@contextmanager
def _start_all(folder: Path, store: str | None, nodes: int, steps: Steps) -> Iterator[_Cluster]:
    """Start the services in the order of docker-compose.yaml, and stop them in the reverse order."""
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
            yield _Cluster(airflow, spark, settings, steps)
        finally:
            with steps.step("stopping everything") as step:
                parts.close()
                step.done = ALL_IS_STOPPED


def _check_empty(settings: Settings) -> None:
    """Refuse a store with tables: existing data must not be swept as a test."""
    with open_store(settings.store, settings) as store:
        if Catalog(store).list():
            raise BadValue("store", "contains tables already; name a store that is new or empty", reason="not_empty")


def _cassandra(folder: Path, nodes: int, parts: ExitStack, steps: Steps) -> str:
    with steps.step("starting Cassandra") as step:
        nodes_here = LocalCluster(folder, nodes, dies_with_parent=True, say=step.now)
        nodes_here.stop(remove=True)
        parts.enter_context(nodes_here)
        step.done = f"Cassandra is up: {nodes} node{'s' if nodes > 1 else ''}"
    return nodes_here.url(_KEYSPACE)


def _settings(url: str, folder: Path) -> Settings:
    """The schedule begins with the last full hour, so its run starts at once."""
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
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder: two clusters in one folder would replace each other's files. The lock ends with this process.
    Files in a folder that no cluster has locked before belong to others, and must not be replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CLAIM).exists() and any(folder.iterdir()):
        raise BadValue(
            "folder",
            f"{folder} contains files that are not of a cluster; name a new or empty folder",
            reason="not_ours",
        )
    with (folder / CLAIM).open("ab") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerNotReady(
                f"folder: {folder} is in use by a running cluster; stop that one, or name another folder",
                field="folder",
                reason="in_use",
            ) from None
        yield


def _show(out: Console, report: DemoReport) -> None:
    show(out, report)
    removed = sum(each.removed for each in report.shards)
    out.print(
        f"\nOne hourly run swept {len(report.shards)} shards without a failure. It removed {removed:,} versions, and "
        "every snapshot that can still be read is unchanged.",
        highlight=False,
    )


# ---------------------------------------------------------------------------------------------------------------------
# `sweepflow dev cassandra`: a local Cassandra, to try things out without containers.
# ---------------------------------------------------------------------------------------------------------------------

app = typer.Typer(help="Servers on this machine, to try things out.", no_args_is_help=True, rich_markup_mode=None)
cassandra = typer.Typer(help="A Cassandra of one node or three.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cassandra, name="cassandra")
app.command()(cluster)

DEFAULT_FOLDER = Path(".sweepflow", "cassandra")
KEYSPACE = "sweepflow"

FolderOption = Annotated[Path, typer.Option(help="The folder of its data, ports and logs.")]


@cassandra.command()
def up(
    ctx: typer.Context,
    nodes: Annotated[int, typer.Option(help="1 or 3; each has a replica of all data.")] = 1,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Start a Cassandra in the background, and show how to use it. Running nodes are not restarted.

    The first start downloads Cassandra's jars, about 65 MB.
    """
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster(folder, nodes, say=Steps().say)
        started = cluster.start()
        store = cluster.url(KEYSPACE)
        described = cluster.compaction_nodes()
        details = {"store": store, "started": started, "folder": str(cluster.folder), "compaction_nodes": described}
        document = _document(cluster.status()) | details
        done = "is up" if started else "was up already, nothing to do"
        run.answer(
            document,
            lambda out: _print_lines(
                out,
                f"Cassandra {done}: {', '.join(cluster.hosts)}, port {cluster.port}, logs in {cluster.folder}",
                f"next: sweepflow init --store '{store}'",
                f"for 'sweepflow compaction': export SWEEPFLOW_COMPACTION_NODES='{json.dumps(described)}'",
                f"to stop it: sweepflow dev cassandra down{_option(folder)}",
            ),
        )


@cassandra.command()
def down(
    ctx: typer.Context,
    folder: FolderOption = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data for the next start.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the Cassandra that 'up' started, and remove its data."""
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster.find_in(folder)
        if cluster and not keep:
            run.confirm(f"stop the Cassandra in {folder} and remove its data? --keep leaves the data.", yes)
        stopped = cluster.stop(remove=not keep) if cluster else []
        removed = cluster is not None and not keep
        output = f"stopped {len(stopped)} of {cluster.nodes} nodes" if cluster else "there is no cluster"
        run.answer(
            {"stopped": stopped, "removed": removed, "folder": str(folder.absolute())},
            lambda out: _print_lines(
                out,
                f"{output} in {folder}, its data is {'removed' if removed else 'kept'}"
                if cluster
                else f"{output} in {folder}",
            ),
        )


@cassandra.command()
def status(ctx: typer.Context, folder: FolderOption = DEFAULT_FOLDER, as_json: JsonOption = False) -> None:
    """List the nodes, and whether they are up."""
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster.find_in(folder)
        store = cluster.url(KEYSPACE) if cluster else None
        found = cluster.status() if cluster else []
        run.answer(_document(found) | {"store": store}, lambda out: _print_status(out, folder, found, store))


@cassandra.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def nodetool(
    ctx: typer.Context,
    node: Annotated[int, typer.Argument(metavar="NODE", help="Its number, from 1.")],
    arguments: Annotated[list[str], typer.Argument(metavar="ARGUMENTS...", help="As Cassandra's own tool takes them.")],
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Run Cassandra's own tool on a node; options of sweepflow go before NODE."""
    with command(ctx, None, as_json) as run:
        output = LocalCluster.require_in(folder).nodetool(node, *arguments)
        run.answer({"node": node, "output": output}, lambda out: _print_lines(out, output.rstrip("\n")))


def _document(found: list[NodeStatus]) -> dict[str, object]:
    return {"nodes": [each._asdict() for each in found]}


def _print_status(out: Console, folder: Path, found: list[NodeStatus], store: str | None) -> None:
    if store is None:
        _print_lines(
            out, f"there is no cluster in {folder}; start one with 'sweepflow dev cassandra up{_option(folder)}'"
        )
        return
    shown = Table("node", "address", "pid", "state")
    for each in found:
        shown.add_row(str(each.number), each.address, str(each.pid or ""), each.state)
    out.print(shown)
    _print_lines(out, f"store: {store}")


def _print_lines(out: Console, *lines: str) -> None:
    out.print(*map(escape, lines), sep="\n", highlight=False)


def _option(folder: Path) -> str:
    """Return the option that a later command needs to find this cluster."""
    return "" if folder == DEFAULT_FOLDER else f" --folder '{folder}'"
