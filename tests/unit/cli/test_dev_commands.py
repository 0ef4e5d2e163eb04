"""`sweepflow dev cassandra` where there is nothing to start; that it starts a real one is tested in tests/local."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep_tasks.errors import ServerNotReady
from sweep_tasks.local.processes import ClusterState
from tests.support.command import Answer, sweepflow


def dev(*arguments: str, cwd: Path) -> Answer:
    return sweepflow("dev", "cassandra", *arguments, cwd=cwd)


@pytest.mark.parametrize("nodes", ["0", "2", "4"])
def test_a_number_of_nodes_other_than_one_or_three_is_refused(tmp_path: Path, nodes: str) -> None:
    refused = dev("up", "--nodes", nodes, cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.error
    assert (refused.error.field, refused.error.reason) == ("nodes", "unsupported")
    assert refused.err == f"error: {refused.error}\n"
    assert {"1", "3", nodes} <= set(re.findall(r"\d+", refused.err))
    assert list(tmp_path.iterdir()) == []


def test_json_errors_contain_their_code(tmp_path: Path) -> None:
    refused = dev("up", "--nodes", "2", "--json", cwd=tmp_path)
    assert (refused.code, refused.document["error"]) == (2, "bad_value")


def test_without_a_cluster_the_status_says_how_to_start_one(tmp_path: Path) -> None:
    asked = dev("status", cwd=tmp_path)
    assert asked.code == 0
    assert ".sweepflow/cassandra" in asked.out
    assert " ".join(["dev", "cassandra", "up"]) in asked.out
    assert dev("status", "--json", cwd=tmp_path).document == {"nodes": [], "store": None}


def test_stopping_what_was_never_started_changes_nothing(tmp_path: Path) -> None:
    stopped = dev("down", "--folder", "mine", cwd=tmp_path)
    assert (stopped.code, stopped.out.split()[-1]) == (0, "mine")
    document = dev("down", "--folder", "mine", "--json", cwd=tmp_path).document
    assert document == {"stopped": [], "removed": False, "folder": str(tmp_path / "mine")}
    assert list(tmp_path.iterdir()) == []


def test_the_tool_needs_a_cluster(tmp_path: Path) -> None:
    refused = dev("nodetool", "1", "compact", "--user-defined", "x", cwd=tmp_path)
    assert refused.code == 4
    assert isinstance(refused.error, ServerNotReady)
    assert (refused.error.field, refused.error.reason) == ("folder", "missing")
    assert ".sweepflow/cassandra" in refused.err


def test_nodes_that_are_down_are_listed_with_the_address_of_the_store(tmp_path: Path) -> None:
    ClusterState(3, 20_001, 20_002, [20_003, 20_004, 20_005]).write(tmp_path)
    shown = dev("status", "--folder", str(tmp_path), cwd=tmp_path)
    assert shown.out.count("down") == 3
    assert "cassandra://127.0.0.1,127.0.0.2,127.0.0.3:20001/sweepflow?replication=3" in shown.out


def test_data_is_not_removed_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    ClusterState(1, 20_001, 20_002, [20_003]).write(tmp_path)
    refused = dev("down", "--folder", str(tmp_path), cwd=tmp_path)
    assert refused.code == 2
    assert refused.error is not None
    assert refused.error.code == "not_confirmed"
    assert (tmp_path / "node1").exists()


@pytest.mark.parametrize(("keep", "left"), [(["--keep"], True), (["--yes"], False)])
def test_data_is_removed_unless_it_is_to_be_kept(tmp_path: Path, keep: list[str], left: bool) -> None:
    folder = tmp_path / "cluster"
    (folder / "node1").mkdir(parents=True)
    ClusterState(1, 20_001, 20_002, [20_003]).write(folder)
    stopped = dev("down", "--folder", str(folder), "--json", *keep, cwd=tmp_path)
    assert (stopped.code, stopped.document["removed"]) == (0, not left)
    assert (folder / "node1").exists() == left
