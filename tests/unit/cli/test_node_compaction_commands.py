"""Compacting on nodes from a terminal: what is said before one is asked; the rest is tested on a real Cassandra."""

from __future__ import annotations

import pytest

from tests.support.command import sweepflow

NODE = '{"one": {"data": "/nowhere"}}'
CASSANDRA = "cassandra://127.0.0.1:1/nobody"
"""Is not asked before the nodes are known."""


@pytest.mark.parametrize("name", ["measure", "run"])
def test_no_node_is_told_with_the_setting_that_describes_them(name: str) -> None:
    answer = sweepflow("compaction", name, "--store", CASSANDRA)
    assert (answer.code, answer.out) == (2, "")
    assert "error: setting compaction_nodes: names no node" in answer.err


def test_a_node_that_is_not_described_is_told_with_those_that_are() -> None:
    chosen = ["--node", "one", "--node", "two", "--store", CASSANDRA]
    answer = sweepflow("compaction", "run", *chosen, "--json", SWEEPFLOW_COMPACTION_NODES=NODE)
    assert (answer.code, answer.document["error"]) == (3, "not_found")
    assert answer.document["message"] == "node: 'two' is not in setting compaction_nodes; there are one"


@pytest.mark.parametrize("nodes", ["{}", NODE])
def test_a_store_without_tombstones_says_so(nodes: str) -> None:
    answer = sweepflow("compaction", "run", "--store", "sqlite:///store.db", "--json", SWEEPFLOW_COMPACTION_NODES=nodes)
    assert (answer.code, answer.document["error"]) == (2, "not_yet")
    assert "sqlite is not a Cassandra" in answer.document["message"]
