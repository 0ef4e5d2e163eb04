"""A real Cassandra on this machine, with one node, three, or some in each datacenter: for tests and for trying it out.

Nodes listen on loopback addresses (127.0.0.1, .2, .3) at ports that were free at the first start. The record of the
cluster is in its folder, so another process can use it: `sweepflow dev cassandra down` stops what `up` started.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from spark_jobs.environment import java_problem
from sweep_tasks.config import load_settings
from sweep_tasks.errors import BadValue, ServerNotReady
from sweep_tasks.local.cassandra_node import LocalNode, address_of
from sweep_tasks.local.jars import cassandra_jars
from sweep_tasks.local.processes import FILE, ClusterState, Failure, Server, Started, listens, stop_servers

SIZES = (1, 3)
PATIENCE_S = 240.0
_LOCK = "lock"
_KILLED_S = 20.0
_CHECK_EVERY_S = 0.3


class NodeStatus(NamedTuple):
    number: int
    address: str
    pid: int | None
    state: str
    """up, down, paused, or silent: the process exists, but does not listen yet."""


class LocalCluster:
    """A Cassandra cluster in one folder; it outlives this process unless it `dies_with_parent`."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        datacenters: Sequence[str] = (),
        cache: Path | None = None,
        dies_with_parent: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`datacenters`: one name for each node, if they are not all in one. `dies_with_parent`: the nodes end with
        this process, however it ends. `say` gets each step."""
        if datacenters:
            nodes = len(datacenters)
        elif nodes not in SIZES:
            sizes = " or ".join(map(str, SIZES))
            raise BadValue("nodes", f"a local cluster has {sizes} nodes, not {nodes}", reason="unsupported")
        self.folder = folder.absolute()
        self.nodes = nodes
        self.datacenters = list(datacenters)
        self._cache = cache
        self._dies_with_parent = dies_with_parent
        self._say = say

    @classmethod
    def find_in(cls, folder: Path) -> Self | None:
        """Return the cluster of a folder, running or not; None if there is none."""
        state = ClusterState.read(folder)
        return cls(folder, state.nodes, datacenters=state.datacenters) if state else None

    @classmethod
    def require_in(cls, folder: Path) -> Self:
        """Return the cluster of a folder. Raise `ServerNotReady` if there is none."""
        if (kept := cls.find_in(folder)) is None:
            raise _no_cluster(folder)
        return kept

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> list[int]:
        """Start the nodes that are not running, wait until they answer, and return their numbers."""
        self._check_java()
        with self.lock_folder():
            state = self._state_for_start()
            missing = [number for number in self._numbers if number not in state.running()]
            self._start_nodes(state, missing)
        return missing

    def stop(self, *, remove: bool = False) -> list[int]:
        """Stop the nodes, with `remove` delete their data as well, and return the numbers of those that ran."""
        if ClusterState.read(self.folder) is None:
            return []
        with self.lock_folder():
            state = self._state()
            running = state.running()
            self._stop_nodes(state, list(running), gently=not remove)
            if remove:
                self.remove_files()
        return list(running)

    def restart(self, number: int) -> None:
        """Start a node again on its data; one that is running is stopped first."""
        self._check_number(number)
        with self.lock_folder():
            state = self._state()
            if number in state.running():
                self._stop_nodes(state, [number])
            self._start_nodes(state, [number])

    # --- faults and tools ----------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        started = self._require_running(number)
        started.signal(signal.SIGKILL)
        started.wait(_KILLED_S)

    def pause(self, number: int) -> None:
        self._require_running(number).pause()

    def resume(self, number: int) -> None:
        self._require_running(number).resume()

    def nodetool(self, number: int, *arguments: str) -> str:
        """Run Cassandra's own tool on a node and return what it prints."""
        self._check_number(number)
        return self._node(self._state(), number).nodetool(*arguments)

    def tool(self, number: int, main: str) -> list[str]:
        """Return the command of one of Cassandra's tools that read the files of a node."""
        self._check_number(number)
        return self._node(self._state(), number).tool(main)

    def compaction_nodes(self) -> dict[str, dict[str, str]]:
        """Return the setting `compaction_nodes` for all nodes."""
        state = self._state()
        return {f"node{number}": self._node(state, number).for_compaction() for number in self._numbers}

    # --- state --------------------------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        state = ClusterState.read(self.folder)
        return list(state.running()) if state else []

    @property
    def hosts(self) -> list[str]:
        return [address_of(number) for number in self._numbers]

    @property
    def port(self) -> int:
        return self._state().native_port

    def url(self, keyspace: str) -> str:
        """Return the address for `--store`, with as many replicas as there are nodes in each datacenter."""
        replicas = min(Counter(self.datacenters).values(), default=self.nodes)
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{keyspace}?replication={replicas}"

    def status(self) -> list[NodeStatus]:
        state = ClusterState.read(self.folder)
        return [self._status(state, number) for number in self._numbers]

    def data_folder(self, number: int) -> Path:
        return self._folder_of(number) / "data"

    def log(self, number: int) -> Path:
        return self._folder_of(number) / "log"

    # --- inside -----------------------------------------------------------------------------------------------------

    def _start_nodes(self, state: ClusterState, numbers: Sequence[int]) -> None:
        """Start the first node alone, because the others learn about the cluster from it, then all others together. If
        one fails, all of them are stopped."""
        first = 0 if state.running() else 1
        try:
            for together in (numbers[:first], numbers[first:]):
                for number in together:
                    self._launch(state, number)
                for number in together:
                    self._wait(self._node(state, number), state)
        except BaseException:
            self._stop_nodes(state, [number for number in numbers if number in state.started], gently=False)
            raise

    def _launch(self, state: ClusterState, number: int) -> None:
        node = self._node(state, number)
        others = [address_of(each) for each in state.running() if each != number]
        self._say(f"starting Cassandra node {number} of {self.nodes} on {node.address}")
        state.started[number] = node.start(others, dies_with_parent=self._dies_with_parent)
        state.write(self.folder)

    def _wait(self, node: LocalNode, state: ClusterState) -> None:
        """Wait until the node answers CQL, and all nodes that are not paused see each other."""
        server = self._server(state, node.number, failure=partial(_not_started, node))
        server.wait_until("an answer", lambda: self._ready(node, state) or None, PATIENCE_S, _CHECK_EVERY_S)

    def _ready(self, node: LocalNode, state: ClusterState) -> bool:
        # The driver is slow to import, and every command would pay for it.
        from sweep_tasks.local.cassandra_node import nodes_seen_up, release_version

        if release_version(node.address, state.native_port) is None:
            return False
        awake = [number for number, started in state.running().items() if not started.paused]
        return all(nodes_seen_up(address_of(each), state.native_port) >= len(awake) for each in awake)

    def _stop_nodes(self, state: ClusterState, numbers: Sequence[int], *, gently: bool = True) -> None:
        stop_servers([self._server(state, number) for number in numbers], gently=gently)

    def _server(self, state: ClusterState, number: int, failure: Failure | None = None) -> Server:
        """Return the supervisor of a node that is on record, whichever process has started it."""
        return Server(f"cassandra node {number}", state.started[number], self.log(number), failure=failure)

    def remove_files(self) -> None:
        """Delete the files of the cluster, and the folder itself if nothing else is in it."""
        for number in self._numbers:
            shutil.rmtree(self._folder_of(number), ignore_errors=True)
        for name in (FILE, _LOCK):
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _state(self) -> ClusterState:
        state = ClusterState.read(self.folder)
        if state is None:
            raise _no_cluster(self.folder)
        return state

    def _state_for_start(self) -> ClusterState:
        state = ClusterState.read(self.folder)
        if state is None:
            if any(file.name != _LOCK for file in self.folder.iterdir()):
                raise BadValue(
                    "folder", f"{self.folder} contains other files; name a new or an empty folder", reason="not_empty"
                )
            state = ClusterState.new(self.nodes, self.hosts, self.datacenters)
            state.write(self.folder)
        if (state.nodes, state.datacenters) != (self.nodes, self.datacenters):
            raise BadValue(
                "nodes",
                f"the cluster in {self.folder} has {state.nodes}; keep that number, stop the cluster first, or name "
                "another folder",
                reason="mismatch",
            )
        return state

    def _status(self, state: ClusterState | None, number: int) -> NodeStatus:
        address = address_of(number)
        started = state.running().get(number) if state else None
        if state is None or started is None:
            return NodeStatus(number, address, None, "down")
        if started.paused:
            return NodeStatus(number, address, started.pid, "paused")
        return NodeStatus(number, address, started.pid, "up" if listens(address, state.native_port) else "silent")

    def _require_running(self, number: int) -> Started:
        self._check_number(number)
        started = self._state().running().get(number)
        if started is None:
            raise ServerNotReady(
                f"cassandra: node {number} is not running; start it first", reason="not_running", node=number
            )
        return started

    def _check_number(self, number: int) -> None:
        if number not in self._numbers:
            raise BadValue("node", f"there is no node {number}; use a number from 1 to {self.nodes}")

    @property
    def _numbers(self) -> range:
        return range(1, self.nodes + 1)

    def _folder_of(self, number: int) -> Path:
        return self.folder / f"node{number}"

    def _node(self, state: ClusterState, number: int) -> LocalNode:
        return LocalNode(number, self._folder_of(number), state, self._jars())

    def _jars(self) -> Path:
        return cassandra_jars(self._cache or load_settings().cache_folder, self._say)

    @staticmethod
    def _check_java() -> None:
        if problem := java_problem(needed_by="Cassandra"):
            raise problem

    @contextmanager
    def lock_folder(self) -> Iterator[None]:
        """Lock the folder: one process at a time starts or stops nodes here, the next continues from the result."""
        with self._open_lock() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_still(lock, self.folder / _LOCK):  # another process has removed the cluster and the lock
                with self.lock_folder():
                    yield
                return
            yield

    def _open_lock(self) -> BinaryIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return (self.folder / _LOCK).open("ab")
        except OSError as error:
            raise BadValue(
                "folder", f"{self.folder} can't be used: {error.strerror}; name another folder", reason="unusable"
            ) from error


def _is_still(opened: BinaryIO, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _no_cluster(folder: Path) -> ServerNotReady:
    return ServerNotReady(
        f"folder: there is no cluster in {folder}; start one with 'sweepflow dev cassandra up'",
        field="folder",
        reason="missing",
    )


def _not_started(node: LocalNode, problem: str, reason: str) -> ServerNotReady:
    return ServerNotReady(
        f"cassandra: node {node.number} {problem}; its log is {node.log} and ends with\n{node.log_tail()}",
        reason=reason,
        node=node.number,
    )
