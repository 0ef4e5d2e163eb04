"""`sweepflow compaction measure` and `run`: on the nodes of setting `compaction_nodes`, one after the other.

A node that can't be reached is reported, and the others are still processed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.filesize import decimal
from rich.table import Column, Table

from sweep_tasks.cli.command import Command, Console, Steps, command, escape
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.compaction.documents import BlockedCompaction, Document, Measurement, NodeError, Round, RoundResult
from sweep_tasks.compaction.reports import shown_moment
from sweep_tasks.errors import EXIT_FAILED, BadValue, NodetoolFailed, SweepflowError
from sweep_tasks.sstables.nodes import Node, no_tombstones
from sweep_tasks.store import StoreLocation

D = TypeVar("D", Measurement, Round)

NodesOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NAME", help="One of compaction_nodes; all if none is given.")
]
TablesOption = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="Like shop.orders; all of the store if none is given."),
]


def measure(
    ctx: typer.Context,
    node: NodesOption = None,
    table: TablesOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the tombstones in the files of nodes. A file is read once; its counts are cached."""
    with command(ctx, store, as_json) as run:
        _process_nodes(run, node, lambda name, say: _measure(run, name, table or (), say), _print_measured)


def run(
    ctx: typer.Context,
    node: NodesOption = None,
    table: TablesOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be rewritten, rewrite nothing.")] = False,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="Rewrite no more on a node (compaction_budget_bytes).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compact files of nodes where that is proven to drop tombstones, and show what blocks the others."""
    with command(ctx, store, as_json) as running:
        _process_nodes(
            running,
            node,
            lambda name, say: _run_round(running, name, table or (), budget, dry_run, say),
            _print_round,
        )


def _process_nodes(
    run: Command,
    chosen: Sequence[str] | None,
    work: Callable[[str, Callable[[str], None]], D],
    show: Callable[[Console, D], None],
) -> None:
    location = StoreLocation.parse(run.settings.store)
    if not location.has_tombstones:
        raise no_tombstones(location.scheme)
    names = list(chosen or run.settings.compaction_nodes)
    if not names:
        raise BadValue(
            "setting compaction_nodes", "names no node; docs/compaction.md says how it is written", reason="empty"
        )
    for name in names:
        Node.named(run.settings, name)
    failed: list[SweepflowError] = []
    found = [_attempt(name, work, failed, Steps().say) for name in names]
    run.answer({"nodes": [each.document() for each in found]}, lambda out: _print_nodes(out, found, show))
    if failed:
        raise typer.Exit(failed[0].exit_code)
    if any(isinstance(each, Round) and each.report.failed for each in found):
        raise typer.Exit(NodetoolFailed.exit_code)
    if any(_unreadable(each) for each in found):
        raise typer.Exit(EXIT_FAILED)


def _attempt(
    name: str,
    work: Callable[[str, Callable[[str], None]], D],
    failed: list[SweepflowError],
    say: Callable[[str], None],
) -> D | NodeError:
    try:
        return work(name, say)
    except SweepflowError as error:
        failed.append(error)
        return NodeError(node=name, error=error.code, message=str(error))


def _unreadable(found: Document) -> Sequence[str]:
    if isinstance(found, Round):
        return found.report.unreadable
    return found.unreadable if isinstance(found, Measurement) else ()


def _measure(run: Command, name: str, tables: Sequence[str], say: Callable[[str], None]) -> Measurement:
    # The driver takes long to import, and every command would wait for it.
    from sweep_tasks.compaction import rounds

    say(f"{name}: measuring")
    return rounds.measure(run.settings, name, tables)


def _run_round(
    run: Command, name: str, tables: Sequence[str], budget: int | None, dry_run: bool, say: Callable[[str], None]
) -> Round:
    from sweep_tasks.compaction import rounds

    settings = run.settings
    before = _measure(run, name, tables, say)
    say(f"{name}: planning")
    planned = rounds.plan(settings, name, before, tables, budget)
    if not dry_run and planned.compactions:
        say(f"{name}: compacting, {len(planned.compactions)} planned")
    done = rounds.compact(settings, name, planned, budget, dry_run)
    after = before if dry_run or not done.compactions else _measure(run, name, tables, say)
    return Round(node=name, plan=planned, done=done, report=rounds.report(before, planned, done, after))


# --- for people -----------------------------------------------------------------------------------------------------


def _print_nodes(out: Console, nodes: Sequence[D | NodeError], show: Callable[[Console, D], None]) -> None:
    errors = Console(stderr=True, soft_wrap=True)
    for found in nodes:
        out.print(f"[bold]{escape(found.node)}[/]")
        if isinstance(found, NodeError):
            errors.print(f"[bold red]error:[/] {escape(found.message)}", highlight=False)
        else:
            show(out, found)


def _print_measured(out: Console, found: Measurement) -> None:
    shown = Table("table", _number("files"), _number("size"), _number("droppable"), _number("waiting"), "all droppable")
    for name, each in found.tables.items():
        if each.files or each.droppable or each.waiting:
            moment = each.droppable_from_s
            counts = (str(each.files), decimal(each.bytes), str(each.droppable), str(each.waiting))
            shown.add_row(escape(name), *counts, f"at {shown_moment(moment)}" if moment else "")
    out.print(shown if shown.rows else "there are no files")
    for problem in (*found.gone, *found.unreadable):
        out.print(f"left out: {escape(problem)}", highlight=False)
    if found.statistics:
        out.print(f"statistics: {escape(found.statistics)}", highlight=False)


def _print_round(out: Console, found: Round) -> None:
    if found.done.compactions:
        _print_compactions(out, found.done)
    if found.done.blocked:
        _print_blocked(out, found.done.blocked)
    for line in found.report.sentences:
        out.print(escape(line), highlight=False)


def _print_compactions(out: Console, done: RoundResult) -> None:
    shown = Table(
        "table", Column("file", overflow="fold"), _number("with"), _number("rewritten"), _number("expected"),
        _number("dropped"), "outcome",
    )  # fmt: skip
    for each in done.compactions:
        size = each.bytes_expected if done.dry_run else each.bytes_read
        known = "?" if each.dropped is None else str(each.dropped)
        dropped = "-" if done.dry_run else known
        others = str(max(0, len(each.files) - 1))
        row = (each.table, Path(each.candidate).name, others, decimal(size), str(each.tombstones_expected))
        shown.add_row(*map(escape, row), dropped, each.outcome)
    out.print(shown)


def _print_blocked(out: Console, blocked: Sequence[BlockedCompaction]) -> None:
    shown = Table("table", Column("file", overflow="fold"), "blocked by", Column("why", overflow="fold"))
    for each in blocked:
        why = f"{each.sentence}: {each.command}" if each.command else each.sentence
        shown.add_row(*map(escape, (each.table, Path(each.candidate).name, each.blocker, why)))
    out.print(shown)


def _number(name: str) -> Column:
    return Column(name, justify="right")
