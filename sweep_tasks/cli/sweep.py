"""`sweepflow sweep` and `sweepflow status`."""

from __future__ import annotations

from typing import Annotated, Any

import pendulum
import typer
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.table import Table

from sweep_tasks.cli.command import Command, DryRunOption, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.progress import NEVER_SWEPT, QUEUES, Progress
from sweep_tasks.sweep.budget import Budget
from sweep_tasks.sweep.engine import SweepOptions
from sweep_tasks.sweep.lag import lag_s, swept_up_to
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds

_COUNTS = ("entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "blocked", "quarantined")


def sweep(
    ctx: typer.Context,
    strategy: Annotated[
        list[SweepStrategy] | None, typer.Option(help="conservative or thorough; both if none is given.")
    ] = None,
    shard: Annotated[list[int] | None, typer.Option(help="May be given several times; all if none is.")] = None,
    stop_at: Annotated[int | None, typer.Option(metavar="TIMESTAMP", help="Go no further than this.")] = None,
    max_entries: Annotated[int, typer.Option(min=0, help="Stop after so many entries a shard; 0: no limit.")] = 0,
    max_seconds: Annotated[float, typer.Option(min=0, help="Stop after so many seconds a shard; 0: no limit.")] = 0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sweep the store from this process: remove what no reader at or above the sweep timestamp can see."""
    with command(ctx, store, as_json) as run:
        if strategy and SweepStrategy.NOTHING in strategy:
            raise BadValue("strategy", "nothing is never swept; give conservative or thorough")
        settings = run.settings
        budget = Budget.of(settings, max_entries, max_seconds)
        options = SweepOptions(settings.sweep_batch_entries, settings.grace_s, budget, dry_run)
        summaries = Sweeper(run.store, settings, SystemClock()).sweep(strategy or QUEUES, shard, stop_at, options)
        documents = _with_progress(run, summaries, len(strategy or QUEUES) * (len(shard or []) or _shards(run)))
        run.answer({"dry_run": dry_run, "shards": documents}, lambda out: _print_summaries(out, documents, dry_run))


def _shards(run: Command) -> int:
    return Progress(run.store).shards()


def _with_progress(run: Command, summaries: Any, total: int) -> list[dict[str, Any]]:
    with ProgressBar(console=Console(stderr=True), transient=True, disable=run.as_json) as bar:
        task = bar.add_task("sweeping", total=total)
        documents = []
        for summary in summaries:
            documents.append(summary.document())
            bar.advance(task)
    return documents


def _print_summaries(out: Console, documents: list[dict[str, Any]], dry_run: bool) -> None:
    """Counts that are nought everywhere are left out: a narrow terminal shows what happened."""
    counts = [name for name in _COUNTS if name == "entries" or any(document[name] for document in documents)]
    shown = Table("strategy", "shard", "progress", *(name.replace("_", " ") for name in counts), "ended")
    for document in documents:
        progress = f"{document['progress_before']} → {document['progress']}"
        figures = [str(document[name]) for name in counts]
        shown.add_row(document["strategy"], str(document["shard"]), progress, *figures, document["stopped"] or "done")
    out.print(shown)
    if dry_run:
        out.print("a dry run: nothing was changed")


def status(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How far everything is swept, and what holds it up."""
    with command(ctx, store, as_json) as run:
        document = _status(run)
        run.answer(document, lambda out: _print_status(out, document))


def _status(run: Command) -> dict[str, Any]:
    store = run.store
    now_ms = SystemClock().now_ms()
    thresholds = Thresholds(store)
    leases = Leases(store, run.settings.lease_ttl_s).open()
    shards = [
        {
            "strategy": each.strategy.value,
            "shard": each.shard,
            "progress": each.progress,
            "lag_s": None if each.moment_ms is None else lag_s(each.moment_ms, now_ms),
        }
        for each in swept_up_to(store)
    ]
    return {
        "now": str(from_ms(now_ms)),
        "timestamp": TimestampService(store).greatest(),
        "thresholds": {strategy.value: thresholds.of_strategy(strategy) for strategy in QUEUES},
        "shards": shards,
        "open_transactions": len(leases),
        "oldest_open_transaction": {"lease": leases[0].ts, "owner": leases[0].owner} if leases else None,
        "protections": len(ProtectionCatalog(store).records()),
    }


def _print_status(out: Console, document: dict[str, Any]) -> None:
    shown = Table("strategy", "shard", "progress", "swept up to", "lag")
    for each in document["shards"]:
        progress = "never" if each["progress"] == NEVER_SWEPT else str(each["progress"])
        lag = "unknown" if each["lag_s"] is None else pendulum.duration(seconds=each["lag_s"]).in_words() or "none"
        shown.add_row(
            each["strategy"], str(each["shard"]), progress, str(document["thresholds"][each["strategy"]]), lag
        )
    out.print(shown)
    oldest = document["oldest_open_transaction"]
    holding = f", the oldest held by {oldest['owner']} since {oldest['lease']}" if oldest else ""
    out.print(f"last timestamp {document['timestamp']}; {document['open_transactions']} open transactions{holding}; "
              f"{document['protections']} protections")  # fmt: skip
