"""A real Cassandra for tests, started once for the session: import the fixture you need into your conftest.

A test is skipped only where Cassandra can't be had at all, and the reason says how to change that; in CI it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.errors import JarsMissing, JavaMissing


@pytest.fixture(scope="session")
def cassandra_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node. Tests share it, so each makes a keyspace of its own."""
    yield from _started(LocalCluster(tmp_path_factory.mktemp("cassandra"), dies_with_parent=True))


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes. A test that kills or pauses one brings it back."""
    yield from _started(LocalCluster(tmp_path_factory.mktemp("cassandra-of-three"), 3, dies_with_parent=True))


def _started(cluster: LocalCluster) -> Iterator[LocalCluster]:
    try:
        cluster.start()
    except (JavaMissing, JarsMissing) as problem:
        pytest.skip(f"NO CASSANDRA, so this was not tested: {problem}")
    try:
        yield cluster
    finally:
        cluster.stop(remove=True)
