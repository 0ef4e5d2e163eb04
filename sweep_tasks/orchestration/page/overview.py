"""What the page shows of a store: documents in, plain values for the templates out.

Read in a fixed number of store calls. Of many records the page lists the oldest; all of them are a command away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.durations import short
from sweep_tasks.journal import Journal
from sweep_tasks.observation.history import history
from sweep_tasks.observation.status import status
from sweep_tasks.observation.tally import KEPT_MS
from sweep_tasks.orchestration.page.rendering import grouped
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
_MINUTE_MS = 60_000
"""What is drawn ends with the last full minute, so that it is drawn anew once a minute."""


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


class Press(NamedTuple):
    """A button: where it leads, what it says, and a name that stays the same for the same thing."""

    where: str
    words: str
    name: str
    danger: bool = False


def overview(store: Store, settings: Settings, clock: Clock) -> Document:
    found, past = status(store, settings, clock), history(store)
    told = {f"{pause['what']} paused" for pause in found["paused"]}  # above, with a button
    problems = [each for each in found["health"]["problems"] if each["about"] not in told][:MOST_PROBLEMS]
    return {
        "status": found,
        "problems": [each | {"presses": presses(each["about"], found)} for each in problems],
        "strips": strips(found),
        "latest": furthest_behind(found["shards"], found["objectives"]),
        "records": found["protection_records"][:MOST_RECORDS],
        "charts": charts(past, found),
        "runs": [each | {"did": did(each["jobs"])} for each in past["runs"][:MOST_RUNS]],
        "notes": Journal(store).last(MOST_NOTES),
    }


def presses(about: str, found: Document) -> list[Press]:
    """What can be done about a problem right here."""
    kind, _, rest = about.partition(" ")
    if about == "quarantine":
        return [Press("quarantine/retry", "Retry quarantined", "press-problem-retry")]
    if rest == "lag":
        late = [str(each["shard"]) for each in found["shards"] if each["strategy"] == kind and each["behind"]]
        asked = f"strategy={kind}&shards={','.join(late)}"
        what = f"shard {late[0]}" if len(late) == 1 else f"{len(late)} shards"
        return [
            Press(f"sweeps/new?dry_run=1&{asked}", f"Dry run of {what}", f"press-problem-dry-run-{kind}"),
            Press(f"sweeps/new?{asked}", f"Sweep {what}", f"press-problem-sweep-{kind}"),
        ]
    record = rest.rpartition(" ")[0]
    if kind == "record" and record in {each["id"] for each in found["protection_records"]}:
        return [Press(f"protections/release?id={quote(record)}", "Release", f"press-problem-release-{record}", True)]
    return []


_DID = {
    "entries": "entries read",
    "range_deletes": "cells swept",
    "aborted_deletes": "aborted versions deleted",
    "versions": "versions examined",
    "deleted": "versions deleted",
    "dropped": "tombstones dropped",
    "bytes_rewritten": "bytes rewritten",
}
_UNTOLD = frozenset({"runs", "seconds", "timestamps", "cleaned_partitions"})
_JOBS = {"sweep": "swept", "dry_run": "dry run, would be", "legacy": "scanned", "reconcile": "protections"}


class Did(NamedTuple):
    """What a run did of one kind of work: the figures that are shown, and the sentence that shows them."""

    job: str
    figures: dict[str, int]
    sentence: str


def did(jobs: Mapping[str, Mapping[str, float]]) -> list[Did]:
    """Of a run, each kind of its work; whatever kind that is."""
    done = []
    for job, sums in jobs.items():
        figures = {name: round(number) for name, number in sums.items() if name not in _UNTOLD}
        shown = [f"{grouped(number)} {_DID.get(name, _readable(name))}" for name, number in figures.items()]
        sentence = f"{_JOBS.get(job, _readable(job))}: {', '.join(shown) or 'nothing to do'}"
        done.append(Did(job, figures, sentence))
    return done


def _readable(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


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
    label = f"{shard['strategy']} shard {shard['shard']}: {least}{short(lag)} behind, {short(allowed)} are allowed"
    number, unit = short(lag).split()[:2]
    return HeatCell(shard["shard"], level(lag / allowed), number + unit[0], label)


def level(share: float) -> str:
    """0 is fresh, 3 the last before it is behind, 5 far too late."""
    return str(sum(share > limit for limit in _LEVELS))


def furthest_behind(shards: Iterable[Document], allowed: Mapping[str, int]) -> list[Document]:
    known = [each for each in shards if each["lag_s"] is not None]
    return sorted(known, key=lambda each: -each["lag_s"] / allowed[each["strategy"]])[:MOST_BEHIND]


def charts(past: Document, found: Document) -> Document | None:
    """Series over the last days for the browser to draw; None if nothing is on record yet. They end now, with what the
    clock says. A step in which nobody worked is not on record: there nothing was swept, and nothing was counted."""
    now_ms, step_ms = found["now_ms"] // _MINUTE_MS * _MINUTE_MS, past["step_s"] * 1000
    points = {point["at_ms"]: point for point in past["points"] if now_ms - point["at_ms"] <= KEPT_MS}
    if not points:
        return None
    times = range(min(points), max(now_ms, min(points) + 1), step_ms)
    work = [(points.get(at) or {"work": {}})["work"] for at in times]
    samples = [(points.get(at) or {"sample": None})["sample"] for at in times]
    swept = sorted({name.partition(":")[2] for each in work for name in each if name.startswith("sweep:")})
    now = {name: each for name, each in found["strategies"].items() if each["lag_s"] is not None}
    return {
        "times": [*(at // 1000 for at in times), now_ms // 1000],
        "throughput": {
            strategy: [
                *(each.get(f"sweep:{strategy}", {}).get("entries", 0) * 60 / past["step_s"] for each in work),
                None,
            ]
            for strategy in swept
        },
        "backlog": {
            name: [
                *((sample.get("backlog") or {}).get(name) if sample else None for sample in samples),
                each["backlog"]["entries_estimated"],
            ]
            for name, each in found["strategies"].items()
        },
        "lag": {
            name: [
                *(sample["lag_s"].get(name, 0) / 3_600 if sample else None for sample in samples),
                each["lag_s"] / 3_600,
            ]
            for name, each in now.items()
        },
        "waiting": {
            name: [*(sample[name] if sample else None for sample in samples), None]
            for name in ("parked", "quarantined")
        },
    }
