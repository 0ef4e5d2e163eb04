"""The page: what it shows of a store, and its routes.

The store is read in a fixed number of calls. Of many protections the page lists the oldest. The page has two states:
the overview, and a notice that the store can't be read. The frame around both is the same, so a page that was opened
during an outage shows the overview as soon as the store answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.diagnosis.problems import Problem, Topic
from sweep_tasks.diagnosis.status import ProtectionStatus, ShardStatus, Status, StrategyStatus, status
from sweep_tasks.errors import StoreError
from sweep_tasks.journal.journal import Journal, Note
from sweep_tasks.metrics.exporters import CONTENT_TYPE, as_text, exposition
from sweep_tasks.metrics.samples import History, PastRun, history
from sweep_tasks.metrics.tally import KEPT_MS, SWEEP, line_of, swept_strategy
from sweep_tasks.metrics.values import DOWN
from sweep_tasks.orchestration.names import TARGETED_SWEEP, airflow_path
from sweep_tasks.store.contract import Store
from sweep_tasks.texts import duration
from sweep_tasks.web.actions import borrow_store_briefly
from sweep_tasks.web.rendering import grouped, rendered
from sweep_tasks.web.rights import Allowed, verified_message

router = APIRouter(tags=["overview"])

MOST_PROBLEMS = 10
MOST_RECORDS = 50
MOST_BEHIND = 5
MOST_RUNS = 10
MOST_NOTES = 10
_LEVELS = (0.25, 0.5, 0.75, 1.0, 2.0)
"""Lag as a share of the objective. Above the fourth limit a shard is behind."""
_WIDE_CELLS = 32
_MINUTE_MS = 60_000
"""Charts end with the last full minute, so that the browser redraws them once a minute."""


class HeatCell(NamedTuple):
    """A shard in the strip of its strategy."""

    shard: int
    level: str
    short: str
    label: str


class Strip(NamedTuple):
    """All shards of a strategy side by side, the darker the later."""

    strategy: str
    allowed_s: int
    lag_s: int | None
    behind: int
    cells: list[HeatCell]

    @property
    def spacious(self) -> bool:
        """There is room for the lag in each cell."""
        return len(self.cells) <= _WIDE_CELLS


class Button(NamedTuple):
    where: str
    words: str
    name: str
    """Identifies the button; the same button has the same name on every refresh."""
    danger: bool = False
    releases: bool = False
    """It takes the right to release protections instead of the right to sweep."""


class ShownProblem(NamedTuple):
    problem: Problem
    buttons: list[Button]


class JobDone(NamedTuple):
    """One kind of work that a run did: the numbers, and the sentence that shows them."""

    job: str
    figures: dict[str, int]
    sentence: str


class RunLine(NamedTuple):
    run: PastRun
    jobs: list[JobDone]


class Charts(NamedTuple):
    """Series over the last days, for the browser to draw. `times` are in seconds, None is a gap."""

    times: list[int]
    throughput: dict[str, list[float | None]]
    backlog: dict[str, list[float | None]]
    lag: dict[str, list[float | None]]
    waiting: dict[str, list[float | None]]


class Overview(NamedTuple):
    status: Status
    problems: list[ShownProblem]
    strips: list[Strip]
    latest: list[ShardStatus]
    records: list[ProtectionStatus]
    charts: Charts | None
    runs: list[RunLine]
    notes: list[Note]


def overview(store: Store, settings: Settings, clock: Clock) -> Overview:
    found, past = status(store, settings, clock), history(store)
    problems = [each for each in found.health.problems if each.topic is not Topic.PAUSE]  # shown above, with a button
    return Overview(
        status=found,
        problems=[ShownProblem(each, buttons(each, found)) for each in problems[:MOST_PROBLEMS]],
        strips=strips(found),
        latest=furthest_behind(found.shards, found.objectives),
        records=found.protection_records[:MOST_RECORDS],
        charts=charts(past, found.now_ms, found.strategies),
        runs=[RunLine(each, jobs_done(each.jobs)) for each in past.runs[:MOST_RUNS]],
        notes=Journal(store).last(MOST_NOTES, of_people=True),
    )


# --- routes -----------------------------------------------------------------------------------------------------------


@router.get("/")
def page(request: Request, allowed: Allowed, message: str = "") -> Response:
    shown = verified_message(message) if message else None
    return _respond(request, "page.html", allowed._asdict() | {"message": shown})


@router.get("/overview")
def refreshed_part(request: Request, allowed: Allowed) -> Response:
    """The part of the page that the browser fetches every few seconds."""
    return _respond(request, "part.html", allowed._asdict())


def _respond(request: Request, template: str, values: Mapping[str, Any]) -> Response:
    values = {**values, "airflow": airflow_path(), "dag": TARGETED_SWEEP}
    try:
        with borrow_store_briefly() as (store, settings):
            found = overview(store, settings, SystemClock())
    except StoreError as error:
        stopped = {"stopped": str(error), "now_ms": SystemClock().now_ms()}
        return rendered(request, template, {**values, **stopped}, HTTPStatus.SERVICE_UNAVAILABLE)
    return rendered(request, template, {**found._asdict(), **values, "stopped": None})


@router.get("/metrics")
def metrics() -> Response:
    """All metrics for Prometheus. A store that can't be opened is reported as a value and not as an HTTP error."""
    try:
        with borrow_store_briefly() as (store, settings):
            text = exposition(store, settings, SystemClock())
    except StoreError:
        text = as_text(DOWN)
    return Response(text, media_type=CONTENT_TYPE)


# --- problems and runs ------------------------------------------------------------------------------------------------


def buttons(problem: Problem, found: Status) -> list[Button]:
    """Return the buttons for what can be done about a problem on the page."""
    if problem.topic is Topic.QUARANTINE:
        return [Button("quarantine/retry", "Retry quarantined", "press-problem-retry")]
    if problem.strategy is not None:
        strategy = problem.strategy.value
        late = [str(each.shard) for each in found.shards if each.strategy == strategy and each.behind]
        query = f"strategy={strategy}&shards={','.join(late)}"
        what = f"shard {late[0]}" if len(late) == 1 else f"{len(late)} shards"
        return [
            Button(f"sweeps/new?dry_run=1&{query}", f"Dry run of {what}", f"press-problem-dry-run-{strategy}"),
            Button(f"sweeps/new?{query}", f"Sweep {what}", f"press-problem-sweep-{strategy}"),
        ]
    if problem.record is not None:
        name = f"press-problem-release-{problem.record}"
        where = f"protections/release?id={quote(problem.record)}"
        return [Button(where, "Release", name, danger=True, releases=True)]
    return []


_FIGURES = {
    "entries": "entries read",
    "range_deletes": "cells swept",
    "aborted_deletes": "aborted versions deleted",
    "versions": "versions examined",
    "deleted": "versions deleted",
    "dropped": "tombstones dropped",
    "bytes_rewritten": "bytes rewritten",
}
_NOT_SHOWN = frozenset({"runs", "seconds", "timestamps", "cleaned_partitions"})
_JOBS = {"sweep": "sweep", "dry_run": "dry run (would do)", "legacy": "scan", "reconcile": "protections"}


def jobs_done(jobs: Mapping[str, Mapping[str, float]]) -> list[JobDone]:
    """Describe each kind of work that a run did."""
    done = []
    for job, sums in jobs.items():
        figures = {name: round(number) for name, number in sums.items() if name not in _NOT_SHOWN}
        shown = [f"{grouped(number)} {_FIGURES.get(name, _readable(name))}" for name, number in figures.items()]
        sentence = f"{_JOBS.get(job, _readable(job))}: {', '.join(shown) or 'nothing to do'}"
        done.append(JobDone(job, figures, sentence))
    return done


def _readable(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


# --- lag --------------------------------------------------------------------------------------------------------------


def strips(found: Status) -> list[Strip]:
    shown = []
    for strategy, whole in found.strategies.items():
        allowed = found.objectives[strategy]
        cells = [heat_cell(each, allowed) for each in found.shards if each.strategy == strategy]
        shown.append(Strip(strategy, allowed, whole.lag_s, whole.behind, cells))
    return shown


def heat_cell(shard: ShardStatus, allowed: int) -> HeatCell:
    lag = shard.lag_s
    if lag is None:
        return HeatCell(shard.shard, "unknown", "?", f"{shard.strategy} shard {shard.shard}: lag not known")
    least = "at least " if shard.lag_at_least else ""
    label = f"{shard.strategy} shard {shard.shard}: {least}{duration(lag)} behind, {duration(allowed)} allowed"
    return HeatCell(shard.shard, level(lag / allowed), duration(lag, 1), label)


def level(share: float) -> str:
    """Return the colour level of a lag: 0 is almost none, from 4 on the shard is behind."""
    return str(sum(share > limit for limit in _LEVELS))


def furthest_behind(shards: Iterable[ShardStatus], allowed: Mapping[str, int]) -> list[ShardStatus]:
    known = [each for each in shards if each.lag_s is not None]
    return sorted(known, key=lambda each: -(each.lag_s or 0) / allowed[each.strategy])[:MOST_BEHIND]


def charts(past: History, now_ms: int, strategies: Mapping[str, StrategyStatus]) -> Charts | None:
    """Return the series of the last days up to now; None if nothing is recorded yet.

    A step without a recorded point had no work, and nothing was counted in it.
    """
    now_ms, step_ms = now_ms // _MINUTE_MS * _MINUTE_MS, past.step_s * 1000
    points = {point.at_ms: point for point in past.points if now_ms - point.at_ms <= KEPT_MS}
    if not points:
        return None
    times = range(min(points), max(now_ms, min(points) + 1), step_ms)
    work = [points[at].work if at in points else {} for at in times]
    samples = [points[at].sample if at in points else None for at in times]
    swept = sorted({strategy for each in work for name in each if (strategy := swept_strategy(name)) is not None})
    throughput: dict[str, list[float | None]] = {
        strategy: [*(each.get(line, {}).get("entries", 0) * 60 / past.step_s for each in work), None]
        for strategy, line in ((each, line_of(SWEEP, each)) for each in swept)
    }
    backlog: dict[str, list[float | None]] = {
        name: [
            *((each.backlog or {}).get(name) if each else None for each in samples),
            strategy.backlog.entries_estimated,
        ]
        for name, strategy in strategies.items()
    }
    lag: dict[str, list[float | None]] = {
        name: [*(each.lag_s.get(name, 0) / 3_600 if each else None for each in samples), strategy.lag_s / 3_600]
        for name, strategy in strategies.items()
        if strategy.lag_s is not None
    }
    waiting: dict[str, list[float | None]] = {
        "parked": [*(each.parked if each else None for each in samples), None],
        "quarantined": [*(each.quarantined if each else None for each in samples), None],
    }
    return Charts([*(at // 1000 for at in times), now_ms // 1000], throughput, backlog, lag, waiting)
