"""What the page shows of a store: documents in, plain values for the templates out.

Read in a fixed number of store calls. Of many records the page lists the oldest; all of them are a command away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.journal import Journal
from sweep_tasks.observation.history import history
from sweep_tasks.observation.status import status
from sweep_tasks.orchestration.page.rendering import span
from sweep_tasks.store.contract import Store

Document = dict[str, Any]

MOST_PROBLEMS = 10
MOST_RECORDS = 50
MOST_BEHIND = 5
MOST_RUNS = 10
MOST_NOTES = 10
_LEVELS = (0.25, 0.5, 0.75, 1.0, 2.0)
"""Shares of what is allowed: from the fourth on a shard is behind."""
_ROOM_FOR_WORDS = 32


class HeatCell(NamedTuple):
    shard: int
    level: str
    short: str
    label: str


class Strip(NamedTuple):
    """All shards of a strategy side by side, each as dark as it is late."""

    strategy: str
    allowed_s: int
    lag_s: int | None
    behind: int
    cells: list[HeatCell]

    @property
    def spacious(self) -> bool:
        return len(self.cells) <= _ROOM_FOR_WORDS


def overview(store: Store, settings: Settings, clock: Clock) -> Document:
    found, past = status(store, settings, clock), history(store)
    told = {f"{pause['what']} paused" for pause in found["paused"]}  # above, with a button
    return {
        "status": found,
        "problems": [each for each in found["health"]["problems"] if each["about"] not in told][:MOST_PROBLEMS],
        "strips": strips(found),
        "latest": furthest_behind(found["shards"], found["objectives"]),
        "records": found["protection_records"][:MOST_RECORDS],
        "charts": charts(past, found["now_ms"]),
        "runs": past["runs"][:MOST_RUNS],
        "notes": Journal(store).last(MOST_NOTES),
    }


def strips(found: Document) -> list[Strip]:
    made = []
    for strategy, whole in found["strategies"].items():
        allowed = found["objectives"][strategy]
        cells = [heat_cell(each, allowed) for each in found["shards"] if each["strategy"] == strategy]
        made.append(Strip(strategy, allowed, whole["lag_s"], whole["behind"], cells))
    return made


def heat_cell(shard: Document, allowed: int) -> HeatCell:
    lag = shard["lag_s"]
    if lag is None:
        label = f"{shard['strategy']} shard {shard['shard']}: how far behind is not known"
        return HeatCell(shard["shard"], "unknown", "?", label)
    least = "at least " if shard["lag_at_least"] else ""
    label = f"{shard['strategy']} shard {shard['shard']}: {least}{span(lag)} behind, {span(allowed)} are allowed"
    number, unit = span(lag).split()[:2]
    return HeatCell(shard["shard"], level(lag / allowed), number + unit[0], label)


def level(share: float) -> str:
    """0 is fresh, 3 the last before it is behind, 5 far too late."""
    return str(sum(share > limit for limit in _LEVELS))


def furthest_behind(shards: Iterable[Document], allowed: Mapping[str, int]) -> list[Document]:
    known = [each for each in shards if each["lag_s"] is not None]
    return sorted(known, key=lambda each: -each["lag_s"] / allowed[each["strategy"]])[:MOST_BEHIND]


def charts(past: Document, now_ms: int) -> Document | None:
    """Series over time for the browser to draw; None if nothing is on record yet. A step in which nobody worked is not
    on record: there nothing was swept, and nothing was counted."""
    points = {point["at_ms"]: point for point in past["points"]}
    if not points:
        return None
    step_ms = past["step_s"] * 1000
    times = range(min(points), max(now_ms, min(points) + 1), step_ms)
    strategies = sorted({name.partition(":")[2] for point in points.values() for name in point["work"] if ":" in name})
    work = [(points.get(at) or {"work": {}})["work"] for at in times]
    samples = [(points.get(at) or {"sample": None})["sample"] for at in times]
    lagging = sorted({strategy for sample in samples if sample for strategy in sample["lag_s"]})
    return {
        "times": [at // 1000 for at in times],
        "throughput": {
            strategy: [each.get(f"sweep:{strategy}", {}).get("entries", 0) * 60 / past["step_s"] for each in work]
            for strategy in strategies
        },
        "lag": {
            strategy: [sample["lag_s"].get(strategy, 0) / 3_600 if sample else None for sample in samples]
            for strategy in lagging
        },
        "waiting": {
            name: [sample[name] if sample else None for sample in samples] for name in ("parked", "quarantined")
        },
    }
