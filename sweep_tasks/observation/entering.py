"""The summaries of runs as figures: what each kind of work adds to the tally."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep_tasks.clock import Clock
from sweep_tasks.observation.tally import Done, Tally, Try
from sweep_tasks.store.contract import Store

SWEEP = "sweep"
SWEEP_COUNTS = (
    "entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "quarantined",
    "cleaned_partitions",
)  # fmt: skip


def enter_sweep(store: Store, clock: Clock, summary: Mapping[str, Any], by: Try) -> bool:
    """Of one shard, by its document; False if this try was entered before. A dry run did nothing, and adds nothing."""
    if summary["dry_run"]:
        return False
    return Tally(store, clock).enter(sweep_done(summary, by, clock.now_ms()))


def sweep_done(summary: Mapping[str, Any], by: Try, ended_ms: int) -> Done:
    took_s = sum(summary["seconds"].values())
    amounts = {name: summary[name] for name in SWEEP_COUNTS}
    amounts |= {"runs": 1, "seconds": took_s, "timestamps": summary["progress"] - summary["progress_before"]}
    said = {name: summary[name] for name in ("entries", "range_deletes", "progress", "stopped")}
    labels = {"strategy": str(summary["strategy"]), "shard": str(summary["shard"])}
    return Done(SWEEP, labels, by, amounts, ended_ms, took_s, {**said, "engine": summary.get("engine", "local")})
