"""The configuration of a node."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from sweep_tasks.local.cassandra_node import TOKENS, cassandra_yaml, tokens_of


def settings(**changed: object) -> dict[str, Any]:
    given: dict[str, Any] = {
        "cluster": "c",
        "address": "127.0.0.2",
        "seeds": ["127.0.0.1", "127.0.0.2"],
        "native_port": 20_001,
        "storage_port": 20_002,
        "tokens": tokens_of(2, 3),
        "survives_kill": True,
    }
    lines = cassandra_yaml(**(given | changed)).splitlines()
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in lines)}


def test_a_node_listens_on_its_own_address_for_clients_and_for_nodes() -> None:
    reported = settings()
    assert reported["listen_address"] == reported["rpc_address"] == "127.0.0.2"
    assert (reported["native_transport_port"], reported["storage_port"]) == (20_001, 20_002)


def test_a_node_is_configured_with_its_seeds() -> None:
    [provider] = settings()["seed_provider"]
    assert provider["parameters"] == [{"seeds": "127.0.0.1:20002,127.0.0.2:20002"}]


def test_a_node_is_configured_with_the_number_of_its_tokens() -> None:
    reported = settings()
    assert reported["num_tokens"] == len(str(reported["initial_token"]).split(",")) == TOKENS


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_tokens_of_all_nodes_cut_the_ring_into_equal_parts(nodes: int) -> None:
    owners = sorted((token, number) for number in range(1, nodes + 1) for token in tokens_of(number, nodes))
    tokens = [token for token, _ in owners]
    steps = {after - before for before, after in pairwise(tokens)}
    assert len(set(tokens)) == nodes * TOKENS
    assert tokens[0] > -(2**63)
    assert tokens[-1] < 2**63
    assert max(steps) - min(steps) <= 1


def test_three_neighbours_on_the_ring_are_three_nodes() -> None:
    owners = [number for _, number in sorted((token, number) for number in (1, 2, 3) for token in tokens_of(number, 3))]
    assert all(len({*owners[place : place + 3]}) == 3 for place in range(len(owners) - 2))


def test_a_batch_that_the_store_sends_is_not_warned_about() -> None:
    reported = settings()
    assert reported["batch_size_warn_threshold"] == "64KiB"
    assert reported["unlogged_batch_across_partitions_warn_threshold"] == 200


def test_quotes_in_a_name_are_escaped() -> None:
    assert settings(cluster='it\'s "ours"')["cluster_name"] == 'it\'s "ours"'


def test_a_node_that_may_be_killed_writes_before_it_answers() -> None:
    assert settings(survives_kill=True)["commitlog_sync"] == "group"
    assert settings(survives_kill=False)["commitlog_sync"] == "periodic"
