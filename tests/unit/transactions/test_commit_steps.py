"""The commit, stopped, crashed or unanswered between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import (
    CommitUnknown,
    OutcomeUnknown,
    StoreUnavailable,
    SweepflowError,
    TransactionAborted,
    TransactionError,
    WriteConflict,
)
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, fail, lose_answer, on, tear
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.transactions import TransactionManager
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.simulation import Process

TABLE = TableRef.parse("app.items")
R, C = b"row", b"col"
CELL = Cell(R, C)


@pytest.fixture
def shared(memory: MemoryStore) -> MemoryStore:
    memory.create_table(TABLE, TableMetadata())
    return memory


def manager_of(store: Store, clock: ManualClock) -> TransactionManager:
    return TransactionManager(store, enqueue=False, clock=clock, renew_leases=False)


def writer(clock: ManualClock, value: bytes = b"v") -> Callable[[Store], int]:
    def work(store: Store) -> int:
        with manager_of(store, clock).transaction() as tx:
            tx.put_many(TABLE, {CELL: value, Cell(R, b"second"): value})
        assert tx.commit_ts is not None
        return tx.commit_ts

    return work


def read(store: Store, clock: ManualClock) -> bytes | None:
    return manager_of(store, clock).transaction().get(TABLE, R, C)


def number_of_calls() -> int:
    clock = ManualClock()
    counted = FaultyStore(memory_with_table(clock))
    writer(clock)(counted)
    return counted.calls


def memory_with_table(clock: ManualClock) -> MemoryStore:
    memory = memory_store(clock)
    memory.create_table(TABLE, TableMetadata())
    return memory


class TestADeadWriter:
    @pytest.mark.parametrize("after", [False, True])
    def test_after_a_crash_at_any_step_all_or_nothing_is_visible(self, after: bool) -> None:
        outcomes = set()
        for calls in range(1, number_of_calls() + 1):
            clock = ManualClock()
            shared = memory_with_table(clock)
            process = Process(shared, writer(clock))
            for _ in range(calls):
                process.step()
            (process.crash_after_call if after else process.crash_here)()
            clock.advance(61)
            tx = manager_of(shared, clock).transaction()
            seen = tx.get_many(TABLE, [CELL, Cell(R, b"second")])
            assert len(seen) in (0, 2), f"torn after {calls} calls"
            outcomes.add(len(seen))
            if not seen:
                assert writer(clock, b"next")(shared), "a crashed writer blocks no other"
        assert outcomes == {0, 2}

    def test_a_reader_rolls_it_back_for_good(self, shared: MemoryStore, clock: ManualClock) -> None:
        process = Process(shared, writer(clock))
        process.step_to("put_if_absent")
        process.step_to("put_if_absent")
        assert shared.timestamps(TABLE, [CELL]), "its values are there, its commit is not"
        clock.advance(61)
        assert read(shared, clock) is None
        with pytest.raises(TransactionAborted) as aborted:
            process.finish()
        assert aborted.value.reason == "rolled_back"
        assert shared.timestamps(TABLE, [CELL]) == {}


class TestALiveWriter:
    def test_a_reader_waits_for_it(self, shared: MemoryStore, clock: ManualClock) -> None:
        process = Process(shared, writer(clock))
        process.step_to("put_if_absent")
        process.step_to("put_if_absent")
        reader = manager_of(shared, clock).transaction()
        waits = 0

        def meanwhile() -> None:
            nonlocal waits
            waits += 1
            if waits == 3:
                process.finish()

        clock.while_sleeping = meanwhile
        assert reader.get(TABLE, R, C) == b"v", "its commit timestamp was taken before the reader began"
        assert waits == 3

    def test_a_reader_that_began_earlier_does_not_see_what_it_waited_for(
        self, shared: MemoryStore, clock: ManualClock
    ) -> None:
        process = Process(shared, writer(clock))
        process.step_to("put")
        process.step()
        reader = manager_of(shared, clock).transaction()
        clock.while_sleeping = process.run_to_end
        assert reader.get(TABLE, R, C) is None

    def test_a_reader_stops_waiting_after_a_time_limit(self, shared: MemoryStore, clock: ManualClock) -> None:
        process = Process(shared, writer(clock))
        process.step_to("put_if_absent")
        process.step_to("put_if_absent")
        manager = manager_of(shared, clock)
        reader = manager.transaction()

        def keep_alive() -> None:
            (lease,) = (lease for lease in manager.leases.open() if lease.start)
            assert manager.leases.renew(lease)

        clock.while_sleeping = keep_alive
        began_ms = clock.now_ms()
        with pytest.raises(TransactionError, check=having(code="unavailable", retryable=True)):
            reader.get(TABLE, R, C)
        assert 60_000 <= clock.now_ms() - began_ms <= 61_000
        assert process.finish(), "the live writer was not rolled back"


class TestTwoConcurrentWriters:
    def test_in_every_interleaving_at_most_one_commits_and_its_value_is_read(self) -> None:
        """Every point at which one may stop while the other runs through."""
        committed = set()
        for calls in range(1, number_of_calls() + 1):
            clock = ManualClock()
            shared = memory_with_table(clock)
            one, other = Process(shared, writer(clock, b"one")), Process(shared, writer(clock, b"other"))
            other.step()
            for _ in range(calls):
                one.step()
            clock.while_sleeping = one.run_to_end if not one.ended else None
            other.run_to_end()
            clock.while_sleeping = None
            one.run_to_end()
            winners = [process.result for process in (one, other) if process.result]
            losers = [process.error for process in (one, other) if process.error]
            assert all(isinstance(error, WriteConflict) for error in losers), losers
            assert winners, "one of them must win"
            value = read(shared, clock)
            committed.add((bool(one.result), bool(other.result), value))
            assert value == (b"other" if other.result and (not one.result or other.result > one.result) else b"one")
        assert (True, False, b"one") in committed
        assert (False, True, b"other") in committed


class TestASweepPublishes:
    def test_between_the_checks_the_writer_aborts_and_undoes_everything(
        self, shared: MemoryStore, clock: ManualClock
    ) -> None:
        for stop in ("put", "newest"):
            process = Process(shared, writer(clock))
            process.step_to(stop)
            greatest = manager_of(shared, clock).timestamps.greatest()
            Thresholds(shared).raise_strategy(SweepStrategy.CONSERVATIVE, greatest + 1)
            with pytest.raises(TransactionAborted) as aborted:
                process.finish()
            assert aborted.value.reason == "swept"
            assert shared.scan_versions(TABLE).items == []


class TestTheDecidingStep:
    def run(self, shared: Store, clock: ManualClock, before: object = None, after: object = None) -> SweepflowError:
        store = FaultyStore(shared)
        tx = manager_of(store, clock).transaction()
        tx.put(TABLE, R, C, b"v")
        store.before = before  # type: ignore[assignment]
        store.after = after  # type: ignore[assignment]
        with pytest.raises(SweepflowError) as caught:
            tx.commit()
        return caught.value

    def test_a_lost_answer_is_settled_by_asking_again(self, shared: MemoryStore, clock: ManualClock) -> None:
        store = FaultyStore(shared)
        tx = manager_of(store, clock).transaction()
        tx.put(TABLE, R, C, b"v")
        store.after = on("put_if_absent", 1, lose_answer)
        assert tx.commit()
        assert read(shared, clock) == b"v"

    def test_a_refused_step_is_settled_as_aborted(self, shared: MemoryStore, clock: ManualClock) -> None:
        error = self.run(shared, clock, before=on("put_if_absent", 1, fail))
        assert isinstance(error, TransactionAborted)
        assert shared.scan_versions(TABLE).items == []

    def test_without_any_answer_nothing_is_claimed_and_nothing_removed(
        self, shared: MemoryStore, clock: ManualClock
    ) -> None:
        def silent(call: StoreCall) -> None:
            if call.name == "put_if_absent":
                lose_answer(call)

        error = self.run(shared, clock, after=silent)
        assert isinstance(error, CommitUnknown)
        assert not error.retryable, "running it again could do it twice"
        assert read(shared, clock) == b"v", "it had been committed"

    @pytest.mark.parametrize("step", ["put", "newest", "update"])
    def test_a_step_before_it_that_fails_aborts_cleanly(
        self, shared: MemoryStore, clock: ManualClock, step: str
    ) -> None:
        error = self.run(shared, clock, before=on(step, 1, fail))
        assert isinstance(error, StoreUnavailable)
        assert shared.scan_versions(TABLE).items == []
        assert read(shared, clock) is None

    def test_a_partial_write_of_the_values_is_rolled_back(self, shared: MemoryStore, clock: ManualClock) -> None:
        error = self.run(shared, clock, before=on("put", 1, tear(1)))
        assert isinstance(error, OutcomeUnknown)
        assert shared.scan_versions(TABLE).items == []

    def test_a_failed_clean_up_leaves_garbage_and_no_wrong_read(self, shared: MemoryStore, clock: ManualClock) -> None:
        def no_deletes(call: StoreCall) -> None:
            if call.name == "delete_versions":
                fail(call)

        other = manager_of(shared, clock).transaction()
        other.put(TABLE, R, C, b"other")
        store = FaultyStore(shared, before=no_deletes)
        tx = manager_of(store, clock).transaction()
        tx.put(TABLE, R, C, b"v")
        other.commit()
        with pytest.raises(WriteConflict):
            tx.commit()
        assert len(shared.scan_versions(TABLE).items) == 2
        assert read(shared, clock) == b"other"


class TestAnnouncingWrites:
    """The order around the queue, which the commit is handed and does not know."""

    def test_entries_are_written_before_the_check_and_removed_after_the_values(
        self, shared: MemoryStore, clock: ManualClock
    ) -> None:
        journal: list[str] = []

        class Journal:
            def enqueue(self, *_: object) -> None:
                journal.append("enqueue")

            def withdraw(self, *_: object) -> None:
                journal.append("withdraw")

        store = FaultyStore(shared, before=lambda call: journal.append(call.name))
        manager = TransactionManager(store, queue=Journal(), clock=clock, renew_leases=False)
        tx = manager.transaction()
        tx.put(TABLE, R, C, b"v")
        journal.clear()
        tx.commit()
        assert journal == [
            "compare_and_set",  # the lease is stamped
            "enqueue",
            "tables", "read",  # look
            "put",
            "newest", "newest",  # look for others
            "update",  # commit timestamp
            "tables", "read",  # look again
            "put_if_absent",  # decide
            "remove",  # the lease is given back
        ]  # fmt: skip
        loser = manager.transaction()
        loser.put(TABLE, R, C, b"v")
        Thresholds(shared).raise_strategy(SweepStrategy.CONSERVATIVE, loser.start + 1)
        journal.clear()
        with pytest.raises(TransactionAborted):
            loser.commit()
        assert journal[journal.index("put_if_absent") :] == [
            "put_if_absent", "tables", "delete_versions", "withdraw", "remove",
        ]  # fmt: skip
