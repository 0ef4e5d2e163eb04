"""What is shown of a node that did not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.local.cassandra_node import PRINTED_NOTHING, LocalNode
from sweep_tasks.local.processes import ClusterState


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    return LocalNode(1, tmp_path, ClusterState(1, 20_001, 20_002, [20_003]), tmp_path)


def test_the_cause_is_shown_and_not_what_followed_from_it(node: LocalNode) -> None:
    node.log.write_text(
        "INFO  [main] starting\n"
        "ERROR [main] Fatal configuration error\n"
        "ConfigurationException: port 7000 taken\n"
        + "\tat org.apache.cassandra.net.Bind\n" * 30
        + "\t... 30 more\n"
        + "INFO  [StorageServiceShutdownHook] Cassandra shutdown complete\n" * 30
    )
    assert node.log_tail().splitlines() == [
        "INFO  [main] starting",
        "ERROR [main] Fatal configuration error",
        "ConfigurationException: port 7000 taken",
    ]


def test_only_the_end_is_shown(node: LocalNode) -> None:
    node.log.write_text("".join(f"line {number}\n" for number in range(100)) + "x" * 10_000)
    assert "line 99" in node.log_tail()
    assert "line 50" not in node.log_tail()
    assert len(node.log_tail()) < 1_000


def test_a_node_without_output_is_reported_as_silent(node: LocalNode) -> None:
    assert node.log_tail() == PRINTED_NOTHING


def test_its_tools_are_programs_that_need_no_arguments(node: LocalNode) -> None:
    node.write_tools()
    described = node.for_compaction()
    assert described.pop("data") == str(node.folder / "data")
    assert set(described) == {"nodetool", "sstabledump", "sstablemetadata"}
    for program in map(Path, described.values()):
        assert program.stat().st_mode & 0o111
        assert program.read_text().startswith("#!/bin/sh\nexec ")
    assert "-p 20003" in Path(described["nodetool"]).read_text()
