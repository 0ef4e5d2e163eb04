"""Truncating, dropping and creating tables again, in orders that once caused errors, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, BadValue, SnapshotSwept, StoreBusy, TransactionAborted, UnknownTable
from sweep_tasks.model import Cell, ScanReason, SweepStrategy, TableMetadata, TableRef, TableState
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.tables.activity import Activity, WriteCounts
from sweep_tasks.tables.catalog import Catalog, TableCount
from sweep_tasks.transactions import Transaction, TransactionManager
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.simulation import Process

T = TableRef.parse("app.items")
A, B = Cell(b"a", b"c"), Cell(b"b", b"c")
AT_ONCE = Settings(emptying_wait_s=0)


@pytest.fixture
def catalog(store: Store, clock: ManualClock) -> Catalog:
    created = Catalog(store, clock)
    created.create(T, TableMetadata())
    return created


@pytest.fixture
def manager(store: Store, clock: ManualClock) -> TransactionManager:
    return TransactionManager(store, AT_ONCE, clock=clock, renew_leases=False)


@pytest.fixture
def table(memory: MemoryStore) -> Catalog:
    """With two cells, for processes that are stepped."""
    created = Catalog(memory)
    created.create(T, TableMetadata())
    write(client(memory), A, B)
    return created


def client(store: Store) -> TransactionManager:
    return TransactionManager(store, AT_ONCE, clock=ManualClock(), renew_leases=False)


def write(manager: TransactionManager, *cells: Cell) -> int | None:
    with manager.transaction() as tx:
        tx.put_many(T, dict.fromkeys(cells, b"v"))
    return tx.commit_ts


def protect(store: Store, ts: int, target: str = str(T)) -> bool:
    record = Record("r", ts, Mode.AT, (Target.parse(target),))
    return ProtectionCatalog(store, AT_ONCE, ManualClock()).protect(record).accepted


def truncating(store: Store, force: bool = False) -> Process[None]:
    return Process(store, lambda own: Catalog(own, ManualClock(), 0).truncate(T, force))


def dropping(store: Store, force: bool = False) -> Process[None]:
    return Process(store, lambda own: Catalog(own, ManualClock(), 0).drop(T, force))


def row(store: Store) -> TableMetadata:
    return store.catalog_rows([T])[T]


def to_the_decision(process: Process[Any]) -> None:
    """It has announced, taken its timestamp and read the protections."""
    process.step_to("alter_table")
    process.step_to("alter_table")


# --- the order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "removal"), [("truncate", ["scan_versions", "delete_versions"]), ("drop", ["remove_table"])]
)
def test_emptying_is_announced_then_decided_then_done(memory: MemoryStore, what: str, removal: list[str]) -> None:
    calls: list[tuple[str, TableState]] = []
    catalog = Catalog(FaultyStore(memory, before=lambda call: calls.append((call.name, row(memory).state))))
    Catalog(memory).create(T, TableMetadata())
    getattr(catalog, what)(T)
    announced = TableState.TRUNCATING if what == "truncate" else TableState.DROPPING
    decided = TableState.ACTIVE if what == "truncate" else TableState.GONE
    assert [call for call, state in calls if state is announced] == ["update", "read_rows", "alter_table"], (
        "a timestamp, then the protections, then the decision"
    )
    names = [call for call, _ in calls]
    decision = [number for number, name in enumerate(names) if name == "alter_table"][1]
    assert names[decision + 1 :][: len(removal)] == removal
    assert row(memory).state is decided
    assert row(memory).scan_due is None


def test_a_refused_truncation_leaves_no_mark_behind(catalog: Catalog, manager: TransactionManager) -> None:
    write(manager, A)
    open_before = manager.transaction()
    protect(manager.store, open_before.start)
    for refused in (catalog.truncate, catalog.drop):
        with pytest.raises(BadValue, check=having(reason="protected")) as held:
            refused(T)
        assert held.value.details["records"] == ("r",)
    assert row(manager.store) == TableMetadata()
    assert open_before.get(T, *A) == b"v"


def test_an_announced_truncation_is_continued_by_the_next(table: Catalog, memory: MemoryStore) -> None:
    first, second = truncating(memory), truncating(memory)
    to_the_decision(first)
    to_the_decision(second)
    owner = row(memory).owner
    first.step()
    assert row(memory).owner == owner, "the first finds another's announcement, and begins again"
    second.finish()
    first.finish()
    assert table.count(T) == TableCount(0, 0)


def test_a_truncation_whose_announcements_are_withdrawn_repeatedly_fails(memory: MemoryStore) -> None:
    Catalog(memory).create(T, TableMetadata())

    def take_back(call: Any) -> None:
        if call.name == "read_rows":
            memory.alter_table(T, row(memory), row(memory).rolled_back())

    with pytest.raises(StoreBusy) as busy:
        Catalog(FaultyStore(memory, before=take_back), ManualClock()).truncate(T)
    assert busy.value.reason == "emptying"
    assert row(memory) == TableMetadata()


def test_a_decision_whose_answer_is_lost_is_carried_out(table: Catalog, memory: MemoryStore) -> None:
    truncation = truncating(memory)
    to_the_decision(truncation)
    truncation.lose_next_answer()
    truncation.finish()
    assert table.count(T) == TableCount(0, 0)


# --- truncation -------------------------------------------------------------------------------------------------------


def test_a_snapshot_never_sees_half_a_truncated_table(table: Catalog, memory: MemoryStore) -> None:
    """A reader between two pages sees none of it at or above the mark, and fails below the mark."""
    before = client(memory).transaction()
    truncation = truncating(memory)
    truncation.step_to("delete_versions")
    during = client(memory).transaction()
    assert during.get_many(T, [A, B]) == {}
    assert list(during.scan(T)) == []
    with pytest.raises(SnapshotSwept) as swept:
        before.get(T, *A)
    assert swept.value.threshold == row(memory).mark
    truncation.crash_here()
    assert during.get_many(T, [A, B]) == {}, "nor if the rest stays forever"
    assert row(memory).scan_due == (ScanReason.TRUNCATED, row(memory).mark), "which a scan will see to"


def test_a_reader_that_meets_an_announcement_takes_it_back(table: Catalog, memory: MemoryStore) -> None:
    truncation = truncating(memory)
    to_the_decision(truncation)
    reader = client(memory).transaction()
    assert reader.get_many(T, [A, B]) == {A: b"v", B: b"v"}
    truncation.finish()
    with pytest.raises(SnapshotSwept):
        reader.get_many(T, [A, B])
    assert row(memory).mark > reader.start, "it was decided again, at a later timestamp"


def test_a_reader_waits_for_the_decision_before_it_takes_anything_back(table: Catalog, memory: MemoryStore) -> None:
    truncation, clock = truncating(memory), ManualClock()
    to_the_decision(truncation)
    clock.while_sleeping = truncation.run_to_end
    reader = TransactionManager(memory, Settings(), clock=clock, renew_leases=False).transaction()
    assert reader.get_many(T, [A, B]) == {}
    assert row(memory).mark < reader.start


def test_a_protection_during_a_truncation_stops_it_or_is_refused(table: Catalog, memory: MemoryStore) -> None:
    truncation = truncating(memory)
    to_the_decision(truncation)
    ts = TimestampService(memory).fresh()
    assert protect(memory, ts)
    with pytest.raises(BadValue, check=having(reason="protected")):
        truncation.finish()
    assert row(memory).mark == 0
    assert client(memory).read_at(ts).get_many(T, [A, B]) == {A: b"v", B: b"v"}


def test_a_protection_below_the_mark_of_a_running_truncation_is_refused(table: Catalog, memory: MemoryStore) -> None:
    ts = TimestampService(memory).fresh()
    truncation = truncating(memory)
    truncation.step_to("delete_versions")
    assert not protect(memory, ts)


def test_after_a_forced_truncation_a_protected_read_fails_instead_of_returning_nothing(
    catalog: Catalog, manager: TransactionManager
) -> None:
    write(manager, A)
    ts = manager.timestamps.fresh()
    assert protect(manager.store, ts)
    assert manager.read_at(ts).get(T, *A) == b"v"
    catalog.truncate(T, force=True)
    with pytest.raises(SnapshotSwept):
        manager.read_at(ts).get(T, *A)
    with pytest.raises(SnapshotSwept):
        manager.read_at(ts).check_readable(T)


def test_what_a_truncation_left_is_not_seen(catalog: Catalog, manager: TransactionManager) -> None:
    """A replica that was down brings everything back once the tombstones are purged."""
    write(manager, A, B)
    left = manager.store.get(T, {A: 2**62, B: 2**62})
    catalog.truncate(T)
    for cell, version in left.items():
        manager.store.put(version.ts, {T: {cell: version.value}})
    assert manager.transaction().get_many(T, [A, B]) == {}
    write(manager, A)
    assert dict(manager.transaction().scan(T)) == {A: b"v"}


# --- writers ----------------------------------------------------------------------------------------------------------


def writing(store: Store, cell: Cell = A) -> Process[int | None]:
    return Process(store, lambda own: write(client(own), cell))


def test_a_writer_that_meets_an_announcement_aborts_and_the_next_one_commits(
    table: Catalog, memory: MemoryStore
) -> None:
    dropping_it = dropping(memory)
    to_the_decision(dropping_it)
    with pytest.raises(TransactionAborted) as aborted:
        write(client(memory), A)
    assert (aborted.value.reason, aborted.value.table) == ("emptying", T)
    dropping_it.crash_here()
    assert write(client(memory), A), "the process that announced it may have died"


def test_a_drop_takes_nothing_that_committed_above_its_mark(table: Catalog, memory: MemoryStore) -> None:
    drop = dropping(memory)
    drop.step_to("remove_table")
    with pytest.raises(UnknownTable):
        write(client(memory), A)
    assert row(memory).is_gone


def test_a_writer_does_not_commit_to_the_successor_of_its_table(table: Catalog, memory: MemoryStore) -> None:
    """It checks a second time, and sees a table of the same name with the same strategy."""
    writer = writing(memory)
    writer.step_to("put")
    table.drop(T)
    table.create(T, TableMetadata())
    with pytest.raises(TransactionAborted) as aborted:
        writer.finish()
    assert aborted.value.reason == "recreated"
    assert client(memory).transaction().get(T, *A) is None


def test_a_commit_after_a_table_was_created_again_keeps_it(table: Catalog, memory: MemoryStore) -> None:
    drop = dropping(memory)
    drop.step_to("remove_table")
    table.create(T, TableMetadata())
    write(client(memory), A)
    drop.finish()
    assert client(memory).transaction().get(T, *A) == b"v", "a removal that comes late does not hit the successor"


def test_two_processes_that_drop_a_table_at_once_drop_it_once(table: Catalog, memory: MemoryStore) -> None:
    first, second = dropping(memory), dropping(memory)
    to_the_decision(first)
    second.finish()
    table.create(T, TableMetadata())
    write(client(memory), A)
    with pytest.raises(UnknownTable):
        first.finish()
    assert client(memory).transaction().get(T, *A) == b"v", "it was asked to drop the other"


# --- dropping and creating --------------------------------------------------------------------------------------------


def test_a_table_created_again_is_an_incarnation_that_no_earlier_snapshot_reads(
    catalog: Catalog, manager: TransactionManager
) -> None:
    write(manager, A)
    before = manager.transaction()
    assert before.get(T, *A) == b"v"
    catalog.drop(T)
    with pytest.raises(UnknownTable):
        before.get(T, *A)
    catalog.create(T, TableMetadata())
    assert row(manager.store).incarnation == 2
    with pytest.raises(SnapshotSwept):
        before.get(T, *A)
    assert manager.transaction().get(T, *A) is None


def test_a_pattern_accepted_without_a_table_protects_nothing_that_was_removed(
    catalog: Catalog, manager: TransactionManager
) -> None:
    write(manager, A)
    ts = manager.timestamps.fresh()
    Catalog(manager.store).create(TableRef.parse("app.other"), TableMetadata())
    catalog.drop(T)
    assert not protect(manager.store, ts, "app.*")
    later = manager.timestamps.fresh()
    assert protect(manager.store, later, "app.*")
    catalog.create(T, TableMetadata())
    with pytest.raises(SnapshotSwept):
        manager.read_at(later).get(T, *A)


def test_a_drop_that_was_cut_off_is_finished_by_the_next(table: Catalog, memory: MemoryStore) -> None:
    drop = dropping(memory)
    drop.step_to("remove_table")
    drop.crash_here()
    assert memory.contents[T].rows
    table.drop(T)
    assert not memory.contents[T].rows
    with pytest.raises(UnknownTable):
        table.drop(T)


def test_of_two_processes_that_create_a_table_one_fails(memory: MemoryStore) -> None:
    first = Process(memory, lambda own: Catalog(own).create(T, TableMetadata()))
    first.step_to("create_table")
    Catalog(memory).create(T, TableMetadata(SweepStrategy.THOROUGH))
    with pytest.raises(AlreadyExists):
        first.finish()
    assert row(memory).strategy is SweepStrategy.THOROUGH


@pytest.mark.parametrize("call", ["read_rows", "catalog_rows", "compare_and_set", "create_table"])
def test_a_process_that_fails_to_create_a_table_keeps_the_records_of_scans_of_the_other_one(
    memory: MemoryStore, call: str
) -> None:
    """Up to the catalog row, it finds records of the table that was dropped."""
    activity = Activity(memory)
    activity.add(SweepStrategy.THOROUGH, 0, {T: WriteCounts(1, 0)})
    loser = Process(memory, lambda own: Catalog(own).create(T, TableMetadata()))
    loser.step_to(call)
    Catalog(memory).create(T, TableMetadata())
    activity.add(SweepStrategy.THOROUGH, 0, {T: WriteCounts(5_000, 100)})
    with pytest.raises(AlreadyExists):
        loser.finish()
    assert activity.ever(T) == WriteCounts(5_000, 100)


def test_a_change_of_a_table_waits_for_what_was_announced(table: Catalog, memory: MemoryStore) -> None:
    truncation = truncating(memory)
    to_the_decision(truncation)
    Catalog(memory, ManualClock(), 0).change(T, None, 60)
    assert (row(memory).retention_s, row(memory).state) == (60, TableState.ACTIVE)
    truncation.finish()
    assert row(memory).retention_s == 60
    assert row(memory).mark > 0


def test_reading_through_an_open_transaction_is_refused_after_a_truncation(
    catalog: Catalog, manager: TransactionManager
) -> None:
    write(manager, A)
    tx: Transaction = manager.transaction()
    assert tx.get(T, *A) == b"v"
    catalog.truncate(T)
    with pytest.raises(SnapshotSwept):
        tx.get(T, *B)
