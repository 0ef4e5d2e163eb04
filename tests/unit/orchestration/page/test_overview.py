"""What the page shows, how it costs no more for a large store, and that it escapes what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.journal import Journal
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.opening import open_store
from sweep_tasks.orchestration.page.overview import charts, level, overview
from sweep_tasks.orchestration.page.rendering import grouped, rendered, span
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService
from tests.support.clock import ManualClock
from tests.support.protections import protect_often

TABLE = TableRef.parse("app.items")
SETTINGS = Settings()
AROUND = {"acts": True, "message": None, "airflow": "", "dag": "targeted_sweep"}
SHARDS, RECORDS = 256, 512


def page(store: Store, clock: Any = None, **around: Any) -> str:
    request = Request({"type": "http", "root_path": "/sweepflow", "path": "/sweepflow/", "headers": []})
    found = overview(store, SETTINGS, clock or SystemClock())
    body = rendered(request, "page.html", found | AROUND | around).body
    return bytes(body).decode()


def new_store(folder: Path, name: str) -> Store:
    url = f"sqlite:///{folder}/{name}.db"
    initialise_store(url, SETTINGS)
    store = open_store(url, SETTINGS)
    store.create_table(TABLE, TableMetadata())
    Puncher(store).punch(TimestampService(store), SystemClock())
    return store


def fill(store: Store) -> None:
    """As many shards and records as there may be, all of them in the last sample."""
    Progress(store).raise_shards(SHARDS)
    protect_often(store, TABLE, RECORDS)
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
        made: list[str] = []
        overview(FaultyStore(store, before=lambda call: made.append(call.name)), SETTINGS, SystemClock())
        return len(made)

    empty, full = map(calls, stores)
    assert full == empty < 30


def test_a_large_store_is_shown_with_every_shard_and_the_oldest_records(stores: tuple[Store, Store]) -> None:
    text = page(stores[1])
    assert text.count('<li class="heat ') == 2 * SHARDS
    assert text.count("data-record=") == 50
    assert "The 50 oldest of 512" in text


def test_what_people_wrote_is_shown_as_they_wrote_it(store: Store, clock: ManualClock) -> None:
    store.create_table(TABLE, TableMetadata())
    nasty = "<script>alert(1)</script> & \"more'"
    Pauses(store, clock).pause(TABLE, nasty, nasty)
    with Journal(store, clock).noted(nasty, "pause", "app.items", nasty):
        pass
    Ledger(store).change(nasty, lambda _: Record(nasty, 5, Mode.AT, (Target(TABLE),), meta={nasty: nasty}))
    text = page(store, clock)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;more&#39;" in text


def test_who_may_only_look_is_offered_nothing_to_press(store: Store, clock: ManualClock) -> None:
    assert "Sweep now" in page(store, clock)
    text = page(store, clock, acts=False)
    assert "Sweep now" not in text
    assert "acting takes the right to edit the DAG targeted_sweep" in text


def test_a_shard_is_as_dark_as_it_is_late() -> None:
    assert [level(share) for share in (0, 0.25, 0.3, 0.6, 1, 1.01, 2, 2.1)] == ["0", "0", "1", "2", "3", "4", "4", "5"]


def test_lag_grows_while_nothing_runs(store: Store, clock: ManualClock) -> None:
    Puncher(store).punch(TimestampService(store), clock)
    TimestampService(store).fresh()
    levels = []
    for hours in (0, 3, 3, 6):
        clock.advance(hours * 3_600)
        strip = overview(store, SETTINGS, clock)["strips"][0]
        levels.append((strip.strategy, strip.cells[0].level, strip.cells[0].label))
    assert [each[1] for each in levels] == ["0", "2", "4", "5"]
    assert levels[-1][2] == "conservative shard 0: at least 12 h behind, 4 h are allowed"


def test_steps_without_work_are_nought_and_those_without_a_count_are_gaps() -> None:
    step = 900_000
    points = [
        {"at_ms": step, "work": {"sweep:thorough": {"entries": 30}}, "sample": None},
        {"at_ms": 3 * step, "work": {}, "sample": {"lag_s": {"thorough": 7_200}, "parked": 2, "quarantined": 0}},
    ]
    drawn = charts({"step_s": 900, "points": points, "runs": []}, 4 * step)
    assert drawn == {
        "times": [900, 1_800, 2_700],
        "throughput": {"thorough": [2.0, 0.0, 0.0]},
        "lag": {"thorough": [None, None, 2.0]},
        "waiting": {"parked": [None, None, 2], "quarantined": [None, None, 0]},
    }
    assert charts({"step_s": 900, "points": [], "runs": []}, step) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0, "0 s"), (59, "59 s"), (3_660, "1 h 1 min"), (3_601, "1 h 1 s"), (90_000, "1 d 1 h")],
)
def test_a_span_of_time_is_told_in_its_two_greatest_units(seconds: int | None, words: str) -> None:
    assert span(seconds) == words


def test_large_numbers_are_grouped() -> None:
    assert grouped(1_234_567) == "1\u202f234\u202f567"
