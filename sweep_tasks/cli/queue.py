"""`sweepflow queue`: counts the queue, encodes and decodes its bytes, and lists and retries quarantined entries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, escape, lines_of
from sweep_tasks.cli.options import JsonOption, ReasonOption, StoreOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import EXIT_FAILED, BadValue, SweepflowError
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.model import MAX_TS, Cell, TableRef
from sweep_tasks.queue.encoding import decoded_line, encoded_line, read_cells_row, read_timestamps_row
from sweep_tasks.queue.parking import Quarantine
from sweep_tasks.store import every
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.run import retry_quarantined

app = typer.Typer(help="The sweep queue.", no_args_is_help=True, rich_markup_mode=None)
quarantine = typer.Typer(help="Entries that could not be read.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(quarantine, name="quarantine")

FileArgument = Annotated[Path, typer.Argument(metavar="[FILE]", help="JSON lines; default: standard input.")]
_STDIN = Path("-")


class ShardCounts(NamedTuple):
    """What is queued in one shard. Its fields are the keys of the JSON document."""

    strategy: str
    shard: int
    entries: int
    rows: int
    dedicated_rows: int
    partitions: int


class QuarantinedLine(NamedTuple):
    strategy: str
    shard: int
    start: int | None
    reason: str


@app.command()
def show(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Count the queue by strategy and shard."""
    with command(ctx, store, as_json) as run:
        counts = _count(run)
        run.answer({"shards": [each._asdict() for each in counts]}, lambda out: _print_counts(out, counts))


@app.command()
def encode(ctx: typer.Context, file: FileArgument = _STDIN, as_json: JsonOption = False) -> None:
    """Encode objects as the bytes of the queue, one JSON line each."""
    with command(ctx, None, as_json):
        _translate(file, encoded_line)


@app.command()
def decode(ctx: typer.Context, file: FileArgument = _STDIN, as_json: JsonOption = False) -> None:
    """Decode the bytes of the queue, one JSON line each."""
    with command(ctx, None, as_json):
        _translate(file, decoded_line)


@quarantine.command("list")
def list_quarantined(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the quarantined entries with their reasons."""
    with command(ctx, store, as_json) as run:
        found = [
            QuarantinedLine(entry.strategy.value, entry.shard, entry.start, entry.reason)
            for entry in Quarantine(run.store, TimestampService(run.store)).all()
        ]
        run.answer({"quarantined": [each._asdict() for each in found]}, lambda out: _print_quarantined(out, found))


@quarantine.command("retry")
def retry(
    ctx: typer.Context,
    reason: ReasonOption = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Process quarantined entries again; those that still can't be read stay quarantined."""
    with command(ctx, store, as_json) as run:
        with acting_for(reason=reason):
            retried = retry_quarantined(run.store, run.settings, SystemClock())
        found = {"judged": retried.judged, "left": retried.left}
        run.answer(found, lambda out: out.print(f"{retried.judged:,} processed, {retried.left:,} still quarantined"))


def _translate(file: Path, translate: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Translate each line. An invalid line is answered with an error, and the others are translated."""
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


def _count(run: Command) -> list[ShardCounts]:
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
    return [
        ShardCounts(
            strategy, shard, counted["entries"], counted["rows"], counted["dedicated_rows"], counted["partitions"]
        )
        for (strategy, shard), counted in sorted(counts.items())
    ]


def _cells(run: Command, table: TableRef) -> Iterator[Cell]:
    return (cell for cell, _ in every(lambda after: run.store.scan(table, MAX_TS, limit=10_000, after=after)))


def _print_counts(out: Console, counts: list[ShardCounts]) -> None:
    if not counts:
        out.print("the queue is empty")
        return
    shown = Table(*(name.replace("_", " ") for name in ShardCounts._fields))
    for each in counts:
        shown.add_row(*map(str, each))
    out.print(shown)


def _print_quarantined(out: Console, found: list[QuarantinedLine]) -> None:
    if not found:
        out.print("no entries are quarantined")
        return
    shown = Table(*QuarantinedLine._fields)
    for each in found:
        shown.add_row(*(escape(str(value)) for value in each))
    out.print(shown)
