"""`sweepflow legacy-sweep`: sweep one table by scanning it, from this process.

For data that no queue entry leads to. A run has an id and stands in the store: it can be watched, cancelled, and taken
up again by whoever comes later, here or in Airflow.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sweep_tasks.cli.command import Command, DryRunOption, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.errors import BadValue, NotFound
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunState, Standing
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.legacy.taking_up import Begin, Watched, begun, is_at_work, looked_at
from sweep_tasks.logs import at_work
from sweep_tasks.model import TableRef
from sweep_tasks.observation.entering import enter_scan
from sweep_tasks.observation.tally import COMMAND, Try

EXIT_INTERRUPTED = 130
_ALSO = {
    "aborted": "of transactions that never committed",
    "sentinels": "sentinels put",
}
CUT_SHORT = {
    "cells": "stopped at the limit of cells",
    "seconds": "stopped at the limit of seconds",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
    "taken over": "somebody else has taken it over",
    "sweeping paused": "sweeping is paused, 'sweepflow pause --list' tells by whom",
}


def legacy_sweep(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAMESPACE.NAME")],
    from_row: Annotated[str, typer.Option(metavar="HEX", help="Begin at this row, in the store's own order.")] = "",
    max_cells: Annotated[int, typer.Option(min=0, help="Stop after so many cells; 0: no limit.")] = 0,
    max_seconds: Annotated[float, typer.Option(min=0, help="Stop after so many seconds; 0: no limit.")] = 0,
    batch: Annotated[int, typer.Option(min=0, help="Versions at a time; 0: as the settings say.")] = 0,
    ranges: Annotated[int, typer.Option(min=0, help="Parts of a new run; 0: as the settings say.")] = 0,
    stop_at: Annotated[int | None, typer.Option(metavar="TIMESTAMP", help="Go no further than this.")] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="From the beginning, even if a run could be gone on with.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show the run of the table.")] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Stop the run, whoever works on it; turns leave the table alone then."),
    ] = False,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep a table by scanning all of it: for what no queue entry leads to.

    Goes on with a run of the same rows that was paused, cancelled or cut off, if there is one; Ctrl-C pauses it. A run
    of other rows is dropped only with --anew.
    """
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        if status and cancel:
            raise BadValue("status", "shows a run and --cancel stops it; give one of them")
        sweep = LegacySweep(run.store, run.settings, SystemClock(), _me())
        if cancel:
            sweep.cancel(table)
        if status or cancel:
            _show(run, sweep, table)
            return
        order = LegacyOrder(table, stop_at, _row(from_row), ranges, max_cells, max_seconds, batch, dry_run)
        _sweep(run, sweep, order, anew)


def _sweep(run: Command, sweep: LegacySweep, order: LegacyOrder, anew: bool) -> None:
    how, standing = looked_at(run.store, run.settings, SystemClock(), order, anew=anew, owner="")
    go_on = how_to_resume(anew)
    with _interruptible(run, go_on):
        found = begun(sweep, order, how, standing)
        ranges = standing.ranges if standing and how is Begin.RESUME else [RangeState()] * len(found.stretches)
        with at_work(run=found.id, table=str(order.table)), _bar(run, found, ranges) as tell:
            summary = sweep.work(found, order, lambda ledger: Watched(ledger, tell))
    document = summary.document() | {"begun": how.value}
    enter_scan(run.store, SystemClock(), document, Try(COMMAND, f"{found.id}-{found.attempt}", "legacy-sweep"))
    run.answer(document, lambda out: _print_summary(out, summary, go_on))


def how_to_resume(anew: bool) -> str:
    return f"the same command{' without --anew' if anew else ''} goes on from here"


@contextmanager
def _interruptible(run: Command, go_on: str) -> Iterator[None]:
    """A run that is interrupted is paused, and says how it goes on."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if not run.as_json:
            Console(stderr=True).print(f"paused; {go_on}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bar(run: Command, found: Run, ranges: list[RangeState]) -> Iterator[Callable[[int, RangeState], None]]:
    """It moves with every page: within a range by how far through its rows the scan is."""
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=run.as_json) as bar:
        task = bar.add_task(f"run {found.id}", total=len(found.stretches))
        seen = list(ranges)

        def tell(number: int, state: RangeState) -> None:
            seen[number] = state
            standing = Standing(found, seen)
            said = f"run {found.id}: {standing.done} of {len(seen)} ranges, {standing.counts.deleted} versions removed"
            bar.update(task, completed=standing.passed(run.store), description=said)

        yield tell


def _show(run: Command, sweep: LegacySweep, table: TableRef) -> None:
    standing = sweep.standing(table)
    if standing is None:
        raise NotFound(f"run: {table} was never swept by scanning; 'sweepflow legacy-sweep {table}' does it")
    document = _standing_document(standing, run.settings.legacy_silent_s, standing.passed(run.store))
    run.answer(document, lambda out: _print_standing(out, document))


def _standing_document(standing: Standing, silent_s: int, passed: float) -> dict[str, Any]:
    run = standing.run
    alive = is_at_work(standing, SystemClock().now_ms(), silent_s * 1000)
    return {
        "run": run.id,
        "table": str(run.table),
        "state": "cut off" if run.state is RunState.RUNNING and not alive else run.state.value,
        "why": run.why,
        "owner": run.owner,
        "attempt": run.attempt,
        "sweep_ts": run.horizon.sweep_ts,
        "started": str(from_ms(run.started_ms)),
        "heard_of": str(from_ms(standing.heard_of_ms)),
        "ranges": len(run.stretches),
        "ranges_done": standing.done,
        "passed": f"{passed / len(run.stretches):.0%}",
        **standing.counts._asdict(),
    }


def _print_standing(out: Console, document: dict[str, Any]) -> None:
    shown = Table(show_header=False)
    for key, value in document.items():
        shown.add_row(key.replace("_", " "), "-" if value is None else str(value))
    out.print(shown)
    if document["state"] == RunState.CANCELLED:
        again = f"'sweepflow legacy-sweep {document['table']}'"
        out.print(f"the DAG legacy_sweep leaves the table alone until somebody goes on: {again}", highlight=False)


def _print_summary(out: Console, summary: LegacySummary, go_on: str) -> None:
    counts = summary.counts
    also = [f"{getattr(counts, name)} {what}" for name, what in _ALSO.items() if getattr(counts, name)]
    done = ["removed", "would be removed"][summary.dry_run]
    out.print(
        f"run {summary.run} of {summary.table}, up to {summary.sweep_ts}: {counts.cells} cells examined, "
        f"{', '.join([f'{counts.deleted} of {counts.versions} versions {done}', *also])}; "
        f"{summary.ranges_done} of {summary.ranges} ranges done",
        highlight=False,
    )
    if summary.dry_run:
        out.print("a dry run: nothing was changed")
    elif summary.stopped:
        out.print(f"{CUT_SHORT.get(summary.stopped, summary.stopped)}; {go_on}")
    if summary.still_due:
        out.print(f"what a change of strategy has left is still due: {summary.still_due.sentence}", highlight=False)
    if summary.counts.held:
        out.print(f"in {summary.counts.held} cells a protection holds something: 'sweepflow protections'")
    if summary.counts.waiting or summary.counts.left:
        out.print(
            "some could not go yet: copies that do not answer, or too many tombstones for one row; sweep it again"
        )


def _row(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadValue("from_row", "is not hexadecimal; write it like 61ff, two digits for each byte") from None


def _me() -> str:
    return f"{getpass.getuser()} at {socket.gethostname()}, process {os.getpid()}"
