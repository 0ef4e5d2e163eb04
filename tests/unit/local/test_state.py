"""What a local cluster leaves for the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.errors import ServerNotReady
from sweep_tasks.local.processes import FILE, ClusterState, Started, free_ports


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    state = ClusterState(3, 20_001, 20_002, [20_003, 20_004, 20_005], {2: Started(4711, 1.25)})
    state.write(tmp_path)
    assert ClusterState.read(tmp_path) == state
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_a_folder_without_a_cluster_has_no_state(tmp_path: Path) -> None:
    assert ClusterState.read(tmp_path) is None
    assert ClusterState.read(tmp_path / "not-there") is None


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"nodes": 1, "started": {}}', '{"started": {"x": [1, 2]}}'])
def test_a_damaged_state_is_reported_with_a_remedy(tmp_path: Path, damaged: str) -> None:
    (tmp_path / FILE).write_text(damaged)
    with pytest.raises(ServerNotReady) as refused:
        ClusterState.read(tmp_path)
    assert (refused.value.field, refused.value.reason) == ("folder", "unreadable")
    assert str(tmp_path / FILE) in str(refused.value)


def test_a_new_cluster_has_ports_of_its_own_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    state = ClusterState.new(3, ["127.0.0.1"])
    ports = [state.native_port, state.storage_port, *state.jmx_ports]
    assert len(set(ports)) == 5
    assert all(1_024 < port < 32_768 for port in ports)


def test_a_process_that_has_ended_is_not_running(tmp_path: Path) -> None:
    assert ClusterState(1, 1, 2, [3], {1: Started(2**22 + 1, 0.0)}).running() == {}


def test_an_address_that_this_machine_lacks_is_named() -> None:
    with pytest.raises(ServerNotReady) as refused:
        free_ports(1, ["127.0.0.1", "192.0.2.1"])
    assert refused.value.reason == "no_address"
    for named in ("192.0.2.1", "--nodes 1"):
        assert named in str(refused.value)
