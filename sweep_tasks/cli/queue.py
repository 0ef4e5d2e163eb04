"""`sweepflow queue`: what is in the queue, its bytes, and what was set aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command, lines_of
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import EXIT_FAILED, BadValue, SweepflowError
from sweep_tasks.journal import NO_REASON, QUARANTINED_ENTRIES, Journal, me
from sweep_tasks.model import MAX_TS, Cell, TableRef
from sweep_tasks.queue.encoding import read_cells_row, read_timestamps_row
from sweep_tasks.queue.jsonlines import decoded_line, encoded_line
from sweep_tasks.queue.quarantine import Quarantine
from sweep_tasks.store import every
from sweep_tasks.store.system import QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.run import retry_quarantined
from sweep_tasks.timestamps.service import TimestampService

app = typer.Typer(help="The sweep queue.", no_args_is_help=True, rich_markup_mode=None)
quarantine = typer.Typer(help="Entries that were set aside.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(quarantine, name="quarantine")

FileArgument = Annotated[Path, typer.Argument(metavar="[FILE]", help="JSON lines; standard input if left out.")]
_STDIN = Path("-")


@app.command()
def show(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Count what is queued, by strategy and shard."""
    with command(ctx, store, as_json) as run:
        documents = _counts(run)
        run.answer({"shards": documents}, lambda out: _print_counts(out, documents))


@app.command()
def encode(ctx: typer.Context, file: FileArgument = _STDIN, as_json: JsonOption = False) -> None:
    """Turn objects into the queue's bytes, a JSON line each."""
    with command(ctx, None, as_json):
        _translate(file, encoded_line)


@app.command()
def decode(ctx: typer.Context, file: FileArgument = _STDIN, as_json: JsonOption = False) -> None:
    """Turn the queue's bytes into objects, a JSON line each."""
    with command(ctx, None, as_json):
        _translate(file, decoded_line)


@quarantine.command("list")
def list_quarantined(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What was set aside, and why."""
    with command(ctx, store, as_json) as run:
        documents = [
            {"strategy": entry.strategy.value, "shard": entry.shard, "start": entry.start, "reason": entry.reason}
            for entry in Quarantine(run.store, TimestampService(run.store)).all()
        ]
        run.answer({"quarantined": documents}, lambda out: _print_quarantined(out, documents))


@quarantine.command("retry")
def retry(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why: the journal keeps it, with your name.")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge anew what was set aside; what still can't be read stays."""
    with command(ctx, store, as_json) as run:
        with Journal(run.store).noted(me(), "retry", QUARANTINED_ENTRIES, reason or NO_REASON):
            retried = retry_quarantined(run.store, run.settings, SystemClock())
        found = {"judged": retried.judged, "left": retried.left}
        run.answer(found, lambda out: out.print(f"{retried.judged} judged, {retried.left} still set aside"))


def _translate(file: Path, translate: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A bad line is answered with an error; the others are answered all the same."""
    failed = False
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            if not isinstance(document, dict):
                raise BadValue("line", "is not a JSON object")
            answer = translate(document)
        except (ValueError, RecursionError, SweepflowError) as error:
            code = error.code if isinstance(error, SweepflowError) else "bad_json"
            answer, failed = {"error": code, "message": str(error), "line": number}, True
        print(json.dumps(answer), flush=True)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _counts(run: Command) -> list[dict[str, Any]]:
    counts: dict[tuple[str, int], Counter[str]] = {}
    rows: set[bytes] = set()
    for cell in _cells(run, QUEUE_CELLS):
        _, metadata = read_cells_row(cell.row)
        counted = counts.setdefault((metadata.strategy.value, metadata.shard), Counter())
        counted["entries"] += 1
        counted["dedicated_rows" if metadata.dedicated else "rows"] += cell.row not in rows
        rows.add(cell.row)
    for cell in _cells(run, QUEUE_TIMESTAMPS):
        shard, _, strategy = read_timestamps_row(cell.row)
        counts.setdefault((strategy.value, shard), Counter())["partitions"] += 1
    names = ("entries", "rows", "dedicated_rows", "partitions")
    return [
        {"strategy": strategy, "shard": shard, **{name: counted[name] for name in names}}
        for (strategy, shard), counted in sorted(counts.items())
    ]


def _cells(run: Command, table: TableRef) -> Iterator[Cell]:
    return (cell for cell, _ in every(lambda after: run.store.scan(table, MAX_TS, limit=10_000, after=after)))


def _print_counts(out: Console, documents: list[dict[str, Any]]) -> None:
    if not documents:
        out.print("the queue is empty")
        return
    shown = Table(*(name.replace("_", " ") for name in documents[0]))
    for document in documents:
        shown.add_row(*map(str, document.values()))
    out.print(shown)


def _print_quarantined(out: Console, documents: list[dict[str, Any]]) -> None:
    if not documents:
        out.print("nothing is set aside")
        return
    shown = Table("strategy", "shard", "start", "reason")
    for document in documents:
        shown.add_row(*map(str, document.values()))
    out.print(shown)
