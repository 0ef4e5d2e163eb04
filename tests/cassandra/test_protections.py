"""Protections on a real Cassandra: many owners at once, and what a sweep leaves of a protected cell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place

TABLE = TableRef.parse("app.items")


def record(name: str, ts: int = 1_000_000) -> Record:
    return Record(name, ts, Mode.AT, (Target(TABLE),))


def test_sixty_four_owners_at_once_lose_no_record_and_no_count(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))

    def own(number: int) -> None:
        catalog = ProtectionCatalog(stores[number % 4])
        assert catalog.protect(record(f"p{number}")).accepted
        if number % 2:
            catalog.release(f"p{number}")

    with place.opened() as second, place.opened() as third, place.opened() as fourth, ThreadPoolExecutor(64) as pool:
        stores = (cassandra, second, third, fourth)
        list(pool.map(own, range(64)))
    meta, kept = ProtectionCatalog(cassandra).state()
    assert sorted(each.id for each in kept) == sorted(f"p{number}" for number in range(0, 64, 2))
    assert {each.state for each in kept} == {State.ACCEPTED}
    assert meta == (64 * 2 + 32, 32, 32)


def test_a_protection_in_a_transaction_exists_only_if_it_commits(cassandra: CassandraStore) -> None:
    cassandra.create_table(TABLE, TableMetadata())
    catalog = ProtectionCatalog(cassandra)
    with TransactionManager(cassandra, Settings()) as manager:
        with manager.transaction() as tx:
            tx.put(TABLE, b"r", b"c", b"v")
            tx.protect(TABLE, id="kept", ts=1_000_000)
        lost = manager.transaction()
        lost.protect(TABLE, id="lost", ts=1_000_000)
        lost.abort()
        assert [(each.id, each.state) for each in catalog.records()] == [("kept", State.ACCEPTED)]
        with manager.transaction() as tx:
            tx.release("kept")
    assert catalog.records() == []
