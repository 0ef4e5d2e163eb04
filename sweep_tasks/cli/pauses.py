"""`sweepflow pause` and `sweepflow resume`: stop and continue the sweeping of a table, or of everything."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from sweep_tasks.cli.command import Console, command, escape
from sweep_tasks.cli.options import JsonOption, ReasonOption, StoreOption, YesOption
from sweep_tasks.clock import from_ms
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.actors import acting_for, checked_reason, current_user
from sweep_tasks.model import TableRef
from sweep_tasks.tables.pauses import Paused, Pauses, named

TableArgument = Annotated[str | None, typer.Argument(metavar="[TABLE]")]
EverythingOption = Annotated[bool, typer.Option("--everything", help="All tables.")]


def pause(
    ctx: typer.Context,
    table: TableArgument = None,
    everything: EverythingOption = False,
    reason: ReasonOption = "",
    listed: Annotated[bool, typer.Option("--list", help="List what is paused.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause the sweeping of a table, or of everything, until it is resumed. It is then swept as if never paused."""
    with command(ctx, store, as_json) as run:
        if listed:
            found = Pauses(run.store).current()
            paused = [{"what": what, **pause._asdict()} for what, pause in found.listed()]
            run.answer({"paused": paused}, lambda out: _print_paused(out, found))
            return
        what = _target(table, everything)
        Pauses(run.store).pause(what, current_user(), reason)
        run.answer(
            {"paused": named(what)},
            lambda out: out.print(f"{named(what)} is paused; running sweeps stop after their current batch"),
        )


def resume(
    ctx: typer.Context,
    table: TableArgument = None,
    everything: EverythingOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume the sweeping of a table, or of everything. The next sweeps remove what waited."""
    with command(ctx, store, as_json) as run:
        what = _target(table, everything)
        existing = Pauses(run.store).current()
        pause = existing.tables.get(what) if what else existing.everything
        if pause:
            run.confirm(f"resume {named(what)}? {pause.by} paused it: {pause.reason}", yes)
        with acting_for(reason=checked_reason(reason)):
            lifted = Pauses(run.store).resume(what)
        run.answer(
            {"resumed": named(what)} | lifted._asdict(),
            lambda out: out.print(
                f"{named(what)} is resumed; {escape(lifted.by)} had paused it: {escape(lifted.reason)}"
            ),
        )


def _target(table: str | None, everything: bool) -> TableRef | None:
    if everything == (table is not None):
        raise BadValue("table", "name one table, or give --everything")
    return TableRef.parse(table) if table else None


def _print_paused(out: Console, found: Paused) -> None:
    pauses = found.listed()
    if not pauses:
        out.print("nothing is paused")
        return
    shown = Table("paused", "since", "by", "reason")
    for what, pause in pauses:
        shown.add_row(what, str(from_ms(pause.since_ms)), escape(pause.by), escape(pause.reason))
    out.print(shown)
