"""Compacting on nodes from a terminal: messages before a node is contacted; the rest is tested on a real Cassandra."""

from __future__ import annotations

import pytest

from sweep_tasks.errors import NotFound, NotYet
from tests.support.command import sweepflow

NODE = '{"one": {"data": "/nowhere"}}'
CASSANDRA = "cassandra://127.0.0.1:1/missing"
"""Is not asked before the nodes are known."""


@pytest.mark.parametrize("name", ["measure", "run"])
def test_missing_nodes_are_reported_with_the_setting_that_describes_them(name: str) -> None:
    answer = sweepflow("compaction", name, "--store", CASSANDRA)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error
    assert (answer.error.field, answer.error.reason) == ("setting compaction_nodes", "empty")
    assert answer.err == f"error: {answer.error}\n"


def test_an_undescribed_node_is_reported_with_the_described_ones() -> None:
    chosen = ["--node", "one", "--node", "two", "--store", CASSANDRA]
    answer = sweepflow("compaction", "run", *chosen, "--json", SWEEPFLOW_COMPACTION_NODES=NODE)
    assert (answer.code, answer.document["error"], answer.document["field"]) == (3, "not_found", "node")
    assert isinstance(answer.error, NotFound)
    assert (answer.error.details["name"], answer.error.details["known"]) == ("two", ("one",))
    assert answer.document["message"] == str(answer.error)


@pytest.mark.parametrize("nodes", ["{}", NODE])
def test_a_store_without_tombstones_says_so(nodes: str) -> None:
    answer = sweepflow("compaction", "run", "--store", "sqlite:///store.db", "--json", SWEEPFLOW_COMPACTION_NODES=nodes)
    assert (answer.code, answer.document["error"]) == (2, "not_yet")
    assert isinstance(answer.error, NotYet)
    assert answer.error.details["store"] == "sqlite"
