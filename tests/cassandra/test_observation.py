"""The state of a store, its figures and its reasons on a real Cassandra."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.observation.entering import sweep_done
from sweep_tasks.observation.explain import explain_cell
from sweep_tasks.observation.history import history
from sweep_tasks.observation.in_files import reader_of
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.observation.status import status
from sweep_tasks.observation.tally import RUNS_KEPT, Tally, Try
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place, physical_name, session_of
from tests.support.waiting import eventually

TABLE = TableRef.parse("app.items")


def test_tasks_that_end_at_once_lose_no_figure_and_count_none_twice(place: Place, cassandra: CassandraStore) -> None:
    clock = SystemClock()
    summary = {"dry_run": False, "strategy": "thorough", "stopped": None, "seconds": {"queue": 1.0}, "progress": 9,
               "progress_before": -1, **dict.fromkeys(("entries", "range_deletes", "sentinels", "aborted_deletes",
               "parked", "unparked", "quarantined", "cleaned_partitions"), 1)}  # fmt: skip

    def enter(number: int) -> None:
        by = Try("targeted_sweep", f"r{number // 2}", f"shard_{number % 4}")
        done = sweep_done(summary | {"shard": number % 4}, by, clock.now_ms())
        for _ in range(2):
            Tally((cassandra, second)[number % 2], clock).enter(done)

    with place.opened() as second, ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(32)))
    entered = Tally(cassandra).read()
    assert {each.labels["shard"]: each.sums["entries"] for each in entered.series} == dict.fromkeys("0123", 8)
    assert sum(run["tasks"] for run in entered.runs.values()) == 32
    assert len(entered.runs) == 16 <= RUNS_KEPT


def test_what_was_swept_is_told_and_what_is_left_has_its_reason(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    clock = SystemClock()
    with TransactionManager(cassandra, place.settings, queue=QueueWriter(cassandra), renew_leases=False) as manager:
        for value in (b"one", b"two"):
            with manager.transaction() as tx:
                tx.put(TABLE, b"r", b"c", value)
    cell = next(iter(cassandra.scan(TABLE, 2**62).items))[0]
    before = explain_cell(cassandra, place.settings, clock, TABLE, cell)
    assert [each["reason"] for each in before["versions"]] == ["queued", "newest"]
    for summary in Sweeper(cassandra, place.settings, clock).sweep():
        by = Try("command", "r", f"{summary.strategy}.shard_{summary.shard}")
        Tally(cassandra).enter(sweep_done(summary.document(), by, clock.now_ms()))
    take_sample(cassandra, clock)
    after = explain_cell(cassandra, place.settings, clock, TABLE, cell)
    assert [each["reason"] for each in after["versions"]] == ["newest"]
    document = status(cassandra, place.settings, clock)
    assert document["health"] == {"verdict": "ok", "problems": []}
    swept = {each["strategy"]: each["last_run"]["entries"] for each in document["shards"]}
    assert swept == {"conservative": 0, "thorough": 2}
    assert [run["jobs"]["sweep"]["entries"] for run in history(cassandra)["runs"]] == [2]


def test_what_was_swept_and_is_still_in_the_files_is_told_with_its_file(
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
    read = reader_of(cassandra, settings, clock)
    assert read
    (remain,) = read(TABLE, cell)
    assert (remain.ts, remain.reason) == (old, Reason.WAITING_GC_GRACE)
    assert (remain.until_ms or 0) > clock.now_ms()
    assert str(remain.by).endswith("-Data.db")
    session_of(cassandra).execute(f'ALTER TABLE "{place.keyspace}"."{physical}" WITH gc_grace_seconds = 0')
    # Grace is counted in whole seconds.
    (remain,) = eventually(lambda: [each for each in read(TABLE, cell) if each.reason is Reason.OVERLAPPING_SSTABLE])
    assert remain.ts == old
    place.compact(cassandra, TABLE)
    assert read(TABLE, cell) == []
