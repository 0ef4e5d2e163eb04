"""`sweepflow sweep`: sweeps from this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.progress import Progress as ProgressBar
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command
from sweep_tasks.cli.options import DryRunOption, JsonOption, StoreOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import BadValue
from sweep_tasks.metrics.samples import tally_sweeps
from sweep_tasks.metrics.tally import COMMAND
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import Reached, Summary

_COUNTS = ("entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "blocked", "quarantined")


def sweep(
    ctx: typer.Context,
    strategy: Annotated[
        list[SweepStrategy] | None, typer.Option(help="conservative or thorough; default: both.")
    ] = None,
    shard: Annotated[list[int] | None, typer.Option(help="May be repeated; default: all shards.")] = None,
    stop_at: Annotated[int | None, typer.Option(metavar="TIMESTAMP", help="Stop at this timestamp.")] = None,
    max_entries: Annotated[int, typer.Option(min=0, help="Stop each shard after this many entries; 0: no limit.")] = 0,
    max_seconds: Annotated[
        float, typer.Option(min=0, help="Stop each shard after this many seconds; 0: no limit.")
    ] = 0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep the store from this process: remove versions that no reader at or above the sweep timestamp can see."""
    with command(ctx, store, as_json) as run:
        if strategy and SweepStrategy.NOTHING in strategy:
            raise BadValue("strategy", "nothing is never swept; give conservative or thorough")
        settings = run.settings
        total = len(strategy or QUEUES) * (len(shard or []) or Progress(run.store).shards())
        with Bar(total, disable=run.as_json) as bar:
            options = SweepOptions.of(
                settings, max_entries=max_entries, max_seconds=max_seconds, dry_run=dry_run, listener=bar
            )
            summaries = Sweeper(run.store, settings, SystemClock()).sweep(strategy or QUEUES, shard, stop_at, options)
            done = _sweep_shards(run, summaries, bar)
        document = {"dry_run": dry_run, "shards": [each.document() for each in done]}
        run.answer(document, lambda out: _print_summaries(out, done, dry_run))


def _sweep_shards(run: Command, summaries: Iterable[Summary], bar: Bar) -> list[Summary]:
    """Carry out the sweeps, and show the progress."""
    done = []
    for summary in tally_sweeps(run.store, SystemClock(), summaries, COMMAND):
        bar.finish_shard()
        done.append(summary)
    return done


class Bar(ProgressBar):
    """A progress bar over all shards. Updated with the progress of the current shard."""

    def __init__(self, shards: int, disable: bool) -> None:
        super().__init__(console=Console(stderr=True), transient=True, disable=disable)
        self._task = self.add_task("sweeping", total=shards)
        self._shards = 0

    def __call__(self, reached: Reached) -> None:
        doing = f"{reached.strategy} shard {reached.shard}: {reached.phase}, {reached.entries:,} entries"
        self.update(self._task, completed=self._shards + reached.share, description=doing)

    def finish_shard(self) -> None:
        self._shards += 1
        self.update(self._task, completed=self._shards)


def _print_summaries(out: Console, summaries: list[Summary], dry_run: bool) -> None:
    """Print a line for each shard. Counts that are 0 everywhere are left out, to fit narrow terminals."""
    counts = [name for name in _COUNTS if name == "entries" or any(getattr(each, name) for each in summaries)]
    shown = Table("strategy", "shard", "progress", *(name.replace("_", " ") for name in counts), "ended")
    for each in summaries:
        progress = f"{each.progress_before} → {each.progress}"
        figures = [str(getattr(each, name)) for name in counts]
        shown.add_row(each.strategy.value, str(each.shard), progress, *figures, each.stopped or "done")
    out.print(shown)
    if dry_run:
        out.print("a dry run: nothing was changed")
