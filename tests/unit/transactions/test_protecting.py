"""Protections that a transaction creates and releases: they take effect with its commit, despite crashes."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import AlreadySwept, NotFound, RecordChanged, StoreError, TransactionAborted, TransactionError
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, crash, lose_answer
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.transactions import Transaction, TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable, Writers
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.errors import having

T = TableRef.parse("app.items")
CONSERVATIVE = SweepStrategy.CONSERVATIVE


def record(name: str = "a", ts: int = 1_000) -> Record:
    return Record(name, ts, Mode.AT, (Target(T),))


def protect_in(tx: Transaction, name: str = "a", ts: int = 1_000) -> None:
    assert tx.protect(T, id=name, ts=ts) == name


def manager_on(store: Store, clock: ManualClock) -> TransactionManager:
    return TransactionManager(store, Settings(), clock=clock, renew_leases=False)


def existing(store: Store) -> dict[str, State]:
    return {each.id: each.state for each in ProtectionCatalog(store).records()}


def settle_all(store: Store, clock: ManualClock) -> None:
    catalog = ProtectionCatalog(store)
    writers = Writers(CommitTable(store), Leases(store, 30), clock, 1)
    for each in catalog.records():
        catalog.resolve(each, writers.settle_without_waiting)


@pytest.fixture
def manager(store: Store, clock: ManualClock) -> TransactionManager:
    store.create_table(T, TableMetadata())
    return manager_on(store, clock)


class TestProtecting:
    def test_it_holds_at_once_and_is_accepted_with_the_commit(self, store: Store, manager: TransactionManager) -> None:
        with manager.transaction() as tx:
            tx.put(T, b"r", b"c", b"v")
            protect_in(tx)
            assert existing(store) == {"a": State.PENDING}
        assert existing(store) == {"a": State.ACCEPTED}
        assert manager.protections.get("a").transaction is None

    def test_without_a_write_it_is_a_transaction_too(self, store: Store, manager: TransactionManager) -> None:
        tx = manager.transaction()
        protect_in(tx)
        commit = tx.commit()
        assert CommitTable(store).outcomes([tx.start]) == {tx.start: commit}
        assert existing(store) == {"a": State.ACCEPTED}

    def test_an_abort_takes_it_away(self, store: Store, manager: TransactionManager) -> None:
        tx = manager.transaction()
        protect_in(tx)
        tx.abort()
        assert existing(store) == {}

    def test_what_is_swept_already_is_refused_at_once(self, store: Store, manager: TransactionManager) -> None:
        Thresholds(store).raise_strategy(CONSERVATIVE, 2_000)
        with pytest.raises(AlreadySwept) as refused, manager.transaction() as tx:
            protect_in(tx)
        assert refused.value.earliest == 2_000
        assert existing(store) == {}

    def test_what_was_swept_before_the_commit_aborts_it(self, store: Store, manager: TransactionManager) -> None:
        tx = manager.transaction()
        protect_in(tx, ts=0)
        Thresholds(store).raise_strategy(CONSERVATIVE, 1)
        with pytest.raises(AlreadySwept):
            tx.commit()
        assert existing(store) == {}
        assert CommitTable(store).outcomes([tx.start]) == {tx.start: -1}

    def test_a_transaction_that_was_rolled_back_as_dead_leaves_no_record(
        self, store: Store, manager: TransactionManager
    ) -> None:
        tx = manager.transaction()
        protect_in(tx)
        CommitTable(store).abort([tx.start])
        with pytest.raises(TransactionAborted):
            tx.commit()
        assert existing(store) == {}

    def test_a_read_only_transaction_protects_nothing(self, store: Store, manager: TransactionManager) -> None:
        tx = manager.transaction(read_only=True)
        with pytest.raises(TransactionError, check=having(code="bad_value")):
            protect_in(tx)
        assert existing(store) == {}


class TestReleasing:
    @pytest.fixture(autouse=True)
    def _protected(self, manager: TransactionManager) -> None:
        assert manager.protections.protect(record()).accepted

    def test_it_holds_until_the_commit(self, store: Store, manager: TransactionManager) -> None:
        with manager.transaction() as tx:
            tx.release("a")
            assert existing(store) == {"a": State.ACCEPTED}
        assert existing(store) == {}

    def test_an_abort_leaves_it_as_it_was(self, store: Store, manager: TransactionManager) -> None:
        tx = manager.transaction()
        tx.release("a")
        CommitTable(store).abort([tx.start])
        with pytest.raises(TransactionAborted):
            tx.commit()
        assert manager.protections.get("a").released_by is None

    def test_an_unknown_record_fails_at_the_call(self, manager: TransactionManager) -> None:
        with pytest.raises(NotFound):
            manager.transaction().release("b")

    def test_one_may_be_replaced_by_another(self, store: Store, manager: TransactionManager) -> None:
        with manager.transaction() as tx:
            protect_in(tx, "b", 2_000)
            tx.release("a")
        assert existing(store) == {"b": State.ACCEPTED}

    def test_of_two_transactions_that_release_it_the_second_must_retry(
        self, store: Store, manager: TransactionManager
    ) -> None:
        first, second = manager.transaction(), manager.transaction()
        first.release("a")
        second.release("a")
        manager.protections.announce_release("a", first.start)
        with pytest.raises(RecordChanged):
            second.commit()
        first.commit()
        assert existing(store) == {}

    def test_its_own_record_is_released_at_once(self, store: Store, manager: TransactionManager) -> None:
        with manager.transaction() as tx:
            protect_in(tx, "b")
            tx.release("b")
        assert existing(store) == {"a": State.ACCEPTED}


class TestDying:
    """A process that protects, releases and commits dies before or after each of its calls, or loses the answer."""

    @pytest.mark.parametrize("fault", ["before", "after", "unanswered"])
    def test_after_resolution_all_or_nothing_has_happened(self, fault: str) -> None:
        ends = set()
        for number in range(1, 60):
            clock = ManualClock()
            memory = memory_store(clock)
            memory.create_table(T, TableMetadata())
            assert ProtectionCatalog(memory).protect(record("old")).accepted
            done = self._one_that_dies(memory, clock, fault, number)
            before = existing(memory)
            assert "old" in before or "new" in before, "one of them holds at any time"
            clock.advance(120)
            settle_all(memory, clock)
            ends.add(tuple(existing(memory).items()))
            assert ProtectionCatalog(memory).recount() is False
            if done:
                break
        assert done, "every call was tried"
        assert ends == {(("old", State.ACCEPTED),), (("new", State.ACCEPTED),)}

    @staticmethod
    def _one_that_dies(memory: MemoryStore, clock: ManualClock, fault: str, number: int) -> bool:
        calls = iter(range(1, 1_000))

        def strike(call: object) -> None:
            if next(calls) == number:
                (lose_answer if fault == "unanswered" else crash)(call)  # type: ignore[arg-type]

        dying = FaultyStore(memory, **{"before" if fault == "before" else "after": strike})
        try:
            with manager_on(dying, clock).transaction() as tx:
                tx.put(T, b"r", b"c", b"v")
                protect_in(tx, "new", 2_000)
                tx.release("old")
        except (ProcessCrashed, StoreError):
            return False
        return next(calls) <= number

    def test_a_live_transaction_is_left_alone(self, memory: MemoryStore, clock: ManualClock) -> None:
        memory.create_table(T, TableMetadata())
        tx = manager_on(memory, clock).transaction()
        protect_in(tx)
        settle_all(memory, clock)
        assert existing(memory) == {"a": State.PENDING}
        tx.commit()
        assert existing(memory) == {"a": State.ACCEPTED}
