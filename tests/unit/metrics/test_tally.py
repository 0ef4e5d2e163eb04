"""The work of runs is counted once, also if an answer is lost, and the size of the tally is bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from sweep_tasks.metrics.samples import history
from sweep_tasks.metrics.tally import (
    KEPT_MS,
    RUNS_KEPT,
    STEP_MS,
    TASKS_NAMED,
    AttemptFigures,
    Series,
    SweepDetails,
    Tally,
    TaskAttempt,
)
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Change
from sweep_tasks.store.faults import FaultyStore, StoreCall, lose_answer, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import OBSERVATIONS

NOW = 1_000 * STEP_MS


def done(
    shard: int = 0, run: str = "r1", number: int = 1, entries: int = 5, ended_ms: int = NOW, strategy: str = "thorough"
) -> AttemptFigures:
    labels = {"strategy": strategy, "shard": str(shard)}
    by = TaskAttempt("targeted_sweep", run, f"shard_{shard}", number)
    return AttemptFigures("sweep", labels, by, {"entries": entries, "parked": 0}, ended_ms, 2.0, SweepDetails())


def sums(series: Iterable[Series]) -> dict[str, float]:
    return {each.labels["shard"]: each.sums.get("entries", 0) for each in series}


def test_attempts_add_up_in_sums_time_line_and_runs(store: Store) -> None:
    tally = Tally(store)
    for each in (done(), done(shard=1), done(run="r2", ended_ms=NOW + STEP_MS), done(shard=7, strategy="conservative")):
        assert tally.record(each)
    recorded = tally.read()
    assert sums(recorded.series) == {"0": 10, "1": 5, "7": 5}
    assert recorded.timeline == {
        NOW: {"sweep:thorough": {"entries": 10}, "sweep:conservative": {"entries": 5}},
        NOW + STEP_MS: {"sweep:thorough": {"entries": 5}},
    }
    first = recorded.runs["targeted_sweep", "r1"].model_dump()
    assert sorted(first.pop("named")) == ["shard_0", "shard_1", "shard_7"]
    assert first == {"tasks": 3, "began_ms": NOW - 2_000, "ended_ms": NOW, "jobs": {"sweep": {"entries": 15}}}


def test_every_run_names_its_first_few_tasks_and_not_only_the_newest(store: Store) -> None:
    tally = Tally(store)
    for run in ("r1", "r2"):
        for shard in range(8):
            tally.record(done(shard=shard, run=run))
    listed = {run.run: run.named for run in history(store).runs}
    for run in ("r1", "r2"):
        assert len(listed[run]) == TASKS_NAMED
        assert set(listed[run]) <= {f"shard_{shard}" for shard in range(8)}


def test_a_run_recorded_by_an_older_version_names_no_task_and_is_shown(memory: MemoryStore) -> None:
    tally = Tally(memory)
    tally.record(done())
    for cell, value in memory.scan_registers(OBSERVATIONS, 1_000).items:
        if cell.column.startswith(b"r:"):
            plain = json.loads(value)
            del plain["named"]
            memory.compare_and_set(OBSERVATIONS, cell.row, {cell.column: Change(value, json.dumps(plain).encode())})
    assert [run.named for run in history(memory).runs] == [[]]
    tally.record(done(number=2))
    assert [run.named for run in history(memory).runs] == [["shard_0"]]


def test_an_attempt_recorded_twice_counts_once_and_the_next_attempt_counts_too(store: Store) -> None:
    tally = Tally(store)
    assert [tally.record(done()), tally.record(done()), tally.record(done(number=2))] == [True, False, True]
    recorded = tally.read()
    assert sums(recorded.series) == {"0": 10}
    assert recorded.runs["targeted_sweep", "r1"].tasks == 2


def test_a_lost_answer_is_looked_up_and_counts_once(memory: MemoryStore) -> None:
    unsure = FaultyStore(memory, after=on("compare_and_set", 1, lose_answer))
    Tally(unsure).record(done())
    recorded = Tally(memory).read()
    assert sums(recorded.series) == {"0": 5}
    assert recorded.timeline == {NOW: {"sweep:thorough": {"entries": 5}}}


def test_a_concurrent_writer_is_added_to(memory: MemoryStore) -> None:
    def faster(_: StoreCall) -> None:
        Tally(memory).record(done(run="faster"))

    assert Tally(FaultyStore(memory, before=on("compare_and_set", 1, faster))).record(done())
    assert sums(Tally(memory).read().series) == {"0": 10}


def test_what_is_kept_is_bounded(memory: MemoryStore) -> None:
    tally = Tally(memory)
    for number in range(100):
        tally.record(done(run=f"r{number}", ended_ms=NOW + number * KEPT_MS // 40))
    recorded = tally.read()
    assert sums(recorded.series) == {"0": 500}
    assert len(recorded.runs) == RUNS_KEPT
    assert ("targeted_sweep", "r99") in recorded.runs
    last = max(recorded.timeline)
    assert len(recorded.timeline) == 41
    assert min(recorded.timeline) >= last - KEPT_MS
    largest = max(len(value) for _, value in memory.scan_registers(OBSERVATIONS, 1_000).items)
    assert largest < 2_000


@pytest.mark.parametrize(
    "other",
    [
        TaskAttempt("a", "b", "c", 2),
        TaskAttempt("a", "b", "c", 1, 0),
        TaskAttempt("a", "b", "cc"),
        TaskAttempt("a", "bb", "c"),
        TaskAttempt("aa", "b", "c"),
    ],
)
def test_any_difference_makes_another_attempt(other: TaskAttempt) -> None:
    assert other.key != TaskAttempt("a", "b", "c", 1).key
