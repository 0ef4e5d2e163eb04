"""A real Cassandra of one node, and one of three, each started once and only if a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place, empty
from tests.spark.conftest import spark
from tests.support.cassandra import cassandra_cluster, three_nodes

__all__ = ["cassandra_cluster", "spark", "three_nodes"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on three nodes come last, in their random order: nodes that nobody uses still take time from the others."""
    items.sort(key=lambda item: "three_nodes" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def place(cassandra_cluster: LocalCluster) -> Place:
    """A keyspace on one node, which most tests share."""
    return Place(cassandra_cluster, "tests")


@pytest.fixture(scope="session")
def kept_open(place: Place) -> Iterator[CassandraStore]:
    with place.opened() as store:
        yield store


@pytest.fixture
def cassandra(kept_open: CassandraStore) -> CassandraStore:
    """Empty; opened once for all tests, since that takes longer than most of them."""
    empty(kept_open)
    return kept_open
