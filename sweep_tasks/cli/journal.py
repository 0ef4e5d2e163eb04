"""`sweepflow journal`: show, verify and prune the journal of a store."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from sweep_tasks.cli.command import Console, command, escape, seconds
from sweep_tasks.cli.options import JsonOption, StoreOption, YesOption, pass_options_on
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.journal.actors import NO_REASON, current_user
from sweep_tasks.journal.journal import Journal, Note

app = typer.Typer(help="The journal: who did what to the store, when and why.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def journal(
    ctx: typer.Context,
    most: Annotated[
        int, typer.Option("--most", min=1, max=1_000, help="Show this many entries, the newest first.")
    ] = 20,
    people: Annotated[
        bool, typer.Option("--people", help="Show only actions of users, among the last hundred entries.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the actions that removed data or lifted a safeguard: who, when and why."""
    if ctx.invoked_subcommand:
        pass_options_on(ctx, store, as_json)
        return
    with command(ctx, store, as_json) as run:
        notes = Journal(run.store).last(most, of_people=people)
        run.answer({"notes": [note.document() for note in notes]}, lambda out: _print_notes(out, notes))


@app.command()
def verify(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check that no entry was changed or removed since it was written. The exit code is 6 if one was."""
    with command(ctx, store, as_json) as run:
        found = Journal(run.store).verify()
        pruned = f", {found.kept_from - 1:,} older ones were pruned" if found.kept_from > 1 else ""
        run.answer(
            found._asdict(),
            lambda out: out.print(f"{found.entries:,} entries are unchanged{pruned}; newest: {found.head}"),
        )


@app.command()
def prune(
    ctx: typer.Context,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="For example 90d.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded with your name.")],
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove old entries. Pruning is recorded too, and the remaining entries can still be verified."""
    with command(ctx, store, as_json) as run:
        before_ms = SystemClock().now_ms() - seconds(older_than, "older_than") * 1000
        run.confirm(f"remove journal entries older than {from_ms(before_ms)}?", yes)
        pruned = Journal(run.store).prune(current_user(), reason, before_ms)
        run.answer({"pruned": pruned}, lambda out: out.print(f"{pruned:,} entries were removed"))


def _print_notes(out: Console, notes: list[Note]) -> None:
    if not notes:
        out.print("the journal is empty")
        return
    shown = Table("when (UTC)", "who", "what", "about", "reason", "outcome")
    for note in notes:
        reason = "-" if note.reason == NO_REASON else note.reason
        when = from_ms(note.at_ms).to_datetime_string()
        shown.add_row(when, *map(escape, (note.by, note.what, note.about, reason, note.outcome)))
    out.print(shown)
