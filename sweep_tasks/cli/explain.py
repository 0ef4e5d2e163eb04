"""`sweepflow explain`: why is this version, or all that waits in this table or shard, still here?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, SweepStrategy, TableRef, checked_name
from sweep_tasks.observation.blocks import explain_shard, explain_table
from sweep_tasks.observation.explain import explain_cell
from sweep_tasks.observation.in_files import reader_of
from sweep_tasks.observation.physical import remains_of
from sweep_tasks.observation.wording import Known, says

Document = dict[str, Any]
_HEX = "0x"
_STATES = {"live": "green", "garbage": "yellow", "unfinished": "red", "aborted": "red"}

NameArgument = Annotated[str | None, typer.Argument(show_default=False, help="As text; or 0x and hexadecimal.")]


def explain(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Argument(show_default=False, help="namespace.name")] = None,
    row: NameArgument = None,
    column: NameArgument = None,
    strategy: Annotated[SweepStrategy | None, typer.Option(help="With --shard: conservative or thorough.")] = None,
    shard: Annotated[int | None, typer.Option(min=0, help="What blocks this shard of the strategy most.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Of every version of a cell, why it is still here; of a table or a shard, what blocks it most."""
    with command(ctx, store, as_json) as run:
        if (strategy is None) != (shard is None) or (table is None) == (shard is None):
            raise BadValue(
                "table",
                "name a table, a table with row and column, or --strategy and --shard",
                reason="not_exactly_one",
            )
        if (row is None) != (column is None):
            raise BadValue("column", "a cell is a row and a column; give both, or the table alone", reason="incomplete")
        if strategy is SweepStrategy.NOTHING:
            raise BadValue("strategy", "nothing is never swept; give conservative or thorough")
        if strategy is not None and shard is not None:
            _print_blocks(run, explain_shard(run.store, run.settings, SystemClock(), strategy, shard))
        elif row is None or column is None:
            _print_blocks(run, explain_table(run.store, run.settings, SystemClock(), TableRef.parse(str(table))))
        else:
            _explain_cell(run, TableRef.parse(str(table)), Cell(_name(row, "row"), _name(column, "column")))


def _name(text: str, field: str) -> bytes:
    """Text, or bytes in hexadecimal; a text that begins with 0x must be given in hexadecimal."""
    if not text.startswith(_HEX):
        return checked_name(text.encode(), field)
    try:
        return checked_name(bytes.fromhex(text.removeprefix(_HEX)), field)
    except ValueError:
        raise BadValue(
            field, "begins with 0x and is not hexadecimal behind it, two digits a byte", reason="not_hexadecimal"
        ) from None


def _explain_cell(run: Command, table: TableRef, cell: Cell) -> None:
    clock = SystemClock()
    document = explain_cell(run.store, run.settings, clock, table, cell)
    known = Known.of(run.store, clock)
    for each in document["versions"]:
        each["says"] = says(each, known)
    reader = reader_of(run.store, run.settings, clock)
    document |= {"table": str(table), "physical": remains_of(run.settings.store, table, cell, reader)}
    for each in document["physical"]["remains"] or ():
        each["says"] = says(each | {"until": each["until_ms"]}, known)
    run.answer(document, lambda out: _print_cell(out, document))


def _print_cell(out: Console, document: Document) -> None:
    if not document["versions"]:
        out.print("no version of this cell is stored")
    else:
        shown = Table("version", "kind", "committed", "state", "why")
        for each in reversed(document["versions"]):
            committed = {None: "no", -1: "aborted"}.get(each["commit"], str(each["commit"]))
            state = f"[{_STATES[each['state']]}]{each['state']}[/]"
            shown.add_row(
                str(each["ts"]), each["kind"], committed if each["ts"] >= 0 else "", state, escape(each["says"])
            )
        out.print(shown)
    for each in document["physical"]["remains"] or ():
        out.print(f"{each['ts']}: {escape(each['says'])}, in {escape(str(each['by']))}")
    waiting = f"{len(document['queue'])} entries of the cell are queued, {len(document['parked'])} parked"
    out.print(f"{waiting}; {escape(document['physical']['says'])}", highlight=False)


def _print_blocks(run: Command, document: Document) -> None:
    known = Known.of(run.store, SystemClock())
    for each in document["blocks"]:
        each["says"] = says(each, known)
    run.answer(document, lambda out: _print_counts(out, document))


def _print_counts(out: Console, document: Document) -> None:
    if document["blocks"]:
        shown = Table("entries", "what they wait for")
        for each in document["blocks"]:
            shown.add_row(f"{each['entries']:,}", escape(each["says"]))
        out.print(shown)
    for sentence in _reservations(document):
        out.print(sentence, highlight=False)


def _reservations(document: Document) -> Iterator[str]:
    """What the figures leave open; that all is well is only said where everything was looked at."""
    unreadable = document["unreadable"] if "table" in document else 0
    if unreadable:
        yield (
            f"{unreadable:,} entries are set aside and can't be read: they may be of this table "
            "('sweepflow queue quarantine list')"
        )
    if document["at_least"] and document["blocks"]:
        yield "there is more than was looked at: the figures are the least that it can be"
    elif document["at_least"]:
        yield "nothing of it was found, but there is more than was looked at: whether something waits is not known"
    elif document.get("never_swept"):
        yield "it is never swept: its strategy is nothing"
    elif not document["blocks"] and not unreadable:
        yield "nothing waits here: all that the queue knows of is swept"
