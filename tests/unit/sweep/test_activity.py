"""The number of writes to each table, counted by its sweeps."""

from __future__ import annotations

from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import written
from sweep_tasks.tables.activity import NONE, Activity, WriteCounts
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, A, B

OTHER = TableRef.parse("app.other")
SETTINGS = Settings(retention_s=0)


def test_each_cell_counts_once_as_its_latest_entry_left_it() -> None:
    entries = [
        Entry(TABLE, 1, A, 10, 11, True), Entry(TABLE, 1, A, 20, 21, False), Entry(TABLE, 1, B, 20, 21, True),
        Entry(OTHER, 2, A, 10, 11, True),
    ]  # fmt: skip
    assert written(entries) == {TABLE: WriteCounts(1, 1), OTHER: WriteCounts(0, 1)}


def test_shards_and_strategies_add_up_and_a_scan_resets_the_sums(store: Store) -> None:
    activity = Activity(store)
    activity.add(CONSERVATIVE, 0, {TABLE: WriteCounts(5, 1), OTHER: WriteCounts(1, 0)})
    activity.add(CONSERVATIVE, 1, {TABLE: WriteCounts(2, 2)})
    activity.add(THOROUGH, 0, {TABLE: WriteCounts(1, 0)})
    assert activity.since_last_scan([TABLE, OTHER]) == {TABLE: WriteCounts(8, 3), OTHER: WriteCounts(1, 0)}
    activity.record_scan(TABLE, activity.ever(TABLE))
    activity.add(CONSERVATIVE, 0, {TABLE: WriteCounts(1, 1)})
    assert activity.since_last_scan([TABLE, OTHER]) == {TABLE: WriteCounts(1, 1), OTHER: WriteCounts(1, 0)}


def test_a_table_without_writes_has_no_activity(store: Store) -> None:
    assert Activity(store).since_last_scan([TABLE]) == {TABLE: NONE}


def test_a_sweep_counts_what_it_judges_and_a_dry_run_does_not(store: Store, clock: ManualClock) -> None:
    store.create_table(TABLE, TableMetadata(SweepStrategy.CONSERVATIVE))
    with TransactionManager(store, SETTINGS, clock=clock, renew_leases=False) as manager:
        for value in (b"1", b""):
            with manager.transaction() as tx:
                tx.put(TABLE, *A, b"v")
                tx.put(TABLE, *B, value) if value else tx.delete(TABLE, *B)
    clock.advance(1)
    for dry_run in (True, False):
        list(Sweeper(store, SETTINGS, clock).sweep(options=SweepOptions(dry_run=dry_run)))
        counted = Activity(store).since_last_scan([TABLE])[TABLE]
        assert counted == (NONE if dry_run else WriteCounts(1, 1))
