"""What a local cluster refuses before it starts anything."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.environment import LEAST_JAVA
from sweep_tasks.errors import BadValue, ProgramMissing, ServerNotReady
from sweep_tasks.local.cassandra import SIZES, LocalCluster
from sweep_tasks.local.processes import ClusterState, Started


def kept(folder: Path, nodes: int = 3) -> LocalCluster:
    """A cluster that is known and not running."""
    folder.mkdir(exist_ok=True)
    ClusterState(nodes, 20_001, 20_002, [20_003, 20_004, 20_005][:nodes]).write(folder)
    return LocalCluster(folder, nodes)


@pytest.mark.parametrize("nodes", [0, 2, 4, -1])
def test_a_cluster_has_one_node_or_three(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(BadValue) as refused:
        LocalCluster(tmp_path, nodes)
    assert (refused.value.field, refused.value.reason) == ("nodes", "unsupported")
    assert {*map(str, SIZES), str(nodes)} <= set(re.findall(r"-?\d+", str(refused.value)))


def test_its_address_names_every_node_and_one_replica_for_each(tmp_path: Path) -> None:
    assert kept(tmp_path).url("shop") == "cassandra://127.0.0.1,127.0.0.2,127.0.0.3:20001/shop?replication=3"


def test_a_cluster_of_one_has_one_replica(tmp_path: Path) -> None:
    assert kept(tmp_path, 1).url("shop") == "cassandra://127.0.0.1:20001/shop?replication=1"


def test_a_cluster_with_datacenters_has_a_node_and_a_replica_in_each(tmp_path: Path) -> None:
    ClusterState(2, 20_001, 20_002, [20_003, 20_004], datacenters=["east", "west"]).write(tmp_path)
    cluster = LocalCluster.require_in(tmp_path)
    assert (cluster.nodes, cluster.datacenters) == (2, ["east", "west"])
    assert cluster.url("shop") == "cassandra://127.0.0.1,127.0.0.2:20001/shop?replication=1"


def test_another_process_finds_the_cluster_by_its_folder(tmp_path: Path) -> None:
    kept(tmp_path)
    found = LocalCluster.require_in(tmp_path)
    assert (found.nodes, found.port, found.running) == (3, 20_001, [])


def test_a_folder_without_a_cluster_is_reported_with_a_remedy(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    for ask in (lambda: cluster.port, lambda: cluster.kill(1), lambda: cluster.nodetool(1, "info")):
        with pytest.raises(ServerNotReady) as refused:
            ask()
        assert (refused.value.field, refused.value.reason) == ("folder", "missing")
        for named in (str(tmp_path), " ".join(["dev", "cassandra", "up"])):
            assert named in str(refused.value)
    assert LocalCluster.find_in(tmp_path) is None
    assert cluster.stop() == cluster.running == []


def test_a_folder_with_something_else_in_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").touch()
    with pytest.raises(BadValue) as refused:
        LocalCluster(tmp_path).start()
    assert (refused.value.field, refused.value.reason) == ("folder", "not_empty")


def test_a_cluster_does_not_change_its_size(tmp_path: Path) -> None:
    kept(tmp_path, 3)
    with pytest.raises(BadValue) as refused:
        LocalCluster(tmp_path, 1).start()
    assert (refused.value.field, refused.value.reason) == ("nodes", "mismatch")
    assert "3" in str(refused.value).replace(str(tmp_path), "")


def test_a_node_that_is_not_running_can_not_be_killed(tmp_path: Path) -> None:
    with pytest.raises(ServerNotReady) as refused:
        kept(tmp_path).kill(2)
    assert (refused.value.reason, refused.value.details["node"]) == ("not_running", 2)


@pytest.mark.parametrize("number", [0, 4])
def test_a_node_that_does_not_exist_is_named(tmp_path: Path, number: int) -> None:
    with pytest.raises(BadValue) as refused:
        kept(tmp_path).restart(number)
    assert refused.value.field == "node"
    assert {str(number), "1", "3"} <= set(re.findall(r"\d+", str(refused.value)))


def test_removing_a_cluster_leaves_what_others_put_there(tmp_path: Path) -> None:
    cluster = kept(tmp_path)
    (tmp_path / "node1").mkdir()
    (tmp_path / "letters.txt").touch()
    assert cluster.stop(remove=True) == []
    assert [file.name for file in tmp_path.iterdir()] == ["letters.txt"]


def test_removing_a_cluster_removes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    kept(folder).stop(remove=True)
    assert not folder.exists()


def test_a_process_that_has_the_number_of_a_node_now_is_not_stopped(tmp_path: Path) -> None:
    state = ClusterState(1, 20_001, 20_002, [20_003], {1: Started(os.getpid(), 1.0)})
    state.write(tmp_path)
    cluster = LocalCluster(tmp_path)
    assert cluster.status()[0].state == "down"
    assert cluster.stop() == []  # this process was not stopped


def test_a_missing_java_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing) as refused:
        LocalCluster(tmp_path / "cluster").start()
    assert refused.value.reason == "missing"
    for named in ("Cassandra", str(LEAST_JAVA)):
        assert named in str(refused.value)
    assert not (tmp_path / "cluster").exists()


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadValue) as refused:
        LocalCluster(tmp_path / "file" / "cluster").start()
    assert (refused.value.field, refused.value.reason) == ("folder", "unusable")
    assert str(tmp_path / "file" / "cluster") in str(refused.value)


def test_a_process_that_waited_while_a_cluster_was_removed_starts_again(tmp_path: Path) -> None:
    """The lock that it waited for was removed with the folder, and holding it would exclude no other process."""
    cluster, recorded = kept(tmp_path / "cluster"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with cluster.lock_folder():
            second = pool.submit(enter, cluster, recorded)
            assert not recorded.wait(0.5)
            cluster.remove_files()
        folder_was_there = second.result(timeout=240)
    assert folder_was_there


def enter(cluster: LocalCluster, recorded: threading.Event) -> bool:
    with cluster.lock_folder():
        recorded.set()
        return (cluster.folder / "lock").exists()
