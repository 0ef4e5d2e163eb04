"""A real Cassandra of one node, one of three and one of two datacenters, each started only if a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place, empty, session_of
from tests.cassandra.secured import SecuredNode, secured_node
from tests.spark.conftest import spark
from tests.support.cassandra import cassandra_cluster, three_nodes, two_datacenters

__all__ = ["cassandra_cluster", "spark", "three_nodes", "two_datacenters"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on several nodes come last, those on three after those on two, in their random order: nodes that no test
    uses still take time from the others. Tests that do without the keyspace most others share come first: some of them
    restart its node, and it does not survive that."""

    def group(item: pytest.Item) -> int:
        asked_for = getattr(item, "fixturenames", ())
        several = 3 if "three_nodes" in asked_for else 2 if "two_datacenters" in asked_for else 1
        return several if several > 1 or "place" in asked_for else 0

    items.sort(key=group)


@pytest.fixture(scope="session")
def place(cassandra_cluster: LocalCluster) -> Place:
    """A keyspace on one node, which most tests share. It is emptied for each of them, so nothing of it has to survive
    a restart, and a truncation need not write to disk first what it then removes."""
    place = Place(cassandra_cluster, "tests")
    with place.opened() as store:
        session_of(store).execute(f"ALTER KEYSPACE {place.keyspace} WITH durable_writes = false")
    return place


@pytest.fixture(scope="session")
def kept_open(place: Place) -> Iterator[CassandraStore]:
    with place.opened() as store:
        yield store


@pytest.fixture
def cassandra(kept_open: CassandraStore) -> CassandraStore:
    """Empty; opened once for all tests, since that takes longer than most of them."""
    empty(kept_open)
    return kept_open


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    """One node for all tests of logins, encryption and rights: starting it takes longer than most of them."""
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        yield node
