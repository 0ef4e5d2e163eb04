"""What happened in the last days: work and backlog over time, and the last runs. As a document, like the status.

Kept by the runs themselves, in steps of a quarter of an hour: a step in which nothing ended is not there.
"""

from __future__ import annotations

from typing import Any

from sweep_tasks.observation.samples import points
from sweep_tasks.observation.tally import STEP_MS, Tally
from sweep_tasks.store.contract import Store

Document = dict[str, Any]


def history(store: Store) -> Document:
    """In two store calls."""
    entered = Tally(store).read()
    sampled = points(store)
    steps = sorted({*entered.timeline, *sampled})
    runs = [
        {
            "dag": dag,
            "run": run,
            **plain,
            "named": sorted(plain.get("named", ())),
            "took_s": round((plain["ended_ms"] - plain["began_ms"]) / 1000, 1),
        }
        for (dag, run), plain in entered.runs.items()
    ]
    return {
        "step_s": STEP_MS // 1000,
        "points": [{"at_ms": at, "work": entered.timeline.get(at, {}), "sample": sampled.get(at)} for at in steps],
        "runs": sorted(runs, key=lambda run: run["ended_ms"], reverse=True),
    }
