"""Transactions as an application sees them, on every store."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import (
    BadValue,
    SnapshotSwept,
    TransactionAborted,
    TransactionError,
    UnknownTable,
    WriteConflict,
)
from sweep_tasks.model import Cell, ConflictHandling, Span, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import Snapshot, Transaction, TransactionManager
from tests.support.clock import ManualClock
from tests.support.errors import having

R, C = b"row", b"col"


def write(manager: TransactionManager, table: TableRef, value: bytes, row: bytes = R) -> Transaction:
    with manager.transaction() as tx:
        tx.put(table, row, C, value)
    return tx


class TestReadingAndWriting:
    def test_later_transactions_read_what_was_committed(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"v")
        with manager.transaction() as tx:
            assert tx.get(table, R, C) == b"v"
            assert tx.get(table, R, b"other") is None

    def test_a_snapshot_does_not_move(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"old")
        reader = manager.transaction()
        write(manager, table, b"new")
        assert reader.get(table, R, C) == b"old"
        assert manager.transaction().get(table, R, C) == b"new"

    def test_tables_go_by_name_too(self, manager: TransactionManager, table: TableRef) -> None:
        with manager.transaction() as tx:
            tx.put(str(table), R, C, b"v")
            assert tx.get(table, R, C) == tx.get("app.items", R, C) == b"v"

    def test_own_writes_are_seen_before_the_commit_and_by_no_other_transaction(
        self, manager: TransactionManager, table: TableRef
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"mine")
        assert tx.get(table, R, C) == b"mine"
        assert manager.transaction().get(table, R, C) is None
        tx.delete(table, R, C)
        assert tx.get(table, R, C) is None

    def test_it_offers_no_reading_that_would_overlook_its_own_writes(self) -> None:
        """A snapshot has no writes of its own, so it also offers the versions that it shows."""
        common = {name for name in dir(Snapshot) if not name.startswith("_") and hasattr(Transaction, name)}
        assert common == {"get", "get_many", "page", "scan"}

    def test_a_deleted_cell_reads_as_nothing(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"v")
        with manager.transaction() as tx:
            tx.delete(table, R, C)
        assert manager.transaction().get(table, R, C) is None

    def test_one_commit_covers_several_tables(
        self, manager: TransactionManager, table: TableRef, thorough: TableRef
    ) -> None:
        with manager.transaction() as tx:
            tx.put(table, R, C, b"a")
            tx.put(thorough, R, C, b"b")
        later = manager.transaction()
        assert (later.get(table, R, C), later.get(thorough, R, C)) == (b"a", b"b")

    def test_an_exception_in_the_block_aborts(self, manager: TransactionManager, table: TableRef) -> None:
        def fail_midway() -> None:
            with manager.transaction() as tx:
                tx.put(table, R, C, b"v")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_midway()
        assert manager.transaction().get(table, R, C) is None

    def test_commit_timestamps_lie_above_the_start(self, manager: TransactionManager, table: TableRef) -> None:
        tx = write(manager, table, b"v")
        assert tx.commit_ts is not None
        assert tx.commit_ts > tx.start

    def test_a_transaction_that_wrote_nothing_commits_nothing(
        self, manager: TransactionManager, table: TableRef
    ) -> None:
        with manager.transaction() as tx:
            tx.get(table, R, C)
        assert tx.commit_ts is None

    def test_an_ended_transaction_is_no_longer_used(self, manager: TransactionManager, table: TableRef) -> None:
        tx = write(manager, table, b"v")
        for use in (
            lambda: tx.get(table, R, C),
            lambda: tx.put(table, R, C, b"v"),
            lambda: list(tx.scan(table)),
            tx.commit,
        ):
            with pytest.raises(TransactionError, check=having(code="failed")) as ended:
                use()
            assert ended.value.start == tx.start
        tx.abort()

    def test_leases_are_given_back_at_the_end(self, manager: TransactionManager, table: TableRef) -> None:
        tx = manager.transaction()
        assert [lease.ts < tx.start for lease in manager.leases.open()] == [True]
        tx.commit()
        write(manager, table, b"v")
        manager.transaction().abort()
        assert manager.leases.open() == []


class TestScanning:
    @pytest.fixture
    def filled(self, manager: TransactionManager, table: TableRef) -> TransactionManager:
        with manager.transaction() as tx:
            tx.put_many(table, {Cell(b"r%d" % row, b"c%d" % col): b"v" for row in range(5) for col in range(3)})
        with manager.transaction() as tx:
            tx.delete(table, b"r1", b"c1")
            tx.put(table, b"r2", b"c2", b"w")
        return manager

    def test_a_scan_sees_the_snapshot_without_what_was_deleted(
        self, filled: TransactionManager, table: TableRef
    ) -> None:
        reader = filled.transaction()
        write(filled, table, b"later", row=b"r0")
        found = dict(reader.scan(table))
        assert len(found) == 14
        assert Cell(b"r1", b"c1") not in found
        assert found[Cell(b"r2", b"c2")] == b"w"
        assert found[Cell(b"r0", b"c0")] == b"v"

    def test_rows_and_columns_are_chosen(self, filled: TransactionManager, table: TableRef) -> None:
        found = dict(filled.transaction().scan(table, Span(b"r1", b"r3"), columns=[b"c1"]))
        assert set(found) == {Cell(b"r2", b"c1")}

    @pytest.mark.parametrize("limit", [1, 2, 4, 100])
    def test_pages_of_any_size_add_up_with_own_writes_in_their_place(
        self, filled: TransactionManager, table: TableRef, limit: int
    ) -> None:
        tx = filled.transaction()
        tx.put_many(table, {Cell(b"r0", b"a"): b"own", Cell(b"r2", b"c2"): b"own", Cell(b"r9", b"z"): b"own"})
        tx.delete(table, b"r3", b"c0")
        seen: list[tuple[Cell, bytes]] = []
        after = None
        while True:
            page = tx.page(table, limit=limit, after=after)
            seen += page.items
            after = page.resume
            if after is None:
                break
        assert [cell for cell, _ in seen] == sorted(cell for cell, _ in seen)
        assert len(seen) == len(dict(seen)) == 15
        assert {cell for cell, value in seen if value == b"own"} == {(b"r0", b"a"), (b"r2", b"c2"), (b"r9", b"z")}

    def test_a_long_scan_is_fetched_page_by_page(self, store: Store, table: TableRef, clock: ManualClock) -> None:
        manager = TransactionManager(store, Settings(scan_page_cells=7), clock=clock, renew_leases=False)
        cells = {Cell(b"%04d" % n, C): b"v" for n in range(100)}
        with manager.transaction() as tx:
            tx.put_many(table, cells)
        assert dict(manager.transaction().scan(table)) == cells


class TestConflicts:
    def test_the_second_to_commit_of_two_writers_of_a_cell_loses(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        first, second = manager.transaction(), manager.transaction()
        first.put(table, R, C, b"first")
        second.put(table, R, C, b"second")
        second.commit()
        with pytest.raises(WriteConflict) as lost:
            first.commit()
        assert lost.value.table == table
        assert manager.transaction().get(table, R, C) == b"second"
        assert store.timestamps(table, [Cell(R, C)]) == {Cell(R, C): [second.start]}, "the loser took its value back"

    def test_a_delete_conflicts_like_a_write(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"v")
        first, second = manager.transaction(), manager.transaction()
        first.delete(table, R, C)
        second.put(table, R, C, b"w")
        first.commit()
        with pytest.raises(WriteConflict):
            second.commit()

    def test_writers_of_different_cells_do_not_conflict(self, manager: TransactionManager, table: TableRef) -> None:
        first, second = manager.transaction(), manager.transaction()
        first.put(table, R, b"a", b"v")
        second.put(table, R, b"b", b"v")
        first.commit()
        second.commit()
        assert len(list(manager.transaction().scan(table))) == 2

    def test_an_aborted_writer_is_no_conflict(self, manager: TransactionManager, table: TableRef) -> None:
        first, second, third = (manager.transaction() for _ in range(3))
        for tx in (first, second, third):
            tx.put(table, R, C, b"%d" % tx.start)
        second.commit()
        with pytest.raises(WriteConflict):
            third.commit()
        with pytest.raises(WriteConflict):
            first.commit()

    def test_a_table_may_ask_for_no_conflict_checks(self, manager: TransactionManager, store: Store) -> None:
        free = TableRef.parse("app.free")
        store.create_table(free, TableMetadata(conflicts=ConflictHandling.NONE))
        first, second = manager.transaction(), manager.transaction()
        first.put(free, R, C, b"first")
        second.put(free, R, C, b"second")
        second.commit()
        first.commit()
        assert manager.transaction().get(free, R, C) == b"second", "the greater start is the newer version"

    def test_the_retry_helper_runs_the_work_again(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"0")
        attempts = 0

        def increment(tx: Transaction) -> int:
            nonlocal attempts
            attempts += 1
            value = int(tx.get(table, R, C) or b"0")
            if attempts == 1:
                write(manager, table, b"41")
            tx.put(table, R, C, b"%d" % (value + 1))
            return value + 1

        assert manager.run(increment) == 42
        assert attempts == 2
        assert manager.transaction().get(table, R, C) == b"42"

    def test_the_retry_helper_gives_up_in_the_end(self, manager: TransactionManager, table: TableRef) -> None:
        attempts = 0

        def always_late(tx: Transaction) -> None:
            nonlocal attempts
            attempts += 1
            tx.put(table, R, C, b"v")
            write(manager, table, b"w")

        with pytest.raises(WriteConflict):
            manager.run(always_late, attempts=3)
        assert attempts == 3

    def test_the_retry_helper_repeats_nothing_that_cannot_help(
        self, manager: TransactionManager, table: TableRef
    ) -> None:
        attempts = 0

        def hopeless(tx: Transaction) -> None:
            nonlocal attempts
            attempts += 1
            tx.put(table, R, C, b"")

        with pytest.raises(BadValue):
            manager.run(hopeless)
        assert attempts == 1


class TestReadOnly:
    def test_it_reads_conservative_tables_without_a_lease(self, manager: TransactionManager, table: TableRef) -> None:
        write(manager, table, b"v")
        with manager.transaction(read_only=True) as tx:
            assert manager.leases.open() == []
            assert tx.get(table, R, C) == b"v"
            assert [value for _, value in tx.scan(table)] == [b"v"]

    def test_it_writes_nothing(self, manager: TransactionManager, table: TableRef) -> None:
        tx = manager.transaction(read_only=True)
        with pytest.raises(TransactionError, check=having(code="bad_value")) as refused:
            tx.put(table, R, C, b"v")
        assert refused.value.reason == "write"

    def test_it_is_refused_on_a_thorough_table(self, manager: TransactionManager, thorough: TableRef) -> None:
        tx = manager.transaction(read_only=True)
        with pytest.raises(TransactionError, check=having(code="bad_value")) as refused:
            tx.get(thorough, R, C)
        assert (refused.value.reason, refused.value.table) == ("thorough", thorough)
        with pytest.raises(TransactionError, check=having(code="bad_value")):
            list(tx.scan(thorough))

    def test_a_swept_snapshot_fails_instead_of_returning_wrong_data(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        old = write(manager, table, b"old")
        reader = manager.transaction(read_only=True)
        new = write(manager, table, b"new")
        assert reader.get(table, R, C) == b"old"
        assert new.commit_ts is not None
        Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, new.commit_ts + 1)
        store.add_sentinels(table, [Cell(R, C)])
        store.delete_ranges(table, [VersionRange(Cell(R, C), 0, new.start)])
        for read in (lambda: reader.get(table, R, C), lambda: reader.page(table)):
            with pytest.raises(SnapshotSwept) as failed:
                read()
            assert (failed.value.threshold, failed.value.at) == (new.commit_ts + 1, reader.start)
        assert old.start not in store.timestamps(table, [Cell(R, C)])[Cell(R, C)]

    def test_at_or_above_the_threshold_a_lone_sentinel_reads_as_nothing(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        store.add_sentinels(table, [Cell(R, C)])
        tx = manager.transaction(read_only=True)
        Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, tx.start)
        assert tx.get(table, R, C) is None
        assert list(tx.scan(table)) == []


class TestReadingAtATimestamp:
    def test_each_timestamp_shows_what_was_committed_before_it(
        self, manager: TransactionManager, table: TableRef
    ) -> None:
        first, second = write(manager, table, b"1"), write(manager, table, b"2")
        assert first.commit_ts is not None
        assert second.commit_ts is not None
        shown = {ts: manager.read_at(ts).get(table, R, C) for ts in range(1, second.commit_ts + 1)}
        assert all(shown[ts] is None for ts in range(1, first.commit_ts + 1))
        assert all(shown[ts] == b"1" for ts in range(first.commit_ts + 1, second.commit_ts + 1))
        assert manager.read_at(manager.timestamps.fresh()).get(table, R, C) == b"2"

    def test_a_thorough_table_can_be_read_where_it_is_not_swept(
        self, manager: TransactionManager, thorough: TableRef, store: Store
    ) -> None:
        tx = write(manager, thorough, b"v")
        now = manager.timestamps.fresh()
        assert manager.read_at(now).get(thorough, R, C) == b"v"
        Thresholds(store).raise_strategy(SweepStrategy.THOROUGH, now)
        assert manager.read_at(now).get(thorough, R, C) == b"v"
        with pytest.raises(SnapshotSwept):
            manager.read_at(tx.start).get(thorough, R, C)

    def test_the_future_cannot_be_read(self, manager: TransactionManager) -> None:
        last = manager.timestamps.fresh()
        with pytest.raises(BadValue) as refused:
            manager.read_at(last + 1)
        assert (refused.value.field, refused.value.reason) == ("timestamp", "in_the_future")
        assert str(last) in str(refused.value)

    def test_a_negative_timestamp_cannot_be_read(self, manager: TransactionManager) -> None:
        with pytest.raises(BadValue) as refused:
            manager.read_at(-1)
        assert (refused.value.field, refused.value.reason) == ("timestamp", "out_of_range")


class TestChecksBeforeCommit:
    def test_a_transaction_that_a_sweep_has_passed_never_commits(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, tx.start + 1)
        with pytest.raises(TransactionAborted) as aborted:
            tx.commit()
        assert aborted.value.reason == "swept"
        assert (aborted.value.threshold, aborted.value.start) == (tx.start + 1, tx.start)
        assert store.scan_versions(table).items == []

    def test_the_threshold_itself_is_not_past_it(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, tx.start)
        assert tx.commit()

    def test_a_sweep_of_another_strategy_does_not_matter(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        Thresholds(store).raise_strategy(SweepStrategy.THOROUGH, tx.start + 10)
        assert tx.commit()

    def test_a_strategy_that_changed_meanwhile_aborts(
        self, manager: TransactionManager, table: TableRef, store: Store
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        metadata = store.tables([table])[table]
        store.alter_table(table, metadata, metadata.with_strategy(SweepStrategy.THOROUGH))
        with pytest.raises(TransactionAborted) as aborted:
            tx.commit()
        assert (aborted.value.reason, aborted.value.table) == ("strategy_changed", table)
        assert store.scan_versions(table).items == []

    def test_a_table_dropped_meanwhile_aborts(self, manager: TransactionManager, table: TableRef, store: Store) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        Catalog(store).drop(table, force=True)
        with pytest.raises(UnknownTable) as unknown:
            tx.commit()
        assert unknown.value.table == table

    def test_a_lease_that_ran_out_aborts_before_anything_is_written(
        self, manager: TransactionManager, table: TableRef, store: Store, clock: ManualClock
    ) -> None:
        tx = manager.transaction()
        tx.put(table, R, C, b"v")
        clock.advance(61)
        with pytest.raises(TransactionAborted, check=having(reason="lease_lost")):
            tx.commit()
        assert store.scan_versions(table).items == []
