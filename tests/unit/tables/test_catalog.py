from __future__ import annotations

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import AlreadyExists, SnapshotSwept, TransactionAborted, UnknownTable
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.tables.catalog import Catalog, TableCount
from sweep_tasks.transactions import TransactionManager
from tests.support.simulation import Process

T = TableRef.parse("app.items")
R, C = b"r", b"c"
CONSERVATIVE = SweepStrategy.CONSERVATIVE


@pytest.fixture
def catalog(store: Store) -> Catalog:
    created = Catalog(store)
    created.create(T, TableMetadata())
    return created


@pytest.fixture
def manager(store: Store) -> TransactionManager:
    return TransactionManager(store, renew_leases=False)


def write(manager: TransactionManager) -> None:
    with manager.transaction() as tx:
        tx.put(T, R, C, b"v")


def test_only_the_users_tables_are_listed(catalog: Catalog) -> None:
    assert catalog.list() == {T: TableMetadata()}


def test_a_table_is_created_once(catalog: Catalog) -> None:
    with pytest.raises(AlreadyExists) as refused:
        catalog.create(T, TableMetadata(SweepStrategy.THOROUGH))
    assert str(T) in str(refused.value)
    assert catalog.list() == {T: TableMetadata()}


def test_cells_and_versions_are_counted(catalog: Catalog, manager: TransactionManager) -> None:
    for _ in range(3):
        write(manager)
    assert catalog.count(T) == TableCount(cells=1, versions=3)


def test_readers_below_a_truncation_fail_and_later_ones_find_nothing(
    catalog: Catalog, manager: TransactionManager
) -> None:
    write(manager)
    before = manager.transaction()
    catalog.truncate(T)
    with pytest.raises(SnapshotSwept):
        before.get(T, R, C)
    assert manager.transaction().get(T, R, C) is None
    assert catalog.count(T) == TableCount(0, 0)


@pytest.mark.parametrize("what", ["truncate", "drop and create again"])
def test_a_write_that_began_before_does_not_outlive_it(
    catalog: Catalog, manager: TransactionManager, what: str
) -> None:
    tx = manager.transaction()
    tx.put(T, R, C, b"v")
    if what == "truncate":
        catalog.truncate(T)
    else:
        catalog.drop(T)
        catalog.create(T, TableMetadata())
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert catalog.count(T) == TableCount(0, 0)
    write(manager)
    assert manager.transaction().get(T, R, C) == b"v"


def test_what_does_not_exist_cannot_be_removed(catalog: Catalog) -> None:
    nowhere = TableRef.parse("app.nowhere")
    for remove in (catalog.truncate, catalog.drop, catalog.count, catalog.show):
        with pytest.raises(UnknownTable) as unknown:
            remove(nowhere)
        assert unknown.value.table == nowhere


def for_readers(store: Store) -> int:
    return Thresholds(store).of_tables([T])[T].for_readers


def test_with_a_retention_readers_go_by_the_tables_own_threshold(catalog: Catalog, store: Store) -> None:
    Thresholds(store).raise_strategy(CONSERVATIVE, 100)
    catalog.change(T, CONSERVATIVE, 50)
    Thresholds(store).raise_strategy(CONSERVATIVE, 200)
    assert for_readers(store) == 100
    catalog.change(T, CONSERVATIVE, None)
    assert for_readers(store) == 200


def test_a_retention_that_is_removed_and_set_again_is_a_new_one(memory: MemoryStore) -> None:
    """While the table had no retention, a sweep passed the threshold of the first one."""
    catalog = Catalog(memory)
    catalog.create(T, TableMetadata())
    Thresholds(memory).raise_strategy(CONSERVATIVE, 100)
    first = Process(memory, lambda store: Catalog(store).change(T, CONSERVATIVE, 50))
    first.step_to("update")
    first.step_to("alter_table")
    catalog.change(T, CONSERVATIVE, None)
    Thresholds(memory).raise_strategy(CONSERVATIVE, 200)
    again = Process(memory, lambda store: Catalog(store).change(T, CONSERVATIVE, 50))
    again.step_to("update")
    first.step()
    assert for_readers(memory) == 200
    first.finish()
    again.finish()
    assert for_readers(memory) == 200
    Thresholds(memory).raise_strategy(CONSERVATIVE, 300)
    assert for_readers(memory) == 200, "and from now on its own retention applies"


def test_a_change_to_the_current_value_changes_nothing(catalog: Catalog) -> None:
    catalog.change(T, CONSERVATIVE, 50)
    existing = catalog.list()
    catalog.change(T, CONSERVATIVE, 50)
    assert catalog.list() == existing
