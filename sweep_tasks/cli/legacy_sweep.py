"""`sweepflow legacy-sweep`: sweep one table by scanning it, from this process.

For data without queue entries. A run has an id and its state is in the store, so that another process can show it,
cancel it or resume it, here or in Airflow.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, escape
from sweep_tasks.cli.options import DryRunOption, JsonOption, StoreOption, YesOption
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.errors import EXIT_INTERRUPTED, BadValue, NotFound
from sweep_tasks.journal.actors import current_user
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RangeState, Run, RunProgress, RunState
from sweep_tasks.legacy.resumption import Begin, Watched, decide_start, is_at_work, start_run
from sweep_tasks.legacy.rules import ScanCounts
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.logs import bind_log_names
from sweep_tasks.metrics.samples import tally_scan
from sweep_tasks.metrics.tally import COMMAND, TaskAttempt
from sweep_tasks.model import TableRef

_ALSO = {
    "aborted": "of transactions that never committed",
    "sentinels": "sentinels added",
}
CUT_SHORT = {
    "cells": "stopped at the limit of cells",
    "seconds": "stopped at the limit of seconds",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
    "taken over": "another process has taken it over",
    "sweeping paused": "sweeping is paused, 'sweepflow pause --list' shows by whom",
}


def legacy_sweep(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAMESPACE.NAME")],
    from_row: Annotated[str, typer.Option(metavar="HEX", help="Start at this row, in the store's own order.")] = "",
    max_cells: Annotated[int, typer.Option(min=0, help="Stop after this many cells; 0: no limit.")] = 0,
    max_seconds: Annotated[float, typer.Option(min=0, help="Stop after this many seconds; 0: no limit.")] = 0,
    batch: Annotated[int, typer.Option(min=0, help="Versions per page; 0: as configured.")] = 0,
    ranges: Annotated[int, typer.Option(min=0, help="Ranges of a new run; 0: as configured.")] = 0,
    stop_at: Annotated[
        int | None, typer.Option(metavar="TIMESTAMP", help="An upper bound for the sweep timestamp.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start from the beginning, even if a run could be resumed.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show the run of the table.")] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Stop the run, in whichever process; scheduled scans then skip the table."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep a table by scanning all of it, for versions without a queue entry.

    Resumes a run of the same rows that was paused, cancelled or interrupted. Ctrl-C pauses the run. A run of other rows
    is dropped only with --restart.
    """
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        if status and cancel:
            raise BadValue("status", "shows a run and --cancel stops it; give one of them")
        sweep = LegacySweep(run.store, run.settings, SystemClock(), _owner())
        if cancel:
            sweep.cancel(table)
        if status or cancel:
            _show(run, sweep, table)
            return
        order = LegacyOrder(table, stop_at, _row(from_row), ranges, max_cells, max_seconds, batch, dry_run)
        _sweep(run, sweep, order, restart, yes)


def _sweep(run: Command, sweep: LegacySweep, order: LegacyOrder, restart: bool, yes: bool) -> None:
    how, existing = decide_start(run.store, run.settings, SystemClock(), order, restart=restart, owner="")
    if restart and existing and how is Begin.TAKE_OVER:
        done = f"{existing.done} of {len(existing.ranges)} ranges"
        run.confirm(f"drop run {existing.run.id} of {existing.run.owner}, with {done} done?", yes)
    resume_hint = how_to_resume(restart)
    with _interruptible(run, resume_hint):
        found = start_run(sweep, order, how, existing)
        ranges = existing.ranges if existing and how is Begin.RESUME else [RangeState()] * len(found.scan_ranges)
        with bind_log_names(run=found.id, table=str(order.table)), _bar(run, found, ranges) as show_progress:
            summary = sweep.work(found, order, lambda ledger: Watched(ledger, show_progress))
    document = summary.document() | {"begun": how.value}
    tally_scan(run.store, SystemClock(), summary, TaskAttempt(COMMAND, f"{found.id}-{found.attempt}", "legacy-sweep"))
    run.answer(document, lambda out: _print_summary(out, summary, resume_hint))


def how_to_resume(restart: bool) -> str:
    return f"the same command{' without --restart' if restart else ''} resumes it"


@contextmanager
def _interruptible(run: Command, resume_hint: str) -> Iterator[None]:
    """Pause the run when it is interrupted, and print how to resume it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if not run.as_json:
            Console(stderr=True).print(f"paused; {resume_hint}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bar(run: Command, found: Run, ranges: list[RangeState]) -> Iterator[Callable[[int, RangeState], None]]:
    """Show a progress bar that advances with every page, within a range by its position among the rows."""
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=run.as_json) as bar:
        task = bar.add_task(f"run {found.id}", total=len(found.scan_ranges))
        seen = list(ranges)

        def show_progress(number: int, state: RangeState) -> None:
            seen[number] = state
            existing = RunProgress(found, seen)
            text = f"run {found.id}: {existing.done} of {len(seen)} ranges, {existing.counts.deleted} versions removed"
            bar.update(task, completed=existing.passed(run.store), description=text)

        yield show_progress


def _show(run: Command, sweep: LegacySweep, table: TableRef) -> None:
    existing = sweep.progress(table)
    if existing is None:
        raise NotFound(f"run: {table} was never scanned; 'sweepflow legacy-sweep {table}' scans it")
    shown = ShownRun.of(existing, run.settings.legacy_silent_s, existing.passed(run.store))
    run.answer(shown.document(), lambda out: _print_run(out, shown))


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run as the command shows it. Its fields and those of the counts are the keys of the JSON document."""

    run: str
    table: str
    state: str
    why: str | None
    owner: str
    attempt: int
    sweep_ts: int
    started: str
    heard_of: str
    ranges: int
    ranges_done: int
    passed: str
    counts: ScanCounts

    @classmethod
    def of(cls, existing: RunProgress, silent_s: int, passed: float) -> ShownRun:
        run = existing.run
        alive = is_at_work(existing, SystemClock().now_ms(), silent_s * 1000)
        return cls(
            run.id,
            str(run.table),
            "cut off" if run.state is RunState.RUNNING and not alive else run.state.value,
            run.why,
            run.owner,
            run.attempt,
            run.horizon.sweep_ts,
            str(from_ms(run.started_ms)),
            str(from_ms(existing.heard_of_ms)),
            len(run.scan_ranges),
            existing.done,
            f"{passed / len(run.scan_ranges):.0%}",
            existing.counts,
        )

    def document(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "counts"}
        return fields | self.counts._asdict()


def _print_run(out: Console, run: ShownRun) -> None:
    shown = Table(show_header=False)
    for key, value in run.document().items():
        shown.add_row(key.replace("_", " "), "-" if value is None else escape(str(value)))
    out.print(shown)
    if run.state == RunState.CANCELLED:
        again = f"'sweepflow legacy-sweep {run.table}'"
        out.print(f"the DAG legacy_sweep skips the table until the run is resumed: {again}", highlight=False)


def _print_summary(out: Console, summary: LegacySummary, resume_hint: str) -> None:
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
        out.print("dry run: nothing was changed")
    elif summary.stopped:
        out.print(f"{CUT_SHORT.get(summary.stopped, summary.stopped)}; {resume_hint}")
    if summary.still_due:
        out.print(f"the scan after a change of strategy is still due: {summary.still_due.sentence}", highlight=False)
    if summary.counts.held:
        out.print(f"in {summary.counts.held} cells a protection keeps versions: 'sweepflow protections' shows which")
    if summary.counts.waiting or summary.counts.left:
        out.print(
            "some versions could not be removed yet: a replica did not answer, or a row has too many tombstones; "
            "sweep the table again"
        )


def _row(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadValue("from_row", "is not hexadecimal; write it like 61ff, two digits for each byte") from None


def _owner() -> str:
    return f"{current_user()} at {socket.gethostname()}, process {os.getpid()}"
