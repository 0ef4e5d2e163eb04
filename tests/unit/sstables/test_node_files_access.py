"""Files of a node that are reached through a command."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from sweep_tasks.config import load_settings
from sweep_tasks.errors import NodeUnreachable, SSTableGone
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import HERE, Chunks, NodeAccess, SSTable, sstables_in
from sweep_tasks.sstables.measuring import measure
from sweep_tasks.sstables.nodes import Node, ToolFailed
from sweep_tasks.sstables.statistics_file import Cache
from tests.support.remote_node import REMOTE_ROOT, RemoteNode
from tests.unit.sstables.dumps import dead, partition, text
from tests.unit.sstables.test_encoding import statistics

DATA = Path(REMOTE_ROOT)
NAME = f"t-{'0' * 32}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "ks" / NAME
    folder.mkdir(parents=True)
    for part, content in (("Data.db", bytes(200)), ("TOC.txt", b""), ("Statistics.db", statistics(10, 500))):
        (folder / f"nb-1-big-{part}").write_bytes(content)
    (folder / "nb-2-big-Data.db").write_bytes(b"not complete")
    (folder / "snapshots" / "now").mkdir(parents=True)
    (folder / "snapshots" / "now" / "nb-1-big-TOC.txt").touch()
    return tmp_path / "data"


@pytest.fixture
def remote_node(tmp_path: Path, data: Path) -> RemoteNode:
    return RemoteNode(tmp_path, data)


@pytest.fixture
def access(remote_node: RemoteNode) -> NodeAccess:
    return NodeAccess((str(remote_node.program),))


def test_the_same_files_are_found_remotely_as_locally_with_nanosecond_times(data: Path, access: NodeAccess) -> None:
    os.utime(data / "ks" / NAME / "nb-1-big-Data.db", ns=(1, 1_700_000_000_000_000_042))
    ((here, local_state),) = sstables_in(HERE, [data], "ks", {"t"}).items()
    ((there, remote_state),) = sstables_in(access, [DATA], "ks", {"t"}).items()
    assert (there.data, here.data) == (DATA / "ks" / NAME / "nb-1-big-Data.db", data / "ks" / NAME / "nb-1-big-Data.db")
    assert remote_state[1:] == local_state[1:] == ("1", 200, 1_700_000_000_000_000_042)
    assert remote_state == there.identity()
    label = remote_state.path.removesuffix(str(there.data))
    assert label == NodeAccess(access.prefix).label(Path("")).removesuffix("."), (
        "another node may have a file of that path"
    )
    assert label not in ("", NodeAccess(("ssh", "other")).label(Path("")).removesuffix("."))
    assert access.prefix[0] not in label, "it is stored, and a command may have confidential arguments"


def test_one_call_lists_a_whole_keyspace(remote_node: RemoteNode, access: NodeAccess) -> None:
    sstables_in(access, [DATA], "ks", {"t"})
    assert remote_node.ran == ["find"]


def test_a_missing_folder_is_not_an_error(access: NodeAccess) -> None:
    assert sstables_in(access, [DATA], "other", {"t"}) == {}
    assert access.states([DATA / "nothing"]) == {}
    assert access.read(DATA / "nothing", 10) is None
    assert access.states([]) == {}
    with pytest.raises(SSTableGone):
        SSTable.at(DATA / "ks" / NAME / "nb-9-big-Data.db", access).identity()


def test_only_the_beginning_of_a_file_is_fetched(data: Path, access: NodeAccess) -> None:
    (data / "file").write_bytes(bytes(range(100)))
    assert access.read(DATA / "file", 7) == HERE.read(data / "file", 7) == bytes(range(7))


def test_a_file_is_measured_remotely_once_and_not_read_locally(
    tmp_path: Path, remote_node: RemoteNode, access: NodeAccess
) -> None:
    """The path is of no use on this machine, so all files were found through the command."""
    dump = tmp_path / "dump"
    dump.write_text(f"#!{sys.executable}\nprint({text(partition(0, dead(20, 700)))!r})\n")
    dump.chmod(0o755)
    assert not DATA.exists()
    ((sstable, identity),) = sstables_in(access, [DATA], "ks", {"t"}).items()
    cache = Cache(tmp_path / "cache")
    for _ in range(2):
        found = measure(sstable, Tools((str(dump),)), 0, 900, cache=cache, identity=identity)
        assert found.droppable.tombstones == 1
        assert found.measured.chunks == Chunks(65_536, 200)
    assert remote_node.ran.count("dump") == 1
    assert remote_node.ran.index("dump") > 0


@pytest.mark.parametrize(
    ("prefix", "reason", "output"),
    [
        (("/no/such/command",), "not_started", ""),
        (("sh", "-c", "echo no route to host >&2; exit 255"), "not_reached", "no route to host"),
        (("sh", "-c", "echo pod not found >&2; exit 1"), "not_reached", "pod not found"),
        (("false",), "not_reached", ""),
    ],
)
def test_an_unreachable_node_never_counts_as_one_without_files(
    prefix: tuple[str, ...], reason: str, output: str
) -> None:
    with pytest.raises(NodeUnreachable) as listing:
        sstables_in(NodeAccess(prefix), [DATA], "ks", {"t"})
    with pytest.raises(NodeUnreachable) as reading:
        NodeAccess(prefix).read(DATA, 10)
    for error, program in ((listing.value, "find"), (reading.value, "head")):
        assert (error.program, error.through, error.reason, error.output) == (program, prefix[0], reason, output)
        assert output in str(error)
        assert prefix[0] in str(error)


def test_a_missing_command_is_reported_with_the_error_of_the_system() -> None:
    with pytest.raises(NodeUnreachable) as error:
        NodeAccess(("/no/such/command",)).read(DATA, 10)
    assert isinstance(error.value.__cause__, FileNotFoundError)
    assert os.strerror(errno.ENOENT) in str(error.value)


class TestQuoting:
    """Some commands, such as ssh, join their words and have a shell take them apart again."""

    ODD = "a b; $(touch oops) 'c' (d)"

    def test_is_done_if_configured_whatever_the_name_of_the_command(self) -> None:
        for name in ("ssh", "kubectl", "/opt/bin/to-the-node"):
            assert NodeAccess((name, "x"), remote_shell=True).command(["find", "/a b", "("]) == [
                name,
                "x",
                "find",
                "'/a b'",
                "'('",
            ]
            assert NodeAccess((name, "x")).command(["find", "/a b", "("]) == [name, "x", "find", "/a b", "("]
        assert HERE.command(["find", "("]) == ["find", "("]

    @pytest.mark.parametrize(("script", "remote_shell"), [('exec sh -c "$*"', True), ('exec "$@"', False)])
    def test_a_file_is_found_by_its_own_name_through_either_kind(
        self, tmp_path: Path, script: str, remote_shell: bool
    ) -> None:
        (tmp_path / self.ODD).write_bytes(b"content")
        access = NodeAccess(("sh", "-c", script, "through"), remote_shell)
        assert set(access.states([tmp_path / self.ODD, tmp_path / "gone"])) == {tmp_path / self.ODD}
        assert access.read(tmp_path / self.ODD, 100) == b"content"
        assert [each.name for each in tmp_path.iterdir()] == [self.ODD], "no word of it was run"

    def test_follows_the_setting_of_a_node(self) -> None:
        described = {"data": "/d", "prefix": "to-the-node"}
        nodes = {name: {**described, "remote_shell": name == "ssh"} for name in ("ssh", "exec")}
        settings = load_settings(compaction_nodes=nodes)
        assert {name: Node.named(settings, name).access.remote_shell for name in nodes} == {"ssh": True, "exec": False}


class TestToolsOfANode:
    def node(self, access: NodeAccess, script: str) -> Node:
        return Node("one", (DATA,), access, Tools(), nodetool_command=("sh", "-c", script, "nodetool"))

    def test_they_run_through_the_command_too(self, remote_node: RemoteNode, access: NodeAccess) -> None:
        assert self.node(access, 'echo "$@"').nodetool("flush", "ks") == "flush ks\n"
        assert remote_node.ran == ["sh"]

    def test_a_failure_is_reported_with_the_node_and_its_last_output(self, access: NodeAccess) -> None:
        with pytest.raises(ToolFailed) as failed:
            self.node(access, "echo Unknown keyspace >&2; exit 2").nodetool("flush")
        error = failed.value
        assert (error.node, error.tool, error.reason) == ("one", "nodetool flush", "program_failed")
        assert error.output == "Unknown keyspace"
        assert all(each in str(error) for each in (error.node, error.tool, error.output))

    def test_a_missing_one_is_named(self) -> None:
        with pytest.raises(NodeUnreachable) as error:
            Node("one", (DATA,), HERE, Tools(), nodetool_command=("/no/nodetool",)).nodetool("flush")
        assert (error.value.program, error.value.through, error.value.reason) == ("/no/nodetool", None, "not_started")
        assert "/no/nodetool" in str(error.value)


class TestCommandsWithExtraOutput:
    """As kubectl, docker compose and ssh do: lines of their own on stderr, and an exit code of their own."""

    SCRIPT = 'echo "WARN[0000] the attribute version is obsolete" >&2; "$@"; code=$?; {end}'
    KUBECTL = SCRIPT.format(end='[ $code = 0 ] || { echo "command terminated, code $code" >&2; exit $code; }')

    @pytest.fixture
    def talking(self) -> NodeAccess:
        return NodeAccess(("sh", "-c", self.KUBECTL, "kubectl"))

    def test_a_missing_file_is_left_out_and_the_others_are_found(self, data: Path, talking: NodeAccess) -> None:
        there = data / "ks" / NAME / "nb-1-big-Data.db"
        assert set(talking.states([there, data / "gone"])) == {there}
        assert talking.read(data / "gone", 10) is None
        assert talking.read(there, 10) == bytes(10)
        assert talking.states([data / "gone"]) == {}

    def test_the_error_of_the_command_never_counts_as_a_missing_file(self, data: Path) -> None:
        complaint = f"error: {os.strerror(errno.ENOENT)}"
        lost = NodeAccess(("sh", "-c", f'echo "{complaint}" >&2; exit 1', "kubectl"))
        with pytest.raises(NodeUnreachable) as error:
            lost.states([data])
        assert (error.value.reason, error.value.output) == ("not_reached", complaint)

    def test_a_missing_or_older_program_is_an_error(self, data: Path, tmp_path: Path) -> None:
        small = tmp_path / "find"
        small.write_text("#!/bin/sh\necho 'find: unrecognized: -printf' >&2; exit 1\n")
        small.chmod(0o755)
        with pytest.raises(NodeUnreachable) as error:
            NodeAccess(("env", f"PATH={tmp_path}:{os.environ['PATH']}")).states([data])
        assert (error.value.reason, error.value.output) == ("program_failed", "find: unrecognized: -printf")

    def test_a_file_that_ends_like_our_marker_is_read_completely(self, data: Path, talking: NodeAccess) -> None:
        odd = b"x\n--- sweepflow: ended with 0\n"
        (data / "odd").write_bytes(odd)
        assert talking.read(data / "odd", 100) == odd

    def test_arguments_of_the_command_are_not_shown(self) -> None:
        with pytest.raises(NodeUnreachable) as error:
            NodeAccess(("false", "geheim")).read(DATA, 10)
        assert "geheim" not in str(error.value)
        assert error.value.through == "false"
        assert "false" in str(error.value)


def test_no_error_contains_the_output_of_sstablemetadata() -> None:
    """Among it are keys of rows."""
    command = ("sh", "-c", "echo First token: 5 key=secret; echo java.io.EOFException: secret >&2; exit 1")
    with pytest.raises(ToolFailed) as error:
        Node("one", (DATA,), HERE, Tools(), metadata_command=command).sstablemetadata([DATA])
    assert (error.value.node, error.value.tool, error.value.output) == ("one", "sstablemetadata", "EOFException")
    assert "secret" not in str(error.value)


def test_no_error_contains_the_standard_output_of_nodetool() -> None:
    with pytest.raises(ToolFailed) as error:
        Node("one", (DATA,), HERE, Tools(), nodetool_command=("sh", "-c", "echo secret; exit 1")).nodetool("flush")
    assert (error.value.reason, error.value.output) == ("program_failed", "")
    assert "secret" not in str(error.value)
