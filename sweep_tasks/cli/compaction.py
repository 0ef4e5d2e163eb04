"""`sweepflow compaction plan`: which files are worth a compaction, by what is known of them.

The commands that measure and compact the files of nodes are in `node_compaction.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from sweep_tasks.cli import node_compaction
from sweep_tasks.cli.command import JsonOption, StoreOption, command, lines_of
from sweep_tasks.compaction.rules import Reason, Verdict, plan
from sweep_tasks.compaction.runs import Reads
from sweep_tasks.compaction.statistics_file import read_statistics
from sweep_tasks.compaction.thresholds import thresholds_in
from sweep_tasks.errors import BadValue

app = typer.Typer(help="Files full of tombstones.", no_args_is_help=True, rich_markup_mode=None)

WORDS = {
    Reason.DENSE: "enough of its blocks are dense",
    Reason.LONG_RUN: "readers step over a long run of dead cells",
    Reason.OVERLAP: "many tombstones for the keys around them",
    Reason.READ: "a read of its table met many tombstones",
    Reason.SWEPT: "sweeps have deleted much there",
    Reason.BELOW_THRESHOLD: "too few of its blocks are dense",
    Reason.EMPTY: "it has no blocks",
    Reason.SWITCHED_OFF: "switched off by the settings",
    Reason.PENDING: "the engine itself is about to compact it",
}


app.command()(node_compaction.measure)
app.command()(node_compaction.run)


@app.callback()
def root() -> None:
    """Files full of tombstones."""


@app.command("plan")
def show_plan(
    ctx: typer.Context,
    stats: Annotated[
        Path, typer.Option(metavar="FILE", help="Statistics, a JSON line for each file; - reads standard input.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which files would be compacted, in what order, and why the others would not. Compacts nothing.

    A line is {"file":NAME,"table"?:NAME,"blocks":[[tombstones,tombstone_bytes,total_bytes],…],"pending"?:true}.
    """
    with command(ctx, store, as_json) as run:
        verdicts = plan(read_statistics(_readable(stats)), thresholds_in(run.settings))
        run.answer({"plan": [each.document() for each in verdicts]}, lambda out: _print_plan(out, verdicts))


def _readable(stats: Path) -> Iterator[str]:
    try:
        yield from lines_of(stats)
    except UnicodeDecodeError as error:
        raise BadValue("stats", "standard input is not UTF-8; write JSON lines in UTF-8") from error


def _print_plan(out: Console, verdicts: list[Verdict]) -> None:
    if not verdicts:
        out.print("there are no files, so nothing to plan")
        return
    shown = Table("rank", Column("file", overflow="fold"), "dense blocks", Column("why", overflow="fold"))
    for each in verdicts:
        shown.add_row(str(each.rank or "-"), escape(_printable(each.file)), _share(each), _why(each))
    out.print(shown)
    eligible = sum(each.eligible for each in verdicts)
    out.print(f"{eligible} of {len(verdicts)} files would be compacted{', in this order' if eligible > 1 else ''}")


def _share(verdict: Verdict) -> str:
    dense, blocks = verdict.density
    return f"{dense} of {blocks} ({float(verdict.density.ratio):.1%})" if blocks else "-"


def _why(verdict: Verdict) -> str:
    """Reads that fail are worth telling, whatever else is true of the file."""
    words = WORDS[verdict.reason]
    if verdict.reads is Reads.FAILING:
        return f"{words}; reads fail: {verdict.longest_run} dead cells in a row"
    return words


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
