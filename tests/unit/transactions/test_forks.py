"""A forked child: the parent's transactions are not its own, and the parent's threads hold no lock in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import KeptStores
from sweep_tasks.coordination.leases import LeaseKeeper, Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import TransactionError
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.processes import generation
from sweep_tasks.protection.catalog import ProtectionCatalog, Tracker
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.transactions import Transaction, TransactionManager
from tests.support.errors import having
from tests.support.forks import in_child

ROW, COLUMN = b"r", b"c"
USES: dict[str, Callable[[Transaction, TableRef], object]] = {
    "get": lambda tx, table: tx.get(table, ROW, COLUMN),
    "scan": lambda tx, table: list(tx.scan(table)),
    "put": lambda tx, table: tx.put(table, ROW, COLUMN, b"child"),
    "delete": lambda tx, table: tx.delete(table, ROW, COLUMN),
    "release": lambda tx, _: tx.release("backup"),
    "commit": lambda tx, _: tx.commit(),
    "abort": lambda tx, _: tx.abort(),
}


@pytest.mark.parametrize("use", USES)
def test_an_inherited_transaction_is_refused_in_the_child_and_stays_the_parents(
    manager: TransactionManager, store: Store, table: TableRef, use: str
) -> None:
    tx = manager.transaction()
    tx.put(table, ROW, COLUMN, b"parent")

    def refused() -> list[Any]:
        with pytest.raises(TransactionError, check=having(code="failed")) as ended:
            USES[use](tx, table)
        return [ended.value.reason, ended.value.start]

    assert in_child(refused) == ["other_process", tx.start]
    assert tx.lease
    assert [lease.ts for lease in manager.leases.open()] == [tx.lease.ts]
    assert store.timestamps(table, [Cell(ROW, COLUMN)]) == {}
    assert tx.commit()
    assert manager.leases.open() == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_that_leaves_the_block_of_an_inherited_transaction_does_nothing(
    manager: TransactionManager, store: Store, table: TableRef, fails: bool
) -> None:
    tx = manager.transaction()
    tx.put(table, ROW, COLUMN, b"parent")

    def leave() -> bool:
        try:
            with tx:
                if fails:
                    raise ValueError
        except ValueError:
            return True
        return False

    assert in_child(leave) == fails
    assert len(manager.leases.open()) == 1
    assert store.timestamps(table, [Cell(ROW, COLUMN)]) == {}
    with tx:
        pass
    assert manager.transaction(read_only=True).get(table, ROW, COLUMN) == b"parent"


def test_a_child_of_a_child_is_another_process_too() -> None:
    here = generation()
    assert in_child(lambda: [generation(), in_child(generation)]) == [here + 1, here + 2]
    assert generation() == here


def use_tracker(store: MemoryStore) -> tuple[Any, Callable[[], object]]:
    tracker = Tracker(ProtectionCatalog(store, Settings()))
    return tracker._lock, tracker.refresh


def use_keeper(store: MemoryStore) -> tuple[Any, Callable[[], object]]:
    keeper = LeaseKeeper(Leases(store, 60), 20, lambda: None)
    return keeper._changing, lambda: keeper.release(keeper.take(TimestampService(store).fresh()))


def use_kept_stores(_: MemoryStore) -> tuple[Any, Callable[[], object]]:
    kept = KeptStores(1)

    def borrow() -> None:
        with kept.borrow(Settings(store="memory:")):
            pass

    return kept._lock, borrow


LOCKS: dict[str, Callable[[MemoryStore], tuple[Any, Callable[[], object]]]] = {
    "timestamps": lambda store: ((service := TimestampService(store))._sending, service.fresh),
    "asking for timestamps": lambda store: ((service := TimestampService(store))._queueing, service.fresh),
    "leases": use_keeper,
    "protections": use_tracker,
    "kept stores": use_kept_stores,
    "memory": lambda store: (store._lock, store.tables),
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_holds_at_the_fork_does_not_block_the_child(memory: MemoryStore, name: str) -> None:
    lock, use = LOCKS[name](memory)
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: bool(use()) or True)
    finally:
        forked.set()
        thread.join()
    use()


def test_a_child_does_not_wait_for_records_that_a_thread_of_its_parent_is_reading(memory: MemoryStore) -> None:
    asked, forked = threading.Event(), threading.Event()

    class Slow(ProtectionCatalog):
        def metadata(self) -> Any:
            if threading.current_thread() is thread:
                asked.set()
                forked.wait()
            return super().metadata()

    tracker = Tracker(Slow(memory, Settings()))
    thread = threading.Thread(target=tracker.refresh)
    thread.start()
    asked.wait()
    try:
        assert in_child(lambda: list(tracker.refresh().records)) == []
    finally:
        forked.set()
        thread.join()


def test_a_manager_that_was_closed_is_closed_in_the_child(memory: MemoryStore) -> None:
    keeper = LeaseKeeper(Leases(memory, 60), 20, lambda: None)
    keeper.close()
    assert in_child(lambda: keeper._closed.is_set())
