"""A table that is swept by another strategy from now on: what is left to do, and that no reader is ever wrong."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SnapshotSwept, TransactionAborted, TransactionError, UnknownTable
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, ScanDue, ScanReason, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import dump_metadata, load_metadata
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.simulation import Process

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
UNQUEUED, MARKERS = ScanReason.UNQUEUED, ScanReason.MARKERS
T = TableRef.parse("app.items")
CELL = Cell(b"r", b"c")
SETTINGS = Settings(retention_s=0)


def make(store: Store, strategy: SweepStrategy) -> Catalog:
    catalog = Catalog(store)
    catalog.create(T, TableMetadata(strategy))
    return catalog


def metadata(store: Store) -> TableMetadata:
    return store.tables([T])[T]


class TestDueScans:
    @pytest.mark.parametrize(
        ("way", "why"),
        [
            ((CONSERVATIVE, THOROUGH), MARKERS),
            ((THOROUGH, CONSERVATIVE), None),
            ((NOTHING, CONSERVATIVE), UNQUEUED),
            ((NOTHING, THOROUGH), UNQUEUED),
            ((CONSERVATIVE, NOTHING), None),
            ((THOROUGH, NOTHING), None),
            ((CONSERVATIVE, THOROUGH, CONSERVATIVE), None),
            ((CONSERVATIVE, THOROUGH, NOTHING, THOROUGH), UNQUEUED),
            ((NOTHING, CONSERVATIVE, THOROUGH), UNQUEUED),
            ((NOTHING, THOROUGH, CONSERVATIVE), UNQUEUED),
            ((NOTHING, THOROUGH, NOTHING), None),
        ],
    )
    def test_after_a_change(self, way: tuple[SweepStrategy, ...], why: ScanReason | None) -> None:
        first, *others = way
        table = TableMetadata(first)
        for strategy in others:
            table = table.with_strategy(strategy)
        assert table.scan_due == (ScanDue(why) if why else None)
        assert table.strategies == set(way) - {NOTHING}

    def test_the_same_strategy_again_changes_nothing(self) -> None:
        table = TableMetadata(CONSERVATIVE).with_strategy(THOROUGH)
        assert table.with_strategy(THOROUGH) == table

    def test_it_is_kept_with_the_table_and_tables_of_before_have_none_of_it_in_their_text(self) -> None:
        due = TableMetadata(THOROUGH, scan_due=ScanDue(MARKERS, 7))
        assert load_metadata(dump_metadata(due)) == due
        assert load_metadata(dump_metadata(TableMetadata())) == TableMetadata()
        assert "scan_due" not in dump_metadata(TableMetadata())


class TestSteps:
    def test_a_scan_is_due_up_to_a_timestamp_of_after_the_change(self, store: Store) -> None:
        before, after = make(store, CONSERVATIVE).set_strategy(T, THOROUGH)
        assert (before.strategy, after.strategy) == (CONSERVATIVE, THOROUGH)
        assert after == metadata(store)
        assert after.scan_due == ScanDue(MARKERS, TimestampService(store).greatest())

    def test_everything_else_stays_as_it_was(self, store: Store) -> None:
        catalog = Catalog(store)
        catalog.create(T, TableMetadata(CONSERVATIVE, retention_s=50, look_before_delete=True))
        after = catalog.set_strategy(T, THOROUGH).after
        assert (after.retention_s, after.look_before_delete, after.own_threshold) == (50, True, True)

    def test_the_same_again_changes_nothing(self, store: Store) -> None:
        catalog = make(store, CONSERVATIVE)
        first = catalog.set_strategy(T, THOROUGH)
        assert catalog.set_strategy(T, THOROUGH) == (first.after, first.after)

    def test_a_table_that_is_not_there_is_named(self, store: Store) -> None:
        with pytest.raises(UnknownTable) as unknown:
            Catalog(store).set_strategy(T, THOROUGH)
        assert unknown.value.table == T

    def test_after_a_crash_any_process_may_set_the_timestamp_of_the_due_scan(self, memory: MemoryStore) -> None:
        make(memory, NOTHING)
        dying = Process(memory, lambda store: Catalog(store).set_strategy(T, CONSERVATIVE))
        dying.step_to("update")
        dying.crash_here()
        assert metadata(memory).scan_due == ScanDue(UNQUEUED, None)
        assert not Catalog(memory).complete_scan(T, 2**60), "it is not known whether it reached far enough"
        Catalog(memory).date_scan(T)
        assert metadata(memory).scan_due == ScanDue(UNQUEUED, TimestampService(memory).greatest())

    def test_a_timestamp_of_before_another_change_is_not_used_for_it(self, memory: MemoryStore) -> None:
        make(memory, NOTHING)
        slow = Process(memory, lambda store: Catalog(store).set_strategy(T, CONSERVATIVE))
        slow.step_to("update")
        slow.step_to("alter_table")  # its timestamp is taken
        Catalog(memory).set_strategy(T, NOTHING)
        written_by_nothing = TimestampService(memory).fresh()
        again = Process(memory, lambda store: Catalog(store).set_strategy(T, CONSERVATIVE))
        again.step_to("update")
        slow.finish()
        due = metadata(memory).scan_due
        assert due is not None
        assert due.since is not None
        assert due.since > written_by_nothing

    def test_only_a_scan_up_to_the_timestamp_completes_the_change(self, store: Store) -> None:
        catalog = make(store, NOTHING)
        due = catalog.set_strategy(T, CONSERVATIVE).after.scan_due
        assert due is not None
        assert due.since is not None
        assert not catalog.complete_scan(T, due.since - 1)
        assert metadata(store).scan_due == due
        assert catalog.complete_scan(T, due.since)
        assert metadata(store).scan_due is None
        assert not catalog.complete_scan(T, due.since), "nothing was due any more"

    def test_a_scan_before_the_next_change_does_not_complete_that_one(self, store: Store) -> None:
        catalog = make(store, NOTHING)
        catalog.set_strategy(T, CONSERVATIVE)
        up_to = TimestampService(store).fresh()
        for strategy in (NOTHING, CONSERVATIVE):
            catalog.set_strategy(T, strategy)
        assert not catalog.complete_scan(T, up_to)
        assert metadata(store).scan_due is not None


class TestReadersAndWriters:
    """Every step of a change, with sweeps of both queues after each."""

    @pytest.fixture
    def manager(self, store: Store, clock: ManualClock) -> TransactionManager:
        return TransactionManager(store, SETTINGS, clock=clock, renew_leases=False)

    def put(self, manager: TransactionManager, value: bytes) -> None:
        with manager.transaction() as tx:
            if value:
                tx.put(T, *CELL, value)
            else:
                tx.delete(T, *CELL)

    def sweep(self, store: Store, clock: ManualClock) -> None:
        clock.advance(1)
        for strategy in QUEUES:
            list(Sweeper(store, SETTINGS, clock).sweep([strategy]))

    def scan(self, store: Store, clock: ManualClock, from_row: bytes = b"") -> None:
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(T, ranges=2, from_row=from_row))

    @pytest.mark.parametrize("to", SweepStrategy)
    @pytest.mark.parametrize("start", SweepStrategy)
    @pytest.mark.parametrize("last", [b"2", b""])
    def test_current_readers_see_the_last_write_and_older_readers_fail_if_it_is_removed(
        self, store: Store, clock: ManualClock, manager: TransactionManager, start: SweepStrategy, to: SweepStrategy,
        last: bytes,
    ) -> None:  # fmt: skip
        catalog = make(store, start)
        self.put(manager, b"1")
        old = TimestampService(store).fresh()
        self.put(manager, last)
        catalog.set_strategy(T, to)
        for _ in range(3):
            assert (manager.transaction(read_only=False).get(T, *CELL) or b"") == last
            manager.leases.release(manager.leases.open())
            versions = store.timestamps(T, [CELL]).get(CELL, [])
            try:
                assert manager.read_at(old).get(T, *CELL) == b"1"
            except SnapshotSwept:
                assert to is not NOTHING or start is not NOTHING
            else:
                assert len([ts for ts in versions if ts >= 0]) == 2, "it was read, so it must be there"
            self.sweep(store, clock)

    def test_what_a_conservative_queue_leaves_in_a_thorough_table_a_scan_removes(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, CONSERVATIVE)
        self.put(manager, b"1")
        self.put(manager, b"")
        catalog.set_strategy(T, THOROUGH)
        clock.advance(1)
        self.scan(store, clock)
        assert metadata(store).scan_due is not None, "the conservative queue was not swept up to the change yet"
        self.sweep(store, clock)
        self.scan(store, clock)
        assert store.timestamps(T, [CELL]) == {}, "neither a sentinel nor the delete marker is left"
        assert metadata(store).scan_due is None

    def test_sentinels_of_before_it_was_swept_by_nothing_are_waited_for_too(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, CONSERVATIVE)
        self.put(manager, b"1")
        self.put(manager, b"2")
        for strategy in (NOTHING, THOROUGH):
            catalog.set_strategy(T, strategy)
        clock.advance(1)
        self.scan(store, clock)
        assert metadata(store).scan_due is not None, "entries of the conservative queue would write sentinels later"
        self.sweep(store, clock)
        self.scan(store, clock)
        assert len(store.timestamps(T, [CELL])[CELL]) == 1
        assert metadata(store).scan_due is None

    def test_a_scan_does_not_complete_the_change_while_parked_entries_will_write_sentinels(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, CONSERVATIVE)
        self.put(manager, b"1")
        protections = ProtectionCatalog(store, SETTINGS, clock)
        assert protections.protect(Record("r", TimestampService(store).fresh(), Mode.AT, (Target(T),))).accepted
        self.put(manager, b"2")
        catalog.set_strategy(T, THOROUGH)
        for _ in range(2):
            self.sweep(store, clock)
            self.scan(store, clock)
        assert metadata(store).scan_due is not None
        protections.release("r")
        self.sweep(store, clock)
        assert -1 in store.timestamps(T, [CELL])[CELL], "the entry was judged by the rules of its queue"
        self.scan(store, clock)
        assert len(store.timestamps(T, [CELL])[CELL]) == 1
        assert metadata(store).scan_due is None

    def test_what_was_written_while_it_was_swept_by_nothing_a_scan_removes(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, NOTHING)
        for value in (b"1", b"2", b"3"):
            self.put(manager, value)
        catalog.set_strategy(T, CONSERVATIVE)
        self.sweep(store, clock)
        assert len(store.timestamps(T, [CELL])[CELL]) == 3, "no queue entry leads there"
        self.scan(store, clock)
        assert len(store.timestamps(T, [CELL])[CELL]) == 2, "the last one, and a sentinel"
        assert manager.transaction().get(T, *CELL) == b"3"
        assert metadata(store).scan_due is None

    def test_a_scan_held_back_by_an_older_writer_does_not_complete_the_change(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, NOTHING)
        open_before = manager.transaction()
        catalog.set_strategy(T, CONSERVATIVE)
        clock.advance(1)
        self.scan(store, clock)
        assert metadata(store).scan_due is not None
        open_before.abort()
        clock.advance(1)
        self.scan(store, clock)
        assert metadata(store).scan_due is None

    def test_a_scan_of_part_of_the_table_does_not_complete_the_change(self, store: Store, clock: ManualClock) -> None:
        make(store, NOTHING).set_strategy(T, CONSERVATIVE)
        clock.advance(1)
        self.scan(store, clock, from_row=b"r")
        assert metadata(store).scan_due is not None

    def test_a_writer_that_checks_after_the_change_runs_again_by_the_new_strategy(
        self, store: Store, clock: ManualClock, manager: TransactionManager
    ) -> None:
        catalog = make(store, CONSERVATIVE)
        tx = manager.transaction()
        tx.put(T, *CELL, b"1")
        catalog.set_strategy(T, THOROUGH)
        with pytest.raises(TransactionAborted) as aborted:
            tx.commit()
        assert (aborted.value.reason, aborted.value.table) == ("strategy_changed", T)
        self.put(manager, b"2")
        self.sweep(store, clock)
        assert manager.transaction().get(T, *CELL) == b"2"

    def test_a_reader_without_a_lease_is_refused_once_the_table_is_thorough(
        self, store: Store, manager: TransactionManager
    ) -> None:
        catalog = make(store, CONSERVATIVE)
        self.put(manager, b"1")
        catalog.set_strategy(T, THOROUGH)
        with pytest.raises(TransactionError, check=having(code="bad_value")):
            manager.transaction(read_only=True).get(T, *CELL)
