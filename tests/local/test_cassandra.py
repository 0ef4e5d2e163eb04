"""A real Cassandra of one node: what can be done to it, and what is left when it has ended."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep_tasks.config import load_settings
from sweep_tasks.errors import NodetoolFailed, ServerNotReady
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.local.cassandra_node import nodes_seen_up, session_with
from sweep_tasks.local.jars import NAME, VERSION, Say, cassandra_jars
from sweep_tasks.local.processes import ClusterState
from tests.support.processes import in_processes

SWEEPFLOW = Path(sys.executable).parent / "sweepflow"


def sweepflow(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [SWEEPFLOW, "--json", "dev", "cassandra", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_code, done.stderr + done.stdout
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def is_free(address: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return tried.connect_ex((address, port)) != 0


# --- one node that the tests share ------------------------------------------------------------------------------


def test_a_node_answers_cql_as_the_version_that_was_asked_for(cassandra_cluster: LocalCluster) -> None:
    with session_with("127.0.0.1", cassandra_cluster.port) as session:
        assert session.execute("SELECT release_version FROM system.local").one().release_version == VERSION


def test_a_killed_node_restarts_with_its_data(cassandra_cluster: LocalCluster) -> None:
    with session_with("127.0.0.1", cassandra_cluster.port) as session:
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE IF NOT EXISTS kept.words (word text PRIMARY KEY)")
        session.execute("INSERT INTO kept.words (word) VALUES ('still here')")
    cassandra_cluster.nodetool(1, "flush", "kept")  # one node alone answers before it has written to disk
    former = cassandra_cluster.status()[0].pid
    cassandra_cluster.kill(1)
    assert cassandra_cluster.running == []
    assert cassandra_cluster.status()[0].state == "down"
    assert is_free("127.0.0.1", cassandra_cluster.port)
    cassandra_cluster.restart(1)
    assert cassandra_cluster.running == [1]
    assert cassandra_cluster.status()[0].pid != former
    with session_with("127.0.0.1", cassandra_cluster.port) as session:
        assert [row.word for row in session.execute("SELECT word FROM kept.words")] == ["still here"]


def test_a_paused_node_does_not_answer_until_it_is_resumed(cassandra_cluster: LocalCluster) -> None:
    cassandra_cluster.pause(1)
    try:
        assert cassandra_cluster.status()[0].state == "paused"
        assert cassandra_cluster.running == [1]
        assert nodes_seen_up("127.0.0.1", cassandra_cluster.port, patience_s=1) == 0
    finally:
        cassandra_cluster.resume(1)
    assert nodes_seen_up("127.0.0.1", cassandra_cluster.port) == 1
    assert cassandra_cluster.status()[0].state == "up"


def test_a_node_that_is_up_is_not_started_again(cassandra_cluster: LocalCluster) -> None:
    before = cassandra_cluster.status()
    assert cassandra_cluster.start() == []
    assert cassandra_cluster.status() == before


def test_its_own_tool_talks_to_the_node(cassandra_cluster: LocalCluster) -> None:
    assert "UN  127.0.0.1" in cassandra_cluster.nodetool(1, "status")


def test_an_error_of_its_own_tool_is_reported(cassandra_cluster: LocalCluster) -> None:
    with pytest.raises(NodetoolFailed) as failed:
        cassandra_cluster.nodetool(1, "flush", "nowhere")
    assert (failed.value.details["node"], failed.value.details["arguments"]) == (1, ("flush", "nowhere"))
    assert "nowhere" in failed.value.details["said"]
    assert failed.value.details["said"] in str(failed.value)


# --- nodes of their own -----------------------------------------------------------------------------------------


def test_a_cluster_started_by_one_command_is_stopped_by_another(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "cluster")]
    try:
        up = sweepflow("up", *folder)
        [node] = up["nodes"]
        process, port = psutil.Process(node["pid"]), LocalCluster.require_in(tmp_path / "cluster").port
        assert up["started"] == [1]
        assert up["store"] == f"cassandra://127.0.0.1:{port}/sweepflow?replication=1"
        assert sweepflow("up", *folder) == up | {"started": []}
        assert sweepflow("status", *folder) == {"nodes": [node | {"state": "up"}], "store": up["store"]}
        assert VERSION in sweepflow("nodetool", *folder, "1", "version")["output"]
        assert sweepflow("up", "--nodes", "3", *folder, exit_code=2)["error"] == "bad_value"
    finally:
        down = sweepflow("down", "--yes", *folder)
    assert (down["stopped"], down["removed"]) == ([1], True)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert is_free("127.0.0.1", port)
    assert not (tmp_path / "cluster").exists()
    assert sweepflow("status", *folder) == {"nodes": [], "store": None}


def test_a_node_that_cannot_start_reports_the_cause_and_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        state = ClusterState.new(1, ["127.0.0.1"])
        state.jmx_ports = [taken.getsockname()[1]]
        state.write(tmp_path)
        cluster = LocalCluster(tmp_path, dies_with_parent=True)
        with pytest.raises(ServerNotReady) as refused:
            cluster.start()
    assert (refused.value.reason, refused.value.details["node"]) == ("ended", 1)
    assert "already in use" in str(refused.value)
    assert str(cluster.log(1)) in str(refused.value)
    assert cluster.running == []


# --- the jars ---------------------------------------------------------------------------------------------------


def test_two_processes_that_fetch_the_jars_at_once_get_one_complete_folder(tmp_path: Path) -> None:
    real = cassandra_jars(load_settings().cache_folder, print)
    complete = sorted((jar.name, jar.stat().st_size) for jar in real.iterdir())
    assert in_processes(2, copy_of, tmp_path, real) == [complete] * 2
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".lock") == [NAME, "copied-once"]


def copy_of(_number: int, cache: Path, real: Path) -> list[tuple[str, int]]:
    def copy(draft: Path, _say: Say) -> None:
        (cache / "copied-once").touch(exist_ok=False)
        shutil.copytree(real, draft, dirs_exist_ok=True)

    return sorted((jar.name, jar.stat().st_size) for jar in cassandra_jars(cache, lambda _: None, copy).iterdir())
