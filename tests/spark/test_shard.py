"""A shard swept on Spark is left as the in-process sweep leaves it, for any history."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.shard import spark_sweep
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.encoding import var_signed_long
from sweep_tasks.model import SENTINEL_TS, Cell, TableMetadata, TableRef
from sweep_tasks.protection.records import Mode
from sweep_tasks.queue.encoding import fine, shared_row
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.schema import QUARANTINE, QUEUE_CELLS, TRANSACTIONS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import Budget, SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.activity import WriteCounts
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, World, counts, state_of

CHECKED = TableRef.parse("app.looked")
END = 160_000
"""Three fine partitions, and the beginning of a fourth."""


class Twins:
    """Two stores with the same history: one is swept in process, the other on Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.clock = ManualClock()
        self.folder = folder
        self.settings = {name: Settings(store=f"sqlite:///{folder}/{name}.db") for name in ("local", "spark")}
        initialise_store(self.settings["local"].store, self.settings["local"])
        self.world = World(self.opened("local"), self.clock)
        self.world.store.create_table(CHECKED, TableMetadata(look_before_delete=True))
        self.quarantined_ahead = 0

    def opened(self, name: str) -> Store:
        return open_store(self.settings[name].store, self.settings[name])

    def sweep(self, sweep_ts: int, strategy: Any = CONSERVATIVE, **options: Any) -> tuple[Summary, Summary]:
        """Sweep both, compare what is left, and return the summaries.

        Spark decides about more entries at once, so it may be ahead in three ways, none of which removes more: it has
        aborted unfinished transactions and quarantined unreadable entries behind the point where the other stopped, and
        where a table is read before deletes it has met a version of an aborted transaction that the other had already
        deleted with an earlier batch, and has added a sentinel for it.
        """
        self._copy()
        before = self.world.store.scan_versions(CHECKED, limit=10_000).items
        horizon = Horizon(sweep_ts, self.clock.now_ms())
        chosen = SweepOptions(**options)
        in_process = ShardSweep(self.world.store, strategy, 0, horizon, self.clock, chosen)
        here = in_process.run()
        with self.opened("spark") as store:
            on_spark = spark_sweep(
                lambda: self.spark, store, self.settings["spark"], strategy, 0, horizon, self.clock, chosen
            )
            there = on_spark.run()
            self.written = in_process.written, on_spark.written
            ours, theirs = state_of(self.world.store), state_of(store)
        decided, also_decided = (dict(state.pop(str(TRANSACTIONS))) for state in (ours, theirs))
        ahead = {cell: commit for cell, commit in also_decided.items() if cell not in decided}
        assert set(ahead.values()) <= {var_signed_long(ABORTED)}, "who reads further ahead aborts more, and no more"
        assert decided.items() <= also_decided.items()
        assert not ahead or here.stopped
        quarantined, also_quarantined = (set(state.pop(str(QUARANTINE))) for state in (ours, theirs))
        assert quarantined <= also_quarantined
        self.quarantined_ahead = len(also_quarantined - quarantined)
        assert not self.quarantined_ahead or here.stopped
        read_first, also_read = (state.pop(str(CHECKED)) for state in (ours, theirs))
        assert set(read_first) <= set(also_read)
        outcomes = CommitTable(self.world.store).outcomes([each.ts for each in before if each.ts >= 0])
        aborted = {each.cell for each in before if outcomes.get(each.ts) == ABORTED}
        added = set(also_read) - set(read_first)
        assert all(each.ts == SENTINEL_TS and each.cell in aborted for each in added)
        for name, state in ours.items():
            assert theirs[name] == state, f"{name} differs"
        return here, there

    def _copy(self) -> None:
        self.world.store.close()
        for suffix in ("", "-wal", "-shm"):
            path = self.folder / f"local.db{suffix}"
            (self.folder / f"spark.db{suffix}").unlink(missing_ok=True)
            if path.exists():
                shutil.copy(path, self.folder / f"spark.db{suffix}")
        self.world.store = self.opened("local")


@pytest.fixture
def twins(spark: SparkSession, tmp_path: Path) -> Twins:
    return Twins(spark, tmp_path)


def a_random_history(world: World, rng: random.Random) -> None:
    """Overwrites, deletes, aborted and unfinished writes, transactions in dedicated rows, unreadable entries."""
    cells = [Cell(b"row-%d" % (n // 3), b"col-%d" % (n % 3)) for n in range(30)]
    many = [Cell(b"row-%d" % (n % 7), b"many-%d" % n) for n in range(70)]
    for number, start in enumerate(sorted(rng.sample(range(1, END), 60))):
        table = rng.choice((TableRef.parse("app.items"), THOROUGH_TABLE, CHECKED))
        commit = rng.choice((start + 1, start + 1, start + 1, start + 40_000, -1, None))
        chosen = many if number % 20 == 7 else rng.sample(cells, rng.randint(1, 6))
        world.write(start, commit, chosen, table=table, delete=rng.random() < 0.2)
    world.enter(rng.randrange(END), b"\x07 no such form")
    garbled = Cell(shared_row(fine(70_000), CONSERVATIVE, 0), b"\xff\xff\xff")
    world.store.put(70_000, {QUEUE_CELLS: {garbled: b"?"}})


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 40))])
def test_both_engines_leave_the_same_state_for_random_histories(twins: Twins, seed: int) -> None:
    rng = random.Random(seed)
    world = twins.world
    a_random_history(world, rng)
    world.protect("at", rng.randrange(END), table=rng.choice((THOROUGH_TABLE, CHECKED)))
    world.protect("after", rng.randrange(END), Mode.AFTER)
    for strategy in (CONSERVATIVE, THOROUGH):
        here, there = twins.sweep(rng.randrange(40_000, END), strategy, batch=rng.choice((10, 60, 100_000)))
        assert there.progress == here.progress
        assert there.entries == here.entries
        assert there.blocked + twins.quarantined_ahead == here.blocked
    world.write(rng.randrange(1, 30_000), None)  # comes late
    world.release("at")
    twins.clock.advance(4_000)
    for strategy in (CONSERVATIVE, THOROUGH):
        twins.sweep(END + 60_000, strategy)
    world.release("after")
    twins.clock.advance(4_000)
    for strategy in (CONSERVATIVE, THOROUGH):
        here, there = twins.sweep(END + 60_001, strategy)
        assert counts(there) | {"batches": 0} == counts(here) | {"batches": 0}
    assert not world.parked(CONSERVATIVE)
    assert not world.parked(THOROUGH)


def test_two_workers_share_a_large_shard(twins: Twins) -> None:
    for start in range(1, 101):
        twins.world.write(start, start + 1000, [Cell(b"row-%03d" % (n + start), b"c") for n in range(40)])
    here, there = twins.sweep(5_000)
    assert there.workers >= 2
    assert here.workers == 0
    assert (there.entries, there.range_deletes) == (4_000, 139)
    assert twins.written == ({TABLE: WriteCounts(139)}, {TABLE: WriteCounts(139)}), (
        "each cell once, however many entries it has"
    )


def test_a_dry_run_counts_the_same_and_changes_nothing(twins: Twins) -> None:
    a_random_history(twins.world, random.Random(7))
    before = state_of(twins.world.store)
    here, there = twins.sweep(END, dry_run=True)
    assert counts(there) | {"batches": 0} == counts(here) | {"batches": 0}
    assert state_of(twins.world.store) == before


def test_a_budget_of_entries_ends_both_engines_at_the_same_position(twins: Twins) -> None:
    for start in range(1, 40):
        twins.world.write(start, start + 1)
    here, there = twins.sweep(100, budget=Budget(entries=10))
    assert (there.stopped, there.progress) == (here.stopped, here.progress) == ("entries", 10)


def test_a_budget_smaller_than_a_transaction_still_gets_through(twins: Twins) -> None:
    twins.world.write(5, 6, [Cell(b"r", b"%d" % n) for n in range(120)])
    for _ in range(2):
        twins.sweep(100, batch=10, budget=Budget(entries=20))
    assert twins.world.progress() == 99


def test_the_cap_on_tombstones_ends_both_engines_before_the_same_start(twins: Twins) -> None:
    for start in range(1, 30):
        twins.world.write(start, start + 1, [Cell(b"hot", b"%d" % start)])
    here, there = twins.sweep(100, budget=Budget(tombstones_per_partition=12))
    assert (there.stopped, there.progress) == (here.stopped, here.progress) == ("tombstones", 12)


def test_a_blocked_start_stops_both_engines_and_later_entries_are_counted(twins: Twins) -> None:
    twins.world.write(10, 11)
    twins.world.write(20, 150_500)
    twins.world.write(30, 31, [Cell(b"r", b"%d" % n) for n in range(60)])
    for start in (60_000, 110_000, 140_000):
        twins.world.write(start, start + 1, [Cell(b"r", b"%d" % n) for n in range(55)])
    here, there = twins.sweep(150_000, batch=50)
    assert (there.blocked, there.progress) == (here.blocked, here.progress) == (1 + 60 + 165, 19)


def test_a_large_hold_is_released_by_several_workers_concurrently(twins: Twins) -> None:
    twins.world.protect("backup", 5)
    for start in range(10, 60):
        twins.world.write(start, start + 100, [Cell(b"row-%03d" % n, b"c") for n in range(30)])
    twins.sweep(1_000)
    assert len(twins.world.parked()) == 30
    twins.world.release("backup")
    here, there = twins.sweep(1_001)
    assert there.unparked == here.unparked == 30
    assert there.workers >= 1
