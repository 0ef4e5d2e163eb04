"""`sweepflow explain`: why versions of a cell still exist, or what a table or shard waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, escape
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.diagnosis.explain import explain_cell, explain_shard, explain_table
from sweep_tasks.diagnosis.explanation import CellExplanation, QueueExplanation, ReasonContext, describe
from sweep_tasks.diagnosis.on_disk import PhysicalState, physical_state, remnant_reader
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, SweepStrategy, TableRef, checked_name
from sweep_tasks.transactions.outcomes import ABORTED

_HEX = "0x"
_STATES = {"live": "green", "garbage": "yellow", "unfinished": "red", "aborted": "red"}

CellNameArgument = Annotated[
    str | None, typer.Argument(show_default=False, help="Text, or 0x followed by hexadecimal digits.")
]


def explain(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Argument(show_default=False, help="namespace.name")] = None,
    row: CellNameArgument = None,
    column: CellNameArgument = None,
    strategy: Annotated[SweepStrategy | None, typer.Option(help="With --shard: conservative or thorough.")] = None,
    shard: Annotated[int | None, typer.Option(min=0, help="Explain this shard of the strategy.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why each version of a cell still exists, or what the entries of a table or a shard wait for."""
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
            _explain_queues(run, explain_shard(run.store, run.settings, SystemClock(), strategy, shard))
        elif row is None or column is None:
            _explain_queues(run, explain_table(run.store, run.settings, SystemClock(), TableRef.parse(str(table))))
        else:
            _explain_cell(run, TableRef.parse(str(table)), Cell(_name(row, "row"), _name(column, "column")))


def _name(text: str, field: str) -> bytes:
    """Parse a name: text, or bytes as 0x and hexadecimal digits. A name that begins with 0x must be given in digits."""
    if not text.startswith(_HEX):
        return checked_name(text.encode(), field)
    try:
        return checked_name(bytes.fromhex(text.removeprefix(_HEX)), field)
    except ValueError:
        raise BadValue(
            field,
            "begins with 0x and is not followed by hexadecimal digits, two for each byte",
            reason="not_hexadecimal",
        ) from None


def _explain_cell(run: Command, table: TableRef, cell: Cell) -> None:
    clock = SystemClock()
    found = explain_cell(run.store, run.settings, clock, table, cell)
    context = ReasonContext.read(run.store, clock)
    reader = remnant_reader(run.store, run.settings, clock)
    physical = physical_state(run.settings.store, table, cell, reader)
    document = found.document(context) | {"table": str(table), "physical": physical.document(context)}
    run.answer(document, lambda out: _print_cell(out, found, physical, context))


def _print_cell(out: Console, found: CellExplanation, physical: PhysicalState, context: ReasonContext) -> None:
    if not found.versions:
        out.print("no version of this cell is stored")
    else:
        shown = Table("version", "kind", "committed", "state", "why")
        for each in reversed(found.versions):
            committed = {None: "no", ABORTED: "aborted"}.get(each.commit, str(each.commit))
            state = f"[{_STATES[each.state]}]{each.state}[/]"
            why = escape(each.sentence(context))
            shown.add_row(str(each.ts), each.kind, committed if each.ts >= 0 else "", state, why)
        out.print(shown)
    for remnant in physical.remains or ():
        out.print(f"{remnant.ts}: {escape(remnant.sentence(context))}, in {escape(str(remnant.by))}")
    waiting = f"{len(found.queue)} entries of the cell are queued, {len(found.parked)} are parked"
    out.print(f"{waiting}; {escape(physical.says)}", highlight=False)


def _explain_queues(run: Command, found: QueueExplanation) -> None:
    context = ReasonContext.read(run.store, SystemClock())
    run.answer(found.document(context), lambda out: _print_blocks(out, found, context))


def _print_blocks(out: Console, found: QueueExplanation, context: ReasonContext) -> None:
    if found.blocks:
        shown = Table("versions", "entries", "what they wait for")
        for each in found.blocks:
            shown.add_row(f"{each.versions:,}", f"{each.entries:,}", escape(describe(each.why, context)))
        out.print(shown)
    for sentence in _caveats(found):
        out.print(sentence, highlight=False)


def _caveats(found: QueueExplanation) -> Iterator[str]:
    """What the numbers leave open. "Up to date" is printed only if everything was read."""
    unreadable = found.unreadable if found.table else 0
    if unreadable:
        yield (
            f"{unreadable:,} entries are quarantined and can't be read: they may belong to this table "
            "('sweepflow queue quarantine list')"
        )
    if found.at_least and found.blocks:
        yield "not everything was read: the numbers are a lower bound"
    elif found.at_least:
        yield "nothing was found, but not everything was read: entries may still wait"
    elif found.never_swept:
        yield "it is never swept: its strategy is nothing"
    elif not found.blocks and not unreadable:
        yield "up to date: no entries wait"
