"""The summaries of runs as figures: what each kind of work adds to the tally when it ends.

The work is done by then. Figures that can't be kept are said to be lost, and fail nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import structlog

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.observation.tally import Done, Tally, Try
from sweep_tasks.protection.metrics import listening
from sweep_tasks.store.contract import Store

log = structlog.get_logger(__name__)

SWEEP = "sweep"
DRY_RUN = "dry_run"
"""What sweeps would do: shown with the runs, and no part of any sum of what was done."""
RECONCILE = "reconcile"
OPERATIONS = "protection_operations"
LEGACY = "legacy"
COMPACTION = "compaction"
SWEEP_COUNTS = (
    "entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "quarantined",
    "cleaned_partitions",
)  # fmt: skip


def enter_sweep(store: Store, clock: Clock, summary: Mapping[str, Any], by: Try) -> None:
    """Of one shard, by its document. A dry run did nothing: what it would do is kept apart, for whoever asked."""
    done = sweep_done(summary, by, clock.now_ms())
    enter(store, clock, replace(done, job=DRY_RUN) if summary["dry_run"] else done)


def enter_reconciliation(store: Store, clock: Clock, report: Mapping[str, Any], by: Try) -> None:
    if not report["dry_run"]:
        amounts = {"runs": 1, **report["outcomes"]}
        said = {name: report[name] for name in ("records", "spans", "oldest_age_s")}
        problems = {"problems": len(report["problems"])}
        enter(store, clock, Done(RECONCILE, {}, by, amounts, clock.now_ms(), said=said | problems))


def enter_scan(store: Store, clock: Clock, summary: Mapping[str, Any], by: Try) -> None:
    """Of one turn of a table that was scanned, by its document."""
    if not summary["dry_run"]:
        took_s = sum(summary["seconds"].values())
        counts = summary["this_time"]
        amounts = {name: counts[name] for name in ("versions", "deleted", "sentinels")}
        amounts |= {"runs": 1, "seconds": took_s}
        said = {name: summary[name] for name in ("run", "ranges", "ranges_done", "stopped")}
        enter(store, clock, Done(LEGACY, {"table": summary["table"]}, by, amounts, clock.now_ms(), took_s, said))


def enter_compaction(store: Store, clock: Clock, report: Mapping[str, Any], by: Try) -> None:
    """Of a round on one node, by its report."""
    if not report["dry_run"]:
        amounts = {"runs": 1, "dropped": report["dropped"], "bytes_rewritten": report["bytes_rewritten"]}
        said = {
            "tombstones": report["tombstones"]["after"],
            "near_failing": len(report["near_failing"]),
            "kept": report["kept"],
        }
        enter(store, clock, Done(COMPACTION, {"node": report["node"]}, by, amounts, clock.now_ms(), said=said))


def enter_operations(store: Store, clock: Clock, done: Mapping[str, float], by: Try) -> None:
    """What this process did to protections, by operation and outcome."""
    if any(done.values()):
        enter(store, clock, Done(OPERATIONS, {}, by, done, clock.now_ms()))


@contextmanager
def operations_entered(store: Store, clock: Clock, by: Try) -> Iterator[None]:
    """What becomes of operations on protections in this block is added up in the store, however it ends."""
    with listening() as heard:
        try:
            yield
        finally:
            enter_operations(store, clock, heard, by)


def enter(store: Store, clock: Clock, done: Done) -> None:
    _unless_it_fails("run_lost", "the figures of a run are lost", lambda: Tally(store, clock).enter(done))


def sample(store: Store, clock: Clock) -> None:
    _unless_it_fails("sample_lost", "nothing was counted", lambda: take_sample(store, clock))


def push_metrics(store: Store, settings: Settings, clock: Clock) -> None:
    """To the collector of the settings, if there is one."""
    if settings.metrics_otlp_url:
        from sweep_tasks.observation.otlp import push

        url = settings.metrics_otlp_url
        lost = "the collector did not take the metrics"
        _unless_it_fails("metrics_lost", lost, lambda: push(store, settings, clock, url))


def sweep_done(summary: Mapping[str, Any], by: Try, ended_ms: int) -> Done:
    took_s = sum(summary["seconds"].values())
    amounts = {name: summary[name] for name in SWEEP_COUNTS}
    amounts |= {"runs": 1, "seconds": took_s, "timestamps": summary["progress"] - summary["progress_before"]}
    said = {name: summary[name] for name in ("entries", "range_deletes", "progress", "stopped")}
    labels = {"strategy": str(summary["strategy"]), "shard": str(summary["shard"])}
    return Done(SWEEP, labels, by, amounts, ended_ms, took_s, {**said, "engine": summary.get("engine", "local")})


def _unless_it_fails(code: str, lost: str, keep: Callable[[], object]) -> None:
    try:
        keep()
    except SweepflowError as error:
        log.warning(lost, code=code, why=str(error))
