"""A process forks with a store on Cassandra open: each side has a session of its own and disturbs no other."""

from __future__ import annotations

import os
import threading

from cassandra import cluster as driver

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place, session_of
from tests.support.forks import Family, fork, in_child

TABLE = TableRef.parse("app.items")
A, B = Cell(b"a", b"c"), Cell(b"b", b"c")


def test_a_child_opens_its_own_session_and_the_parent_continues_undisturbed(
    place: Place, cassandra: CassandraStore
) -> None:
    cassandra.create_table(TABLE, TableMetadata())
    manager = TransactionManager(cassandra)
    taken = [manager.timestamps.fresh()]
    existing = cassandra.tables([TABLE])
    over = threading.Event()
    answers: list[bool] = []

    def read_on() -> None:
        while not over.is_set():
            answers.append(cassandra.tables([TABLE]) == existing)

    def work() -> list[int]:
        with manager.transaction() as tx:
            tx.put(TABLE, A.row, A.column, b"child")
        taken_here = [tx.start, tx.commit_ts or 0, manager.timestamps.fresh()]
        driver._shutdown_clusters()  # what the driver does when a process ends
        return taken_here

    before = session_of(cassandra)
    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        for _ in range(2):
            taken += in_child(work)
            with manager.transaction() as tx:
                assert tx.get(TABLE, A.row, A.column) == b"child"
            taken += [tx.start, manager.timestamps.fresh()]
    finally:
        over.set()
        reader.join()
    assert session_of(cassandra) is before
    assert {state["shutdown"] for state in before.get_pool_state().values()} == {False}
    assert answers
    assert all(answers), "an answer to the parent was lost, or read by the child"
    assert taken == sorted(set(taken))
    manager.close()


def test_a_child_continues_when_its_parent_has_closed_the_store_or_died(
    place: Place, cassandra: CassandraStore
) -> None:
    cassandra.create_table(TABLE, TableMetadata())

    def first(family: Family) -> None:
        with place.opened() as store:
            store.put(TimestampService(store).fresh(), {TABLE: {A: b"parent"}})
            fork(lambda: late(family, store))
        family.tell(closed=True)
        os._exit(0)

    def late(family: Family, store: CassandraStore) -> None:
        family.wait_for_release()
        ts = TimestampService(store).fresh()
        store.put(ts, {TABLE: {B: b"child"}})
        family.tell(put=ts)

    with Family().started(first) as family:
        assert family.hear() == {"closed": True}
        family.wait_for_first()
        family.release(1)
        ts = family.hear()["put"]
    assert {cell: version.value for cell, version in cassandra.get(TABLE, {A: ts + 1, B: ts + 1}).items()} == {
        A: b"parent",
        B: b"child",
    }
