"""What a change of strategy has left: what completes_change it, what refuses to and why, and what is read for that."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy.candidates import candidates
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.priority import Policy, ScanCause, reason
from sweep_tasks.legacy.progress import Undone
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.legacy.strategy_changes import are_parked
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import WAITING_FOR_REPLICAS, Hold, ParkedEntry, Parking
from sweep_tasks.queue.parking import HoldReason as Parked
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import ABORTED
from tests.support.clock import ManualClock

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
T, OTHER = TableRef.parse("app.items"), TableRef.parse("app.other")
CELL = Cell(b"r", b"c")
SETTINGS = Settings(retention_s=0)
DAY_S = 86_400


def put(store: Store, clock: ManualClock, value: bytes) -> None:
    with TransactionManager(store, SETTINGS, clock=clock, renew_leases=False).transaction() as tx:
        tx.put(T, *CELL, value)


def sweep(store: Store, clock: ManualClock) -> None:
    clock.advance(1)
    for strategy in QUEUES:
        list(Sweeper(store, SETTINGS, clock).sweep([strategy]))


def scan(store: Store, clock: ManualClock, from_row: bytes = b"") -> LegacySummary:
    clock.advance(1)
    return LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(T, ranges=2, from_row=from_row))


def due(store: Store) -> bool:
    return store.tables([T])[T].scan_due is not None


class TestReasonsAgainstAScan:
    """A table that was conservative and is thorough now."""

    @pytest.fixture
    def changed(self, store: Store, clock: ManualClock) -> Store:
        Catalog(store).create(T, TableMetadata(CONSERVATIVE))
        for value in (b"1", b"2"):
            put(store, clock, value)
        Catalog(store).set_strategy(T, THOROUGH)
        return store

    def test_the_queue_is_behind(self, changed: Store, clock: ManualClock) -> None:
        summary = scan(changed, clock)
        assert (summary.still_due, summary.document()["still_due"]) == (Undone.QUEUE, "queue")
        sweep(changed, clock)
        assert scan(changed, clock).still_due is None
        assert not due(changed)

    def test_only_part_was_scanned(self, changed: Store, clock: ManualClock) -> None:
        sweep(changed, clock)
        assert scan(changed, clock, from_row=b"q").still_due is Undone.PART
        assert due(changed)

    def test_a_record_holds_something(self, changed: Store, clock: ManualClock) -> None:
        protections = ProtectionCatalog(changed, SETTINGS, clock)
        sweep(changed, clock)
        protections.protect(Record("r", TimestampService(changed).fresh(), Mode.AT, (Target(T),)))
        put(changed, clock, b"3")
        assert scan(changed, clock).still_due is Undone.HELD
        protections.release("r")
        assert scan(changed, clock).still_due is None

    def test_a_single_version_above_a_record_holds_nothing_back(self, changed: Store, clock: ManualClock) -> None:
        sweep(changed, clock)
        record = Record("r", TimestampService(changed).fresh(), Mode.AT, (Target(T),))
        with TransactionManager(changed, SETTINGS, clock=clock, renew_leases=False).transaction() as tx:
            assert ProtectionCatalog(changed, SETTINGS, clock).protect(record).accepted
            tx.put(T, b"another", b"c", b"v")
        assert scan(changed, clock).still_due is None

    def test_nothing_is_reported_where_nothing_is_due(self, store: Store, clock: ManualClock) -> None:
        Catalog(store).create(T, TableMetadata(CONSERVATIVE))
        assert scan(store, clock, from_row=b"q").still_due is None


class TestATableThatKeepsLonger:
    """A week of retention, and another strategy by now: what is due lies within its retention."""

    @pytest.fixture
    def changed(self, store: Store, clock: ManualClock) -> Store:
        Catalog(store).create(T, TableMetadata(CONSERVATIVE, retention_s=7 * DAY_S))
        put(store, clock, b"1")
        sweep(store, clock)
        clock.advance(8 * DAY_S)
        scan(store, clock)
        Catalog(store).set_strategy(T, THOROUGH)
        sweep(store, clock)
        return store

    def why(self, store: Store, clock: ManualClock) -> ScanCause | None:
        (found,) = candidates(store, SETTINGS, clock)
        return reason(found, Policy(pause_ms=SETTINGS.legacy_pause_s * 1_000), clock.now_ms())

    def test_it_is_scheduled_only_once_a_scan_can_complete_the_change(self, changed: Store, clock: ManualClock) -> None:
        assert self.why(changed, clock) is None, "it was scanned not long ago"
        assert scan(changed, clock).still_due is Undone.REACH
        assert due(changed)
        clock.advance(6 * DAY_S)
        scan(changed, clock)
        clock.advance(DAY_S)
        sweep(changed, clock)
        assert self.why(changed, clock) is ScanCause.STRATEGY_CHANGED, "a scan of before could not have settled it"
        assert scan(changed, clock).still_due is None
        assert not due(changed)

    def test_a_scan_ahead_of_the_queue_does_not_delay_its_next_scan(self, store: Store, clock: ManualClock) -> None:
        Catalog(store).create(T, TableMetadata(CONSERVATIVE))
        put(store, clock, b"1")
        Catalog(store).set_strategy(T, THOROUGH)
        assert scan(store, clock).still_due is Undone.QUEUE
        assert self.why(store, clock) is None, "the queue is still behind"
        sweep(store, clock)
        assert self.why(store, clock) is ScanCause.STRATEGY_CHANGED


class TestParked:
    """Entries in the conservative queue that would still write sentinels."""

    @pytest.fixture
    def parking(self, memory: MemoryStore) -> Parking:
        for table in (T, OTHER):
            Catalog(memory).create(table, TableMetadata(CONSERVATIVE))
            TableIds(memory).id_of(table)
        return Parking(memory, TimestampService(memory), CONSERVATIVE, 0)

    def entries(self, store: Store, hold: Hold, of: TableRef, number: int = 1, commit: int = 7) -> list[ParkedEntry]:
        table_id = TableIds(store).id_of(of)
        return [ParkedEntry(hold, table_id, Cell(b"%d" % each, b"c"), 5, commit, False) for each in range(number)]

    def hold(self, store: Store, why: Parked, of: TableRef) -> Hold:
        if why is Parked.PROTECTED:
            ProtectionCatalog(store).protect(Record("r", 3, Mode.AT, (Target(of),)))
            return Hold(why, record="r", record_ts=3)
        return WAITING_FOR_REPLICAS if why is Parked.REPLICAS else Hold(why, table_id=TableIds(store).id_of(of))

    @pytest.mark.parametrize("why", [Parked.REPLICAS, Parked.PROTECTED, Parked.RETENTION, Parked.PAUSED])
    def test_a_parked_entry_of_the_table_is_found_behind_many_of_other_tables(
        self, memory: MemoryStore, parking: Parking, why: Parked
    ) -> None:
        parking.park(self.entries(memory, Hold(Parked.GRACE, until_ms=9), OTHER, 1_500, ABORTED))
        assert not are_parked(memory, T)
        parking.park(self.entries(memory, self.hold(memory, why, T), T))
        assert are_parked(memory, T)
        assert not are_parked(memory, OTHER), "they were aborted"

    @pytest.mark.parametrize("why", [Parked.PROTECTED, Parked.RETENTION, Parked.PAUSED])
    def test_parked_entries_of_other_tables_are_neither_read_nor_counted(
        self, memory: MemoryStore, parking: Parking, why: Parked
    ) -> None:
        parking.park(self.entries(memory, self.hold(memory, why, OTHER), OTHER, 12_000))
        pages: list[object] = []
        watched = FaultyStore(memory, before=lambda call: pages.append(call) if call.name == "scan" else None)
        assert not are_parked(watched, T)
        assert len(pages) == 2, "the first of them, and what is behind them all"

    def test_those_of_a_record_that_was_released_or_replaced_are_checked(
        self, memory: MemoryStore, parking: Parking
    ) -> None:
        parking.park(self.entries(memory, Hold(Parked.PROTECTED, record="r", record_ts=3), T))
        assert are_parked(memory, T)
        ProtectionCatalog(memory).protect(Record("r", 8, Mode.AT, (Target(OTHER),)))
        assert are_parked(memory, T)

    def test_with_a_limit_the_rest_counts_as_entries_of_the_table(self, memory: MemoryStore, parking: Parking) -> None:
        parking.park(self.entries(memory, WAITING_FOR_REPLICAS, OTHER, 10))
        assert not are_parked(memory, T)
        assert not are_parked(memory, T, most=11)
        assert are_parked(memory, T, most=10)
