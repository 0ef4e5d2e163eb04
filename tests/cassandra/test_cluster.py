"""A real Cassandra of three nodes: they form one cluster, and one that was away is taken back."""

from __future__ import annotations

from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.dev.cql import nodes_seen_up


def test_every_node_sees_all_three(three_nodes: LocalCluster) -> None:
    assert three_nodes.running == [1, 2, 3]
    assert [nodes_seen_up(host, three_nodes.port) for host in three_nodes.hosts] == [3, 3, 3]


def test_a_node_that_was_killed_is_seen_by_all_when_it_is_back(three_nodes: LocalCluster) -> None:
    three_nodes.kill(1)
    assert three_nodes.running == [2, 3]
    assert [node.state for node in three_nodes.status()] == ["down", "up", "up"]
    three_nodes.restart(1)
    assert [nodes_seen_up(host, three_nodes.port) for host in three_nodes.hosts] == [3, 3, 3]
    assert [node.state for node in three_nodes.status()] == ["up", "up", "up"]
