"""Making a keyspace a store: explicit, once, by as many at a time as like to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.errors import BadValue, ForeignStore, NewerSchema, NotInitialised, OlderSchema, StoreUnavailable
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.opening import open_store
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.schema import initialise
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.system import STEPS, SYSTEM_TABLES
from tests.cassandra.places import Place, full_name, session_of

SETTINGS = Settings()


@pytest.fixture
def keyspace(place: Place, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a keyspace that is not there."""
    name = f"schema_{abs(hash(request.node.name)) % 10**8}"
    yield place.cluster.url(name)
    with place.opened() as store:
        session_of(store).execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


def test_nothing_is_made_by_opening(keyspace: str) -> None:
    with pytest.raises(NotInitialised) as refused:
        open_store(keyspace, SETTINGS)
    assert refused.value.where == keyspace


def test_many_at_once_make_one_store(keyspace: str) -> None:
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
    with pytest.raises(OlderSchema) as older:
        open_store(keyspace, SETTINGS)
    assert (older.value.where, older.value.found, older.value.known) == (keyspace, 2, len(STEPS))
    assert not initialise_store(keyspace, SETTINGS), "brought up, not made"
    with open_store(keyspace, SETTINGS) as store:
        assert set(store.tables()) == set(SYSTEM_TABLES)
    initialise(address, SETTINGS, [*STEPS, {TableRef("", "_later"): TableMetadata()}])
    for use in (open_store, initialise_store):
        with pytest.raises(NewerSchema) as newer:
            use(keyspace, SETTINGS)
        assert (newer.value.found, newer.value.known) == (len(STEPS) + 1, len(STEPS))


def test_a_keyspace_of_another_program_is_left_alone(keyspace: str, place: Place) -> None:
    name = keyspace.rpartition("/")[2].partition("?")[0]
    with place.opened() as store:
        session_of(store).execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session_of(store).execute(f"CREATE TABLE {name}.theirs (key int PRIMARY KEY)")
    with pytest.raises(ForeignStore):
        initialise_store(keyspace, SETTINGS)


def test_more_copies_than_nodes_are_refused(place: Place) -> None:
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


def test_a_cluster_that_is_not_there_is_named(place: Place) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_store(place.url.replace("127.0.0.1", "127.0.0.77"), SETTINGS)
    assert (refused.value.reason, "127.0.0.77" in str(refused.value)) == ("unreachable", True)


def test_a_table_that_was_dropped_elsewhere_and_made_anew_is_found(place: Place, cassandra: CassandraStore) -> None:
    table = TableRef.parse("app.items")
    with place.opened() as other:
        other.create_table(table, TableMetadata())
        assert cassandra.scan_versions(table).items == []
        before = full_name(cassandra, table)
        other.drop_table(table)
        other.create_table(table, TableMetadata())
        assert cassandra.scan_versions(table).items == []
        assert full_name(cassandra, table) != before


def test_a_local_cluster_says_how_to_reach_it(place: Place) -> None:
    assert isinstance(place.cluster, LocalCluster)
    assert place.url.startswith("cassandra://127.0.0.1:")
