"""`sweepflow airflow`: create the pools that Airflow needs, and run a local Airflow to try it out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from sweep_tasks.cli.command import Command, Console, command
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.errors import AirflowNotReady, BadValue
from sweep_tasks.extras import require
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.orchestration.names import SCHEDULED, TARGETED_SWEEP, dag_folder
from sweep_tasks.orchestration.pools import PoolProperties, pools_document
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.store import initialise_store

app = typer.Typer(help="Airflow: its pools, its DAGs, and a local one.", no_args_is_help=True, rich_markup_mode=None)

DEFAULT_FOLDER = Path(".sweepflow/airflow")


@app.command()
def pools(
    ctx: typer.Context,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only write the file for 'airflow pools import'.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the pools that prevent two runs from sweeping one shard, scanning one table or compacting one node at the
    same time, in the Airflow of the environment.

    Safe to repeat: run it again after the number of shards or worker slots was raised, or a node was added.
    """
    with command(ctx, store, as_json) as run:
        if not write:
            require("airflow")
        settings = run.settings
        document = pools_document(settings.shards, settings.legacy_slots, settings.compaction_nodes)
        if write:
            _write(write, document)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "pools.json")
                _write(file, document)
                _import(file)
        done = f"written to {write}" if write else "are in Airflow, one slot each"
        run.answer(
            {"pools": list(document), "written": str(write) if write else None},
            lambda out: out.print(f"{len(document)} pools {done}:", *document, sep="\n  "),
        )


def _write(file: Path, document: dict[str, PoolProperties]) -> None:
    try:
        file.write_text(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise BadValue("write", f"{file} can't be written: {error.strerror}") from error


def _import(file: Path) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "airflow", "pools", "import", str(file)],
        env=inherited_environment(Needs.AIRFLOW),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
        raise AirflowNotReady(
            f"airflow: 'airflow pools import' failed ({last[0]}); check AIRFLOW_HOME and AIRFLOW__DATABASE__…, and run "
            "'airflow db migrate' if its metadata is new"
        )


@app.command()
def dags(
    ctx: typer.Context,
    link: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Create a link to the files in Airflow's folder of DAGs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the folder of the DAG files, for Airflow's setting dags_folder, or link it into a folder."""
    with command(ctx, None, as_json) as run:
        folder = dag_folder()
        linked = _link(folder, link) if link else None
        run.answer(
            {"folder": str(folder), "link": str(linked) if linked else None},
            lambda out: out.print(str(linked or folder), highlight=False, markup=False),
        )


def _link(folder: Path, into: Path) -> Path:
    """Create the link, or find it there already. Anything else of that name is left alone."""
    if not into.is_dir():
        raise BadValue("link", f"{into} is not a folder; name the one that Airflow reads DAGs from", reason="no_folder")
    place = into / "sweepflow"
    if place.is_symlink() and place.resolve() == folder.resolve():
        return place
    try:
        place.symlink_to(folder.resolve(), target_is_directory=True)
    except FileExistsError as error:
        problem = f"{place} exists already and is not this link; remove it, or set dags_folder to {folder}"
        raise BadValue("link", problem, code="exists", reason="exists") from error
    except OSError as error:
        raise BadValue("link", f"{place} can't be created: {error.strerror}", reason="not_writable") from error
    return place


@app.command()
def up(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Option(help="The folder of its metadata, logs and passwords.")] = DEFAULT_FOLDER,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the UI, on this machine only; 0: a free one.")
    ] = 8080,
    spark_master: Annotated[str, typer.Option(metavar="URL", help="Where Spark jobs run.")] = "local[2]",
    paused: Annotated[bool, typer.Option("--paused", help="Do not start scheduled runs.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a complete Airflow on this machine until Ctrl-C: to try out the DAGs, not for production."""
    with command(ctx, store, as_json) as run:
        steps = Console(stderr=True)
        airflow = LocalAirflow(
            folder,
            run.settings,
            port=port or None,
            spark_master=spark_master,
            say=lambda step: steps.print(f"{step} …"),
        )
        signal.signal(signal.SIGTERM, _interrupt)
        initialise_store(run.settings.store, run.settings)
        try:
            with airflow:
                for dag_id in SCHEDULED:
                    airflow.unpause(dag_id, paused=paused)
                _show_address(run, airflow)
                while True:
                    airflow.check()
                    time.sleep(1)
        except KeyboardInterrupt:
            steps.print("stopped")


def _show_address(run: Command, airflow: LocalAirflow) -> None:
    user, password = airflow.secrets.admin
    run.answer(
        {"address": airflow.address, "user": user, "password": password, "folder": str(airflow.folder)},
        lambda out: out.print(
            f"\nAirflow is at {airflow.address}\nuser {user}, password {password}\n"
            f"State of all shards, and actions: {airflow.address}/plugin/sweeping\n"
            f"The sweep is the DAG {TARGETED_SWEEP}; Ctrl-C stops everything, its data stays in {airflow.folder}.",
            highlight=False,
            markup=False,
        ),
    )
    sys.stdout.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
