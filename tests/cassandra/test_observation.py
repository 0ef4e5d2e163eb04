"""The state of a store, its figures and its reasons on a real Cassandra."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.diagnosis.explain import explain_cell
from sweep_tasks.diagnosis.obstacles import Reason
from sweep_tasks.diagnosis.on_disk import remnant_reader
from sweep_tasks.diagnosis.status import status
from sweep_tasks.metrics.samples import SWEEP_COUNTS, history, sweep_work, take_sample
from sweep_tasks.metrics.tally import RUNS_KEPT, Tally, TaskAttempt
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place, altered, physical_name
from tests.support.waiting import eventually

TABLE = TableRef.parse("app.items")


def test_tasks_that_end_at_once_lose_no_figure_and_count_none_twice(place: Place, cassandra: CassandraStore) -> None:
    clock = SystemClock()
    counts: dict[str, Any] = dict.fromkeys(SWEEP_COUNTS, 1)
    summary = Summary(SweepStrategy.THOROUGH, 0, 10, progress=9, seconds={"queue": 1.0}, **counts)

    def enter(number: int) -> None:
        by = TaskAttempt("targeted_sweep", f"r{number // 2}", f"shard_{number % 4}")
        done = sweep_work(replace(summary, shard=number % 4), by, clock.now_ms())
        for _ in range(2):
            Tally((cassandra, second)[number % 2], clock).record(done)

    with place.opened() as second, ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(32)))
    recorded = Tally(cassandra).read()
    assert {each.labels["shard"]: each.sums["entries"] for each in recorded.series} == dict.fromkeys("0123", 8)
    assert sum(run.tasks for run in recorded.runs.values()) == 32
    assert len(recorded.runs) == 16 <= RUNS_KEPT


def test_swept_versions_are_reported_and_remaining_ones_have_a_reason(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    clock = SystemClock()
    with TransactionManager(cassandra, place.settings, queue=QueueWriter(cassandra), renew_leases=False) as manager:
        for value in (b"one", b"two"):
            with manager.transaction() as tx:
                tx.put(TABLE, b"r", b"c", value)
    cell = next(iter(cassandra.scan(TABLE, 2**62).items))[0]
    before = explain_cell(cassandra, place.settings, clock, TABLE, cell)
    assert [each.why.reason for each in before.versions] == ["queued", "newest"]
    for summary in Sweeper(cassandra, place.settings, clock).sweep():
        by = TaskAttempt("command", "r", f"{summary.strategy}.shard_{summary.shard}")
        Tally(cassandra).record(sweep_work(summary, by, clock.now_ms()))
    take_sample(cassandra, clock)
    after = explain_cell(cassandra, place.settings, clock, TABLE, cell)
    assert [each.why.reason for each in after.versions] == ["newest"]
    document = status(cassandra, place.settings, clock).document()
    assert document["health"] == {"verdict": "ok", "problems": []}
    swept = {each["strategy"]: each["last_run"]["entries"] for each in document["shards"]}
    assert swept == {"conservative": 0, "thorough": 2}
    assert [run.jobs["sweep"]["entries"] for run in history(cassandra).runs] == [2]


def test_swept_versions_that_are_still_in_files_are_reported_with_the_file(
    place: Place, cassandra: CassandraStore, tmp_path: Path
) -> None:
    cassandra.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    physical = physical_name(cassandra, TABLE)
    settings = load_settings(store=place.url, cache_folder=tmp_path, compaction_nodes=place.cluster.compaction_nodes())
    cell, clock = Cell(b"r", b"c"), SystemClock()
    with TransactionManager(cassandra, place.settings, queue=QueueWriter(cassandra), renew_leases=False) as manager:
        for value in (b"one", b"two"):
            with manager.transaction() as tx:
                tx.put(TABLE, *cell, value)
            place.cluster.nodetool(1, "flush", place.keyspace, physical)
    old, _ = sorted(cassandra.timestamps(TABLE, [cell])[cell])
    for _ in Sweeper(cassandra, place.settings, clock).sweep():
        pass
    place.cluster.nodetool(1, "flush", place.keyspace, physical)
    read = remnant_reader(cassandra, settings, clock)
    assert read
    (remain,) = read(TABLE, cell)
    assert (remain.ts, remain.reason) == (old, Reason.WAITING_GC_GRACE)
    assert (remain.until_ms or 0) > clock.now_ms()
    assert str(remain.by).endswith("-Data.db")
    with altered(cassandra, TABLE, "gc_grace_seconds = 0"):
        # Grace is counted in whole seconds.
        (remain,) = eventually(
            lambda: [each for each in read(TABLE, cell) if each.reason is Reason.OVERLAPPING_SSTABLE]
        )
        assert remain.ts == old
        place.compact(cassandra, TABLE)
        assert read(TABLE, cell) == []
