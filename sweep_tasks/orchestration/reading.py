"""A sweep's summary as one line that a person reads in the log of its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALSO = ("aborted_deletes", "parked", "unparked", "blocked", "quarantined")
_CUT_SHORT = {
    "entries": "stopped at the limit of entries",
    "seconds": "stopped at the limit of seconds",
    "tombstones": "stopped at the limit of tombstones in a row",
    "blocked": "held up by a transaction that committed later",
    "paused": "everything is paused, 'sweepflow resume' lifts that",
}


def readable(summary: Mapping[str, Any]) -> str:
    """Counts that are nought are left out, except the two that everybody asks for."""
    also = [f"{_grouped(summary[name])} {name.replace('_', ' ')}" for name in _ALSO if summary[name]]
    done = [f"{_grouped(summary['entries'])} entries read", f"{_grouped(summary['range_deletes'])} cells swept", *also]
    parts = [*done, f"progress {_grouped(summary['progress_before'])} → {_grouped(summary['progress'])}"]
    took = f"in {sum(summary['seconds'].values()):.1f} s"
    how = " without Spark" if summary["engine"] == "idle" else ""
    ended = f"; {_CUT_SHORT.get(summary['stopped'], summary['stopped'])}" if summary["stopped"] else ""
    dry = " (a dry run: nothing was changed)" if summary["dry_run"] else ""
    return f"{summary['strategy']} shard {summary['shard']}: {', '.join(parts)} {took}{how}{ended}{dry}"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
