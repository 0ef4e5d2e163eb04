"""What the page shows, that a large store costs no more calls, and that all values are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.status import Backlog, StrategyStatus
from sweep_tasks.journal.journal import Journal
from sweep_tasks.metrics.samples import SWEEP_COUNTS, History, HistoryPoint, SamplePoint, take_sample, tally_sweep
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.texts import MOST_SHOWN, duration
from sweep_tasks.web.overview import charts, heat_cell, jobs_done, level, overview
from sweep_tasks.web.rendering import grouped, rendered
from tests.support.clock import ManualClock
from tests.support.html import Element
from tests.support.pauses import put_pause
from tests.support.protections import protect_often
from tests.unit.sweep.world import World

TABLE = TableRef.parse("app.items")
SETTINGS = Settings()
AROUND = {"acts": True, "releases": True, "stopped": None, "message": None, "airflow": "", "dag": "targeted_sweep"}
SHARDS, RECORDS = 256, 512


def page(store: Store, clock: Any = None, **around: Any) -> str:
    request = Request({"type": "http", "root_path": "/sweepflow", "path": "/sweepflow/", "headers": []})
    found = overview(store, SETTINGS, clock or SystemClock())
    body = rendered(request, "page.html", found._asdict() | AROUND | around).body
    return bytes(body).decode()


def new_store(folder: Path, name: str) -> Store:
    url = f"sqlite:///{folder}/{name}.db"
    initialise_store(url, SETTINGS)
    store = open_store(url, SETTINGS)
    store.create_table(TABLE, TableMetadata())
    ClockHistory(store).record_now(TimestampService(store), SystemClock(), 900)
    return store


def fill(store: Store) -> None:
    """As many shards and records as there may be, all of them in the last sample, and what sweeps have done."""
    Progress(store).raise_shards(SHARDS)
    protect_often(store, TABLE, RECORDS)
    counts: dict[str, Any] = dict.fromkeys(SWEEP_COUNTS, 7)
    for strategy in QUEUES:
        for shard in range(0, SHARDS, 16):
            by = TaskAttempt("targeted_sweep", f"r{shard}", f"{strategy}.shard_{shard}")
            summary = Summary(strategy, shard, 10, progress=9, progress_before=1, seconds={"all": 1.0}, **counts)
            tally_sweep(store, SystemClock(), summary, by)
    take_sample(store, SystemClock())


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    folder = tmp_path_factory.mktemp("stores")
    with new_store(folder, "empty") as empty, new_store(folder, "full") as full:
        fill(full)
        take_sample(empty, SystemClock())
        yield empty, full


def test_a_large_store_takes_as_many_calls_as_an_empty_one(stores: tuple[Store, Store]) -> None:
    def calls(store: Store) -> int:
        created: list[str] = []
        overview(FaultyStore(store, before=lambda call: created.append(call.name)), SETTINGS, SystemClock())
        return len(created)

    empty, full = map(calls, stores)
    assert full == empty < 30


def test_a_large_store_is_shown_with_every_shard_and_the_oldest_records(stores: tuple[Store, Store]) -> None:
    text = page(stores[1])
    assert text.count('<li class="heat ') == 2 * SHARDS
    assert text.count("data-record=") == 50
    assert re.findall(r"\d+", Element.of(text).one("id", "more-records").text) == ["50", "512"]


def test_text_of_users_is_escaped_and_shown_unchanged(store: Store, clock: ManualClock) -> None:
    store.create_table(TABLE, TableMetadata())
    nasty = "<script>alert(1)</script> & \"more'"
    Pauses(store, clock).pause(TABLE, nasty, nasty)
    with Journal(store, clock).record_as(nasty, "pause", "app.items", nasty):
        pass
    Ledger(store).change(nasty, lambda _: Record(nasty, 5, Mode.AT, (Target(TABLE),), meta={nasty: nasty}))
    text = page(store, clock)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;more&#39;" in text


def test_whatever_is_stored_no_control_character_is_shown(store: Store, clock: ManualClock) -> None:
    """What came before texts were checked, or by another program."""
    store.create_table(TABLE, TableMetadata())
    nasty = "a\x1b[2J\u202eb\n\x9bc" + "x" * 10_000
    put_pause(store, TABLE, nasty, nasty)
    with Journal(store, clock).record_as(nasty, nasty, nasty, "why not"):
        pass
    Ledger(store).change(nasty, lambda _: Record(nasty, 5, Mode.AT, (Target(TABLE),), meta={nasty: nasty}))
    text = page(store, clock)
    assert [each for each in text if not each.isprintable() and each not in "\n\N{NARROW NO-BREAK SPACE}"] == []
    shown = Element.of(text).one("data-paused")["data-by"]
    assert shown.startswith("a\\x1b[2J\\u202eb \\x9bcxxx")
    assert "x" * MOST_SHOWN not in text


def test_a_user_who_may_only_view_sees_no_buttons(store: Store, clock: ManualClock) -> None:
    shown = Element.of(page(store, clock))
    assert shown.one("id", "press-sweep")["href"] == "/sweepflow/sweeps/new"
    assert shown.all("id", "read-only") == []
    shown = Element.of(page(store, clock, acts=False, releases=False))
    assert shown.all("hx-target", "#dialog") == []
    assert "targeted_sweep" in shown.one("id", "read-only").text


def test_the_shade_of_a_shard_follows_its_lag() -> None:
    assert [level(share) for share in (0, 0.25, 0.3, 0.6, 1, 1.01, 2, 2.1)] == ["0", "0", "1", "2", "3", "4", "4", "5"]


def test_lag_grows_while_nothing_runs(store: Store, clock: ManualClock) -> None:
    ClockHistory(store).record_now(TimestampService(store), clock, 900)
    TimestampService(store).fresh()
    levels = []
    for hours in (0, 3, 3, 6):
        clock.advance(hours * 3_600)
        found = overview(store, SETTINGS, clock)
        cell = found.strips[0].cells[0]
        levels.append(cell.level)
    assert levels == ["0", "2", "4", "5"]
    shard = found.status.shards[0]
    assert (shard.strategy, shard.shard, shard.lag_s, shard.lag_at_least) == (
        "conservative",
        0,
        43_200,
        True,
    )
    assert cell == heat_cell(shard, 14_400)
    for value in ("conservative", "0", duration(43_200), duration(14_400)):
        assert value in cell.label
    assert cell.label != heat_cell(replace(shard, lag_at_least=False), 14_400).label


SAMPLE = SamplePoint(at_ms=0, lag_s={"thorough": 7_200}, parked=2, quarantined=0, backlog={"thorough": 50})


def test_steps_without_work_are_zero_and_steps_without_a_sample_are_gaps() -> None:
    step = 900_000
    points = [
        HistoryPoint(at_ms=step, work={"sweep:thorough": {"entries": 30}}, sample=None),
        HistoryPoint(at_ms=3 * step, work={}, sample=SAMPLE),
    ]
    backlog = Backlog(timestamps=0, entries_estimated=70)
    strategies = {"thorough": StrategyStatus(shards=1, behind=0, lag_s=9_000, backlog=backlog)}
    past = History(step_s=900, points=points, runs=[])
    drawn = charts(past, 4 * step, strategies)
    assert drawn
    assert drawn._asdict() == {
        "times": [900, 1_800, 2_700, 3_600],
        "throughput": {"thorough": [2.0, 0.0, 0.0, None]},
        "backlog": {"thorough": [None, None, 50, 70]},
        "lag": {"thorough": [None, None, 2.0, 2.5]},
        "waiting": {"parked": [None, None, 2, None], "quarantined": [None, None, 0, None]},
    }
    assert charts(History(step_s=900, points=[], runs=[]), step, strategies) is None


def test_a_year_without_a_run_is_not_drawn_step_by_step() -> None:
    year = 365 * 86_400_000
    points = [HistoryPoint(at_ms=at, work={}, sample=None) for at in (0, year - 1_800_000)]
    drawn = charts(History(step_s=900, points=points, runs=[]), year, {})
    assert drawn is not None
    assert len(drawn.times) == 3
    assert charts(History(step_s=900, points=points[:1], runs=[]), year, {}) is None


def test_all_work_of_a_run_is_shown() -> None:
    (scanned,) = jobs_done({"legacy": {"runs": 1, "versions": 9, "deleted": 4, "seconds": 0.5}})
    assert (scanned.job, scanned.figures) == ("legacy", {"versions": 9, "deleted": 4})
    assert re.findall(r"\d+", scanned.sentence) == ["9", "4"]
    (compacted,) = jobs_done({"compaction": {"runs": 1, "dropped": 700}})
    assert (compacted.job, compacted.figures) == ("compaction", {"dropped": 700})
    (other,) = jobs_done({"other_job": {"some.figure_of_it": 5}})
    assert all(word in other.sentence for word in ("other job", "5 some figure of it"))
    dry, nothing = jobs_done({"dry_run": {"runs": 1, "entries": 3}, "sweep": {"runs": 1}})
    assert [(each.job, each.figures) for each in (dry, nothing)] == [("dry_run", {"entries": 3}), ("sweep", {})]
    (swept,) = jobs_done({"sweep": {"entries": 3}})
    assert swept.sentence != dry.sentence
    assert nothing.sentence


def test_a_dry_run_is_shown_with_what_it_would_do_and_adds_to_no_sum(store: Store, clock: ManualClock) -> None:
    world = World(store, clock)
    for start in (10, 20):
        world.write(start, start + 1)
    summary = replace(world.sweep(100), dry_run=True)
    tally_sweep(store, clock, summary, TaskAttempt("targeted_sweep", "manual__x", "conservative.shard_0"))
    text = page(store, clock)
    shown = Element.of(text).one("data-job")
    assert (shown["data-job"], re.findall(r"\d+", shown.text)[0]) == ("dry_run", "2")
    assert "/dags/targeted_sweep/runs/manual__x/tasks/conservative.shard_0" in text
    assert overview(store, SETTINGS, clock).status.shards[0].last_run is None


def test_a_problem_is_shown_with_its_button(store: Store, clock: ManualClock) -> None:
    store.create_table(TABLE, TableMetadata())
    ClockHistory(store).record_now(TimestampService(store), clock, 900)
    TimestampService(store).fresh()
    Progress(store).raise_shards(3)
    clock.advance(12 * 3_600)
    text = page(store, clock)
    assert "sweeps/new?strategy=conservative&amp;shards=0,1,2" in text
    found = [each.problem for each in overview(store, SETTINGS, clock).problems]
    (problem,) = [each for each in found if each.about == "conservative lag"]
    advised = Element.of(text).one("data-problem", "conservative lag").one("data-do").text
    assert "targeted_sweep" in advised
    assert advised == problem.press != problem.do
    assert "sweepflow sweep" not in text


def test_labels_of_buttons_name_their_object(store: Store, clock: ManualClock) -> None:
    """After a refresh, the focus must be on the same button."""
    store.create_table(TABLE, TableMetadata())
    ClockHistory(store).record_now(TimestampService(store), clock, 900)
    for name in ("first", "second"):
        Ledger(store).change(name, lambda _, name=name: Record(name, 5, Mode.AT, (Target(TABLE),)))  # type: ignore[misc]
    text = page(store, clock)
    assert 'id="press-release-first"' in text
    assert 'id="press-release-second"' in text
    assert 'id="press-sweep-conservative-0"' in text


def test_large_numbers_are_grouped() -> None:
    assert grouped(1_234_567) == "1\u202f234\u202f567"
