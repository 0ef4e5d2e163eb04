"""`sweepflow pause`, `sweepflow resume` and `sweepflow journal`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command
from sweep_tasks.clock import from_ms
from sweep_tasks.errors import BadValue
from sweep_tasks.journal import Journal, Note, checked_reason, me
from sweep_tasks.model import TableRef
from sweep_tasks.sweep.pauses import Pauses, named

TableArgument = Annotated[str | None, typer.Argument(metavar="[TABLE]")]
EverythingOption = Annotated[bool, typer.Option("--everything", help="All tables.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: it is kept, with your name.")]


def pause(
    ctx: typer.Context,
    table: TableArgument = None,
    everything: EverythingOption = False,
    reason: ReasonOption = "",
    listed: Annotated[bool, typer.Option("--list", help="Only show what is paused.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep a table no more, or nothing at all, until it is resumed. Nothing is lost, it is swept later."""
    with command(ctx, store, as_json) as run:
        if listed:
            document = _standing(run)
            run.answer(document, lambda out: _print_standing(out, document))
            return
        what = _wanted(table, everything)
        with Journal(run.store).noted(me(), "pause", named(what), reason):
            Pauses(run.store).pause(what, me(), checked_reason(reason))
        run.answer(
            {"paused": named(what)},
            lambda out: out.print(f"{named(what)} is paused; sweeps under way end with the batch they are at"),
        )


def resume(
    ctx: typer.Context,
    table: TableArgument = None,
    everything: EverythingOption = False,
    reason: ReasonOption = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep a table again, or everything. What waited goes with the next sweeps."""
    with command(ctx, store, as_json) as run:
        what = _wanted(table, everything)
        with Journal(run.store).noted(me(), "resume", named(what), reason):
            lifted = Pauses(run.store).resume(what)
        run.answer(
            {"resumed": named(what)} | lifted._asdict(),
            lambda out: out.print(
                f"{named(what)} is swept again; {escape(lifted.by)} had paused it: {escape(lifted.reason)}"
            ),
        )


def journal(
    ctx: typer.Context,
    most: Annotated[int, typer.Option("--most", min=1, max=1_000, help="So many, the newest first.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who did what, when and why: pauses, releases, runs and retries asked for by people."""
    with command(ctx, store, as_json) as run:
        notes = Journal(run.store).last(most)
        run.answer({"notes": [note._asdict() for note in notes]}, lambda out: _print_notes(out, notes))


def _wanted(table: str | None, everything: bool) -> TableRef | None:
    if everything == (table is not None):
        raise BadValue("table", "name one table, or give --everything")
    return TableRef.parse(table) if table else None


def _standing(run: Command) -> dict[str, Any]:
    return {"paused": [{"what": what, **pause._asdict()} for what, pause in Pauses(run.store).standing().listed()]}


def _print_standing(out: Console, document: dict[str, Any]) -> None:
    if not document["paused"]:
        out.print("nothing is paused")
        return
    shown = Table("paused", "since", "by", "reason")
    for each in document["paused"]:
        shown.add_row(each["what"], str(from_ms(each["since_ms"])), escape(each["by"]), escape(each["reason"]))
    out.print(shown)


def _print_notes(out: Console, notes: list[Note]) -> None:
    if not notes:
        out.print("nobody has done anything yet")
        return
    shown = Table("when", "who", "what", "about", "reason", "outcome")
    for note in notes:
        shown.add_row(str(from_ms(note.at_ms)), *map(escape, note[1:]))
    out.print(shown)
