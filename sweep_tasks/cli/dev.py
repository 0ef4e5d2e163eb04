"""`sweepflow dev`: real servers on this machine, for trying things out without containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweep_tasks.cli import whole_cluster
from sweep_tasks.cli.command import JsonOption, command
from sweep_tasks.cli.steps import Steps
from sweep_tasks.dev.cassandra import LocalCluster, NodeStatus

app = typer.Typer(help="Servers on this machine, to try things out.", no_args_is_help=True, rich_markup_mode=None)
cassandra = typer.Typer(help="A Cassandra of one node or three.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cassandra, name="cassandra")
app.command()(whole_cluster.cluster)

DEFAULT_FOLDER = Path(".sweepflow", "cassandra")
KEYSPACE = "sweepflow"

FolderOption = Annotated[Path, typer.Option(help="Where its data, ports and logs are kept.")]


@cassandra.command()
def up(
    ctx: typer.Context,
    nodes: Annotated[int, typer.Option(help="1 or 3; each has a copy of everything.")] = 1,
    folder: FolderOption = DEFAULT_FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Start a Cassandra in the background, and say how to use it; what is up already stays as it is.

    The first time Cassandra's jars are downloaded, about 65 MB.
    """
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster(folder, nodes, say=Steps().say)
        started = cluster.start()
        store = cluster.url(KEYSPACE)
        described = cluster.compaction_nodes()
        told = {"store": store, "started": started, "folder": str(cluster.folder), "compaction_nodes": described}
        document = _document(cluster.status()) | told
        done = "is up" if started else "was up already, nothing to do"
        run.answer(
            document,
            lambda out: _print_lines(
                out,
                f"Cassandra {done}: {', '.join(cluster.hosts)}, port {cluster.port}, logs in {cluster.folder}",
                f"next: sweepflow init --store '{store}'",
                f"for 'sweepflow compaction': export SWEEPFLOW_COMPACTION_NODES='{json.dumps(described)}'",
                f"the end of it: sweepflow dev cassandra down{_option(folder)}",
            ),
        )


@cassandra.command()
def down(
    ctx: typer.Context,
    folder: FolderOption = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data there for the next start.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the Cassandra that 'up' started, and remove its data."""
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster.kept_in(folder)
        stopped = cluster.stop(remove=not keep) if cluster else []
        removed = cluster is not None and not keep
        said = f"stopped {len(stopped)} of {cluster.nodes} nodes" if cluster else "there is no cluster"
        run.answer(
            {"stopped": stopped, "removed": removed, "folder": str(folder.absolute())},
            lambda out: _print_lines(
                out,
                f"{said} in {folder}, its data is {'gone' if removed else 'kept'}"
                if cluster
                else f"{said} in {folder}",
            ),
        )


@cassandra.command()
def status(ctx: typer.Context, folder: FolderOption = DEFAULT_FOLDER, as_json: JsonOption = False) -> None:
    """List the nodes, and whether they are up."""
    with command(ctx, None, as_json) as run:
        cluster = LocalCluster.kept_in(folder)
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
        said = LocalCluster.standing_in(folder).nodetool(node, *arguments)
        run.answer({"node": node, "output": said}, lambda out: _print_lines(out, said.rstrip("\n")))


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
    """What a later command must be given to find this cluster."""
    return "" if folder == DEFAULT_FOLDER else f" --folder '{folder}'"
