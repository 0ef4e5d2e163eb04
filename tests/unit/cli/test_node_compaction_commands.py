"""Compacting on nodes from a terminal: what is said before one is asked; the rest is tested on a real Cassandra."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import sweepflow

NODE = '{"one": {"data": "/nowhere"}}'


@pytest.mark.parametrize("name", ["measure", "run"])
def test_no_node_is_told_with_the_setting_that_describes_them(name: str) -> None:
    answer = sweepflow("compaction", name)
    assert (answer.code, answer.out) == (2, "")
    assert "error: setting compaction_nodes: names no node" in answer.err


def test_a_node_that_is_not_described_is_told_with_those_that_are() -> None:
    answer = sweepflow("compaction", "run", "--node", "one", "--node", "two", "--json", SWEEPFLOW_COMPACTION_NODES=NODE)
    assert (answer.code, answer.document["error"]) == (3, "not_found")
    assert answer.document["message"] == "node: 'two' is not in setting compaction_nodes; there are one"


def test_a_store_without_tombstones_says_so(tmp_path: Path) -> None:
    store = "sqlite:///store.db"
    assert sweepflow("init", "--store", store, cwd=tmp_path).code == 0
    answer = sweepflow("compaction", "run", "--store", store, "--json", cwd=tmp_path, SWEEPFLOW_COMPACTION_NODES=NODE)
    (told,) = answer.document["nodes"]
    assert (answer.code, told["node"], told["error"]) == (2, "one", "not_yet")
    assert "sqlite is not a Cassandra" in told["message"]
