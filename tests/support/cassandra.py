"""A real Cassandra for tests, started once for the session: import the fixture you need into your conftest.

A test is skipped only where Cassandra can't be installed, and the reason explains how to change that. In CI it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.errors import ProgramMissing
from sweep_tasks.local.cassandra import LocalCluster


@pytest.fixture(scope="session")
def cassandra_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node. Tests share it, so each test creates its own keyspace."""
    yield from _started(LocalCluster(tmp_path_factory.mktemp("cassandra"), dies_with_parent=True))


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes. A test that kills or pauses one brings it back."""
    yield from _started(LocalCluster(tmp_path_factory.mktemp("cassandra-of-three"), 3, dies_with_parent=True))


@pytest.fixture(scope="module")
def two_datacenters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node in each of two datacenters, removed at the end of the module."""
    folder = tmp_path_factory.mktemp("cassandra-of-two")
    yield from _started(LocalCluster(folder, datacenters=["east", "west"], dies_with_parent=True))


def _started(cluster: LocalCluster) -> Iterator[LocalCluster]:
    try:
        cluster.start()
    except ProgramMissing as problem:
        pytest.skip(f"NO CASSANDRA, so this was not tested: {problem}")
    try:
        yield cluster
    finally:
        cluster.stop(remove=True)
