"""A real Cassandra of three nodes: they form one cluster, and one that was away is taken back."""

from __future__ import annotations

import pytest

from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.local.cassandra_node import nodes_seen_up, session_with
from tests.support.waiting import eventually


def seen_up_by_each(cluster: LocalCluster) -> list[int]:
    """A node that hears nothing of another for a moment, on a busy machine, takes it for away until it does."""

    def seen() -> list[int]:
        return [nodes_seen_up(host, cluster.port) for host in cluster.hosts]

    eventually(lambda: min(seen()) == cluster.nodes)
    return seen()


def test_every_node_sees_all_three(three_nodes: LocalCluster) -> None:
    assert three_nodes.running == [1, 2, 3]
    assert seen_up_by_each(three_nodes) == [3, 3, 3]


def test_a_node_that_was_killed_is_seen_by_all_when_it_is_back(three_nodes: LocalCluster) -> None:
    three_nodes.kill(1)
    assert three_nodes.running == [2, 3]
    assert [node.state for node in three_nodes.status()] == ["down", "up", "up"]
    three_nodes.restart(1)
    assert seen_up_by_each(three_nodes) == [3, 3, 3]
    assert [node.state for node in three_nodes.status()] == ["up", "up", "up"]


@pytest.mark.long
def test_writes_acknowledged_by_all_nodes_survive_killing_all_nodes(three_nodes: LocalCluster) -> None:
    with session_with("127.0.0.1", three_nodes.port) as session:
        session.execute(
            "CREATE KEYSPACE killed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}"
        )
        session.execute("CREATE TABLE killed.numbers (number int PRIMARY KEY)")
        for number in range(50):
            session.execute(f"INSERT INTO killed.numbers (number) VALUES ({number})")
        for node in three_nodes.running:
            three_nodes.kill(node)
    assert three_nodes.start() == [1, 2, 3]
    with session_with("127.0.0.1", three_nodes.port) as session:
        found = [row.number for row in session.execute("SELECT number FROM killed.numbers")]
        session.execute("DROP KEYSPACE killed")
    assert sorted(found) == list(range(50))
