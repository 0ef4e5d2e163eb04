"""Making a keyspace a store: explicit, once, by as many at a time as like to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import BadValue, NotInitialised, OtherSchema, SnapshotSwept, StoreError, StoreUnavailable
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, TableMetadata, TableRef, TableState, Version
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.catalog import CATALOG, CassandraCatalog, physical_name
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.registers import Registers
from sweep_tasks.store.cassandra.schema import initialise
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.schema import MARKS_MOVE_AT, STEPS, SYSTEM_TABLES, THRESHOLDS, old_mark
from sweep_tasks.tables.catalog import Catalog as Tables
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place, full_name, session_of
from tests.support.errors import having
from tests.support.simulation import Process

SETTINGS = Settings()


@pytest.fixture
def keyspace(place: Place, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a keyspace that is not there."""
    name = f"schema_{abs(hash(request.node.name)) % 10**8}"
    yield place.cluster.url(name)
    with place.opened() as store:
        session_of(store).execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


def test_opening_creates_nothing(keyspace: str) -> None:
    with pytest.raises(NotInitialised) as refused:
        open_store(keyspace, SETTINGS)
    assert refused.value.where == keyspace


def test_concurrent_initialisations_create_one_store(keyspace: str) -> None:
    command = [str(Path(sys.executable).parent / "sweepflow"), "init", "--json", "--store", keyspace]
    running = [Popen(command, stdout=PIPE, stderr=PIPE, text=True) for _ in range(3)]
    ended = [(*process.communicate(timeout=240), process.returncode) for process in running]
    assert [code for *_, code in ended] == [0, 0, 0], ended
    assert sum('"created": true' in out for out, *_ in ended) == 1, ended
    with open_store(keyspace, SETTINGS) as store:
        assert set(store.tables()) == set(SYSTEM_TABLES)
        assert not initialise_store(keyspace, SETTINGS)


def test_a_store_of_another_version_is_not_opened(keyspace: str, place: Place) -> None:
    address = CassandraAddress.parse(keyspace.removeprefix("cassandra:"))
    assert initialise(address, SETTINGS, STEPS[:2])
    with pytest.raises(OtherSchema, check=having(is_older=True)) as older:
        open_store(keyspace, SETTINGS)
    assert (older.value.where, older.value.found, older.value.known) == (keyspace, 2, len(STEPS))
    assert not initialise_store(keyspace, SETTINGS), "migrated, not created"
    with open_store(keyspace, SETTINGS) as store:
        assert set(store.tables()) == set(SYSTEM_TABLES)
    initialise(address, SETTINGS, [*STEPS, {TableRef("", "_later"): TableMetadata()}])
    for use in (open_store, initialise_store):
        with pytest.raises(OtherSchema, check=having(is_older=False)) as newer:
            use(keyspace, SETTINGS)
        assert (newer.value.found, newer.value.known) == (len(STEPS) + 1, len(STEPS))


def test_marks_of_an_older_store_move_into_the_catalog(keyspace: str) -> None:
    """They were stored with the thresholds; a dropped table kept a row without metadata."""
    address = CassandraAddress.parse(keyspace.removeprefix("cassandra:"))
    initialise(address, SETTINGS, STEPS[:MARKS_MOVE_AT])
    kept, dropped = TableRef.parse("app.kept"), TableRef.parse("app.dropped")
    connection = Connection(address, SETTINGS)
    try:
        catalog = CassandraCatalog(connection, SETTINGS.cassandra_gc_grace_s)
        for table in (kept, dropped):
            catalog.add(table, TableMetadata(), None)
        marks = {old_mark(kept): var_long(70), old_mark(dropped): var_long(80)}
        Registers(connection).put_if_absent(catalog.in_use(THRESHOLDS)[1], marks, None)
        row = "SET metadata = null WHERE scope = 'tables' AND name = %s IF EXISTS"
        connection.session.execute(f'UPDATE {address.keyspace}."{CATALOG}" {row}', (str(dropped),))
    finally:
        connection.close()
    initialise_store(keyspace, SETTINGS)
    with open_store(keyspace, SETTINGS) as store:
        found = store.catalog_rows([kept, dropped])
        assert found[kept] == TableMetadata(mark=70)
        assert (found[dropped].state, found[dropped].mark) == (TableState.GONE, 80)
        Tables(store).create(dropped, TableMetadata())
        assert store.tables([dropped])[dropped].incarnation == 2
        assert store.scan_versions(dropped).items == []


def test_a_dropped_table_that_is_not_removed_yet_is_neither_read_nor_written(
    place: Place, cassandra: CassandraStore
) -> None:
    """A client with the cached name of the old table gets no error, because Cassandra still has that table."""
    table, cell = TableRef.parse("app.replaced"), Cell(b"r", b"c")
    here = TransactionManager(cassandra, SETTINGS, renew_leases=False)
    with place.opened() as other:
        Tables(other).create(table, TableMetadata())
        with here.transaction() as tx:
            tx.put(table, *cell, b"old")
        before = here.transaction()
        assert before.get(table, *cell) == b"old"
        drop = Process(other, lambda store: Tables(store).drop(table))
        drop.step_to("remove_table")
        Tables(other).create(table, TableMetadata())
        there = TransactionManager(other, SETTINGS, renew_leases=False)
        with there.transaction() as tx:
            tx.put(table, *cell, b"new")
        assert here.transaction().get(table, *cell) == b"new"
        with pytest.raises(SnapshotSwept):
            before.get(table, *cell)
        drop.finish()
        assert here.transaction().get(table, *cell) == b"new"
        before.abort()


def test_a_snapshot_does_not_take_what_an_earlier_incarnation_holds_for_its_own(
    place: Place, cassandra: CassandraStore
) -> None:
    """A create that was slow, and lost, has created the physical table of the first incarnation again. To a client that
    has cached its name, the table looks empty."""
    table, cell = TableRef.parse("app.revived"), Cell(b"r", b"c")
    here = TransactionManager(cassandra, SETTINGS, renew_leases=False)
    with place.opened() as other:
        Tables(other).create(table, TableMetadata())
        assert here.transaction().get(table, *cell) is None
        Tables(other).drop(table)
        Tables(other).create(table, TableMetadata())
        there = TransactionManager(other, SETTINGS, renew_leases=False)
        with there.transaction() as tx:
            tx.put(table, *cell, b"new")
        other.catalog._define(table, physical_name(table, 1), TableMetadata())
        snapshot = here.read_at(there.timestamps.fresh())
        assert cassandra.incarnation_in_use(table) == 1
        assert snapshot.get(table, *cell) == b"new"
        assert cassandra.incarnation_in_use(table) == 2


def test_a_keyspace_of_another_program_is_left_alone(keyspace: str, place: Place) -> None:
    name = keyspace.rpartition("/")[2].partition("?")[0]
    with place.opened() as store:
        session_of(store).execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session_of(store).execute(f"CREATE TABLE {name}.theirs (key int PRIMARY KEY)")
    with pytest.raises(StoreError):
        initialise_store(keyspace, SETTINGS)


def test_more_replicas_than_nodes_are_refused(place: Place) -> None:
    with pytest.raises(BadValue) as refused:
        initialise_store(place.cluster.url("toomany").replace("replication=1", "replication=3"), SETTINGS)
    assert (refused.value.field, "?replication=1" in str(refused.value)) == ("setting cassandra_replication", True)


def test_levels_that_may_miss_a_write_are_refused(place: Place, cassandra: CassandraStore) -> None:
    session = session_of(cassandra)
    change = (
        f"ALTER KEYSPACE {place.keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': %s}}"
    )
    session.execute(change, (3,))
    try:
        settings = place.settings.model_copy(update={"cassandra_read_consistency": "one"})
        with pytest.raises(BadValue) as refused:
            open_store(place.url, settings)
        assert (refused.value.field, refused.value.reason) == ("setting cassandra_read_consistency", "no_overlap")
        assert all(given in str(refused.value) for given in ("'one'", "'quorum'", "3"))
    finally:
        session.execute(change, (1,))


def test_a_missing_cluster_is_named(place: Place) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_store(place.url.replace("127.0.0.1", "127.0.0.77"), SETTINGS)
    assert (refused.value.reason, "127.0.0.77" in str(refused.value)) == ("unreachable", True)


def test_a_table_that_another_process_dropped_and_created_again_is_found(
    place: Place, cassandra: CassandraStore
) -> None:
    table = TableRef.parse("app.items")
    with place.opened() as other:
        other.create_table(table, TableMetadata())
        assert cassandra.scan_versions(table).items == []
        before = full_name(cassandra, table)
        Tables(other).drop(table)
        Tables(other).create(table, TableMetadata())
        assert cassandra.scan_versions(table).items == []
        assert full_name(cassandra, table) != before


def test_tables_with_similar_names_do_not_share_a_table(cassandra: CassandraStore) -> None:
    again = TableRef.stored("ns.a")
    Tables(cassandra).create(again, TableMetadata())
    Tables(cassandra).drop(again)
    tables = [TableRef.stored(name) for name in ("ns.a", "ns.a__2", "ns.a__b", "ns__a.b", "ns.x-y", "plain")]
    cell = Cell(b"r", b"c")
    for number, table in enumerate(tables, start=1):
        Tables(cassandra).create(table, TableMetadata())
        cassandra.put(number, {table: {cell: b"v%d" % number}})
    found = [cassandra.get(table, {cell: 100})[cell] for table in tables]
    assert found == [Version(number, b"v%d" % number) for number in range(1, len(tables) + 1)]
    assert set(tables) <= set(cassandra.tables())


def test_a_local_cluster_says_how_to_reach_it(place: Place) -> None:
    assert isinstance(place.cluster, LocalCluster)
    assert place.url.startswith("cassandra://127.0.0.1:")
