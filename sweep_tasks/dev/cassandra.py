"""A real Cassandra on this machine, of one node or three: for the tests, and for trying things out.

Nodes listen on loopback addresses (127.0.0.1, .2, .3) at ports chosen free at the first start. All that is known of the
cluster is in its folder, so another process can go on with it: `sweepflow dev cassandra down` ends what `up` started.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from spark_jobs.environment import java_problem
from sweep_tasks.config import load_settings
from sweep_tasks.dev.jars import cassandra_jars
from sweep_tasks.dev.node import Node, address_of
from sweep_tasks.dev.ports import listens
from sweep_tasks.dev.process import Started
from sweep_tasks.dev.state import FILE, ClusterState
from sweep_tasks.errors import BadValue, ClusterNotReady

SIZES = (1, 3)
PATIENCE_S = 240.0
_LOCK = "lock"
_GENTLY_S = 20.0
_KILLED_S = 20.0
_LOOK_AGAIN_S = 0.3


class NodeStatus(NamedTuple):
    number: int
    address: str
    pid: int | None
    state: str
    """up, down, paused, or silent: there is a process, but nobody listens yet."""


class LocalCluster:
    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        cache: Path | None = None,
        dies_with_parent: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`dies_with_parent`: the nodes end with this process, however it ends. `say` is told each step."""
        if nodes not in SIZES:
            sizes = " or ".join(map(str, SIZES))
            raise BadValue("nodes", f"a local cluster has {sizes} nodes, not {nodes}", reason="unsupported")
        self.folder = folder.absolute()
        self.nodes = nodes
        self._cache = cache
        self._dies_with_parent = dies_with_parent
        self._say = say

    @classmethod
    def kept_in(cls, folder: Path) -> Self | None:
        """The cluster that was started in a folder, running or not."""
        state = ClusterState.read(folder)
        return cls(folder, state.nodes) if state else None

    @classmethod
    def standing_in(cls, folder: Path) -> Self:
        if (kept := cls.kept_in(folder)) is None:
            raise _no_cluster(folder)
        return kept

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> list[int]:
        """Start what is not running, and wait until it answers; returns the numbers of those."""
        self._check_java()
        with self.alone():
            state = self._state_for_start()
            missing = [number for number in self._numbers if number not in state.running()]
            self._start_nodes(state, missing)
        return missing

    def stop(self, *, remove: bool = False) -> list[int]:
        """End the nodes, and with `remove` their data as well; returns the numbers of those that ran."""
        if ClusterState.read(self.folder) is None:
            return []
        with self.alone():
            state = self._state()
            running = state.running()
            self._end(list(running.values()), gently=not remove)
            if remove:
                self.remove_files()
        return list(running)

    def restart(self, number: int) -> None:
        """Start a node again on its data; one that is running is stopped first."""
        self._check_number(number)
        with self.alone():
            state = self._state()
            if number in state.running():
                self._end([state.started[number]], gently=True)
            self._start_nodes(state, [number])

    # --- what can happen to a node ----------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        started = self._running(number)
        started.signal(signal.SIGKILL)
        started.wait(_KILLED_S)

    def pause(self, number: int) -> None:
        self._running(number).pause()

    def resume(self, number: int) -> None:
        self._running(number).resume()

    def nodetool(self, number: int, *arguments: str) -> str:
        """What Cassandra's own tool says about a node."""
        self._check_number(number)
        return self._node(self._state(), number).nodetool(*arguments)

    def tool(self, number: int, main: str) -> list[str]:
        """How to start one of Cassandra's tools that read the files of a node."""
        self._check_number(number)
        return self._node(self._state(), number).tool(main)

    def compaction_nodes(self) -> dict[str, dict[str, str]]:
        """Setting `compaction_nodes` for all of them."""
        state = self._state()
        return {f"node{number}": self._node(state, number).for_compaction() for number in self._numbers}

    # --- what there is to know --------------------------------------------------------------------------------------

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
        """The address for `--store`; as many copies of everything as there are nodes."""
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{keyspace}?replication={self.nodes}"

    def status(self) -> list[NodeStatus]:
        state = ClusterState.read(self.folder)
        return [self._status(state, number) for number in self._numbers]

    def data_folder(self, number: int) -> Path:
        return self._folder_of(number) / "data"

    def log(self, number: int) -> Path:
        return self._folder_of(number) / "log"

    # --- inside -----------------------------------------------------------------------------------------------------

    def _start_nodes(self, state: ClusterState, numbers: Sequence[int]) -> None:
        """The first alone, as nobody could tell the others about the cluster; these then all at once. If one fails,
        none of them stays."""
        first = 0 if state.running() else 1
        try:
            for together in (numbers[:first], numbers[first:]):
                for number in together:
                    self._launch(state, number)
                for number in together:
                    self._wait(self._node(state, number), state)
        except BaseException:
            self._end([state.started[number] for number in numbers if number in state.started], gently=False)
            raise

    def _launch(self, state: ClusterState, number: int) -> None:
        node = self._node(state, number)
        others = [address_of(each) for each in state.running() if each != number]
        self._say(f"starting Cassandra node {number} of {self.nodes} on {node.address}")
        state.started[number] = node.start(others, dies_with_parent=self._dies_with_parent)
        state.write(self.folder)

    def _wait(self, node: Node, state: ClusterState) -> None:
        """Until it answers CQL, and all that are awake see each other."""
        until = time.monotonic() + PATIENCE_S
        while not self._ready(node, state):
            if not state.started[node.number].alive:
                raise _not_started(node, "ended while it started", reason="ended")
            if time.monotonic() > until:
                raise _not_started(node, f"did not answer within {PATIENCE_S:g} s", reason="timeout")
            time.sleep(_LOOK_AGAIN_S)

    def _ready(self, node: Node, state: ClusterState) -> bool:
        # The driver takes its time to import, and every command would pay for it.
        from sweep_tasks.dev.cql import nodes_seen_up, release_version

        if release_version(node.address, state.native_port) is None:
            return False
        awake = [number for number, started in state.running().items() if not started.paused]
        return all(nodes_seen_up(address_of(each), state.native_port) >= len(awake) for each in awake)

    @staticmethod
    def _end(started: list[Started], *, gently: bool) -> None:
        """A paused process hears SIGTERM only when it goes on."""
        if gently:
            for each in started:
                each.signal(signal.SIGTERM)
                each.signal(signal.SIGCONT)
            until = time.monotonic() + _GENTLY_S
            for each in started:
                each.wait(until - time.monotonic())
        for each in started:
            each.signal(signal.SIGKILL)
        for each in started:
            each.wait(_KILLED_S)

    def remove_files(self) -> None:
        """What a cluster put there, and the folder itself only if nothing else is in it."""
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
                    "folder", f"{self.folder} holds something else; name a new or an empty one", reason="not_empty"
                )
            state = ClusterState.new(self.nodes, self.hosts)
            state.write(self.folder)
        if state.nodes != self.nodes:
            raise BadValue(
                "nodes",
                f"the cluster in {self.folder} has {state.nodes}; keep that, end it first, or name another folder",
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

    def _running(self, number: int) -> Started:
        self._check_number(number)
        started = self._state().running().get(number)
        if started is None:
            raise ClusterNotReady(
                f"cassandra: node {number} is not running; start it first", reason="not_running", node=number
            )
        return started

    def _check_number(self, number: int) -> None:
        if number not in self._numbers:
            raise BadValue("node", f"there is no node {number}; they are numbered from 1 to {self.nodes}")

    @property
    def _numbers(self) -> range:
        return range(1, self.nodes + 1)

    def _folder_of(self, number: int) -> Path:
        return self.folder / f"node{number}"

    def _node(self, state: ClusterState, number: int) -> Node:
        return Node(number, self._folder_of(number), state, self._jars())

    def _jars(self) -> Path:
        return cassandra_jars(self._cache or load_settings().cache_folder, self._say)

    @staticmethod
    def _check_java() -> None:
        if problem := java_problem(needed_by="Cassandra"):
            raise problem

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One at a time starts or stops nodes here; whoever comes second goes on from what the first one did."""
        with self._locked() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_still(lock, self.folder / _LOCK):  # the first one removed it all, and its lock with it
                with self.alone():
                    yield
                return
            yield

    def _locked(self) -> BinaryIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return (self.folder / _LOCK).open("ab")
        except OSError as error:
            raise BadValue(
                "folder", f"{self.folder} can't be used: {error.strerror}; name another one", reason="unusable"
            ) from error


def _is_still(opened: BinaryIO, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _no_cluster(folder: Path) -> ClusterNotReady:
    return ClusterNotReady(
        f"folder: there is no cluster in {folder}; start one with 'sweepflow dev cassandra up'",
        field="folder",
        reason="missing",
    )


def _not_started(node: Node, problem: str, reason: str) -> ClusterNotReady:
    return ClusterNotReady(
        f"cassandra: node {node.number} {problem}; its log is {node.log} and ends with\n{node.last_words()}",
        reason=reason,
        node=node.number,
    )
