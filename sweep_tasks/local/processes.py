"""Servers on this machine: free ports, the supervisor of their processes, and the record of a local cluster."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import psutil

from sweep_tasks.errors import ServerNotReady, SweepflowError
from sweep_tasks.files import write_whole
from sweep_tasks.processes import inherited_environment

# ---------------------------------------------------------------------------------------------------------------------
# Ports that are free now and that the kernel will not assign later, and whether a server listens at one.
# ---------------------------------------------------------------------------------------------------------------------

_CANDIDATES = range(15_000, 32_000)
"""Below the ports of outgoing connections: a node that is down for a while must find its port free again."""
_ATTEMPTS = 200


def free_ports(count: int, addresses: Sequence[str]) -> list[int]:
    """Return ports that are free on all the addresses."""
    drawn = random.SystemRandom().sample(_CANDIDATES, _ATTEMPTS)
    found = [port for port in drawn if _is_free(port, addresses)]
    if len(found) < count:
        missing = [address for address in addresses if not _is_free(0, [address])]
        problem = f"{', '.join(missing)} is no address of this machine" if missing else "all candidate ports are in use"
        raise ServerNotReady(
            f"cassandra: {problem}, so no node can listen there; 'sweepflow dev cassandra up --nodes 1' "
            "needs 127.0.0.1 alone",
            reason="no_address" if missing else "no_port",
        )
    return found[:count]


def listens(address: str, port: int) -> bool:
    """Return True if a server accepts connections there."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_free(port: int, addresses: Iterable[str]) -> bool:
    with ExitStack() as open_sockets:
        try:
            for address in addresses:
                tried = open_sockets.enter_context(socket.socket())
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind((address, port))
        except OSError:
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Processes that are started here and stopped from anywhere, perhaps by another command on another day.
#
# A process is identified by its number and the time of its start: the number alone may belong to another process by
# now, and processes of others are never touched.
# ---------------------------------------------------------------------------------------------------------------------

PATIENCE_S = 240.0
_STOP_PATIENCE_S = 20.0
_CHECK_EVERY_S = 0.1
_SAME_MOMENT_S = 5.0
"""How much the computed start time of one process may differ between two checks, if the clock is set in between."""
_TAIL_LINES = 15

_GUARD = ["sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"']
"""A parent that was killed before the kernel was asked to end the child with it is no longer the child's parent. So the
process id of the parent, which follows as `$0`, is compared."""
_long_lived_thread = ThreadPoolExecutor(1, thread_name_prefix="starts-processes")
"""The kernel ends a child when the *thread* that started it ends; this one ends with our process."""

T = TypeVar("T")
Failure = Callable[[str, str], SweepflowError]
"""Makes the error of a server from what is wrong, in words, and a reason."""


class Started(NamedTuple):
    """A process that was started here, as it is recorded."""

    pid: int
    at: float

    @classmethod
    def now(cls, pid: int) -> Self:
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """Return the process; None once it has ended, even if another process has its number now."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.at) > _SAME_MOMENT_S:
                return None
        except psutil.NoSuchProcess:
            return None
        return None if has_ended(found) else found

    @property
    def alive(self) -> bool:
        return self.process() is not None

    @property
    def paused(self) -> bool:
        process = self.process()
        return process is not None and process.status() == psutil.STATUS_STOPPED

    def signal(self, number: signal.Signals) -> None:
        process = self.process()
        if process is not None:
            process.send_signal(number)

    def pause(self) -> None:
        """Stop the process until `resume`, and wait for that: one with many threads does not stop at once."""
        self.signal(signal.SIGSTOP)
        _wait_until(lambda: self.paused or not self.alive, _STOP_PATIENCE_S)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        _wait_until(lambda: not self.paused, _STOP_PATIENCE_S)

    def wait(self, patience_s: float) -> bool:
        """Wait for its end. Return False if it is still alive then."""
        return _wait_until(lambda: not self.alive, patience_s)


def start_process(
    command: Sequence[str | Path],
    log: Path,
    *,
    dies_with_parent: bool,
    death_signal: signal.Signals = signal.SIGKILL,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user: str | None = None,
    keeps_log: bool = True,
) -> Started:
    """Start a process in a session of its own, so that Ctrl-C at our terminal does not reach it.

    `log` receives what it prints; `death_signal` is what it gets when this process ends, if it dies with its parent;
    `folder` is its working directory; `user` is the user that runs it, if not ours."""

    def spawn(guard: Sequence[str]) -> Started:
        with log.open("ab" if keeps_log else "wb") as out:
            process = subprocess.Popen(  # noqa: S603
                [*guard, *map(str, command)],
                env=inherited_environment() if environment is None else dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        process.returncode = 0  # Popen would warn about a process that it has not seen end; `Started` looks after it
        return Started.now(process.pid)

    if not dies_with_parent or shutil.which("setpriv") is None:
        return spawn([])
    ends_with_us = ["setpriv", "--pdeathsig", death_signal.name.removeprefix("SIG"), *_GUARD, str(os.getpid())]
    return _long_lived_thread.submit(spawn, ends_with_us).result()


def poll(ready: Callable[[], T | None], patience_s: float, every_s: float = _CHECK_EVERY_S) -> T | None:
    """Return the first answer that is not None; None if there is none in that time."""
    until = time.monotonic() + patience_s
    while (answer := ready()) is None:
        if time.monotonic() > until:
            return None
        time.sleep(every_s)
    return answer


def _wait_until(state: Callable[[], bool], patience_s: float) -> bool:
    return poll(lambda: state() or None, patience_s, every_s=0.05) is not None


def has_ended(process: psutil.Process) -> bool:
    """Return True for a process that has ended, and collect its exit code if it is a child of ours.

    The first thread of a killed process may have ended while others, and with them its open ports, are still there. A
    child of ours stays in the kernel's table until its exit code is collected. Of the children of others only the
    threads can be counted, and their parent may never collect them."""
    try:
        if not process.is_running():
            return True
        if process.status() != psutil.STATUS_ZOMBIE:
            return False
        try:
            return os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
        except ChildProcessError:
            return process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


# ---------------------------------------------------------------------------------------------------------------------
# The supervisor of a server on this machine: start it, wait until it is ready, check it, stop it.
#
# Spark, PostgreSQL, Airflow and Cassandra are all started and stopped by this class.
# ---------------------------------------------------------------------------------------------------------------------


class Server:
    """A server that was started here; what it prints is in `log`."""

    def __init__(
        self,
        name: str,
        started: Started,
        log: Path,
        *,
        stop_signal: signal.Signals = signal.SIGTERM,
        failure: Failure | None = None,
    ) -> None:
        """`failure` makes the errors, if they are not `ServerNotReady`."""
        self.name = name
        self.started = started
        self.stop_signal = stop_signal
        self._log = log
        self._failure = failure or self._not_ready

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str],
        folder: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: str | None = None,
        keeps_log: bool = False,
        failure: Failure | None = None,
    ) -> Self:
        """Start a server that ends with this process, however this process ends."""
        started = start_process(
            command,
            log,
            dies_with_parent=True,
            death_signal=stop_signal,
            environment=environment,
            folder=folder,
            user=user,
            keeps_log=keeps_log,
        )
        return cls(name, started, log, stop_signal=stop_signal, failure=failure)

    @property
    def pid(self) -> int:
        return self.started.pid

    def wait_until(
        self,
        what: str,
        ready: Callable[[], T | None],
        patience_s: float = PATIENCE_S,
        every_s: float = _CHECK_EVERY_S,
    ) -> T:
        """Return the first answer of `ready` that is not None. Raise an error if the server ends before, or is not
        ready in time."""

        def answer() -> T | None:
            if (found := ready()) is None:
                self.check()
            return found

        found = poll(answer, patience_s, every_s)
        if found is None:
            raise self._failure(f"did not show {what} within {patience_s:g} s", "timeout")
        return found

    def wait_for(self, what: str, parse: Callable[[str], T | None]) -> T:
        """Return the first answer of `parse`, which is given what the server has printed so far."""
        return self.wait_until(what, lambda: parse(self._printed()))

    def check(self) -> None:
        """Raise an error if the server has ended."""
        if not self.started.alive:
            raise self._failure("has ended", "ended")

    def stop(self, patience_s: float = _STOP_PATIENCE_S) -> None:
        """Stop the server and everything that it started."""
        stop_servers([self], patience_s=patience_s)

    def family(self) -> list[psutil.Process]:
        """Return its process and the processes that it started; none once it has ended."""
        process = self.started.process()
        return [process, *_descendants(process)] if process else []

    def tail(self) -> str:
        """Return the last lines that it printed."""
        return "\n".join(self._printed().strip().splitlines()[-_TAIL_LINES:])

    def _printed(self) -> str:
        return self._log.read_text(errors="replace")

    def _not_ready(self, problem: str, reason: str) -> ServerNotReady:
        return ServerNotReady(
            f"{self.name}: {problem}; its log is {self._log} and ends with\n{self.tail()}",
            field=self.name,
            reason=reason,
        )


def stop_servers(servers: Sequence[Server], *, gently: bool = True, patience_s: float = _STOP_PATIENCE_S) -> None:
    """Stop servers and everything that they started, all at the same time. What has not ended in time is killed."""
    family = [each for server in servers for each in server.family()]
    if gently:
        for server in servers:
            server.started.signal(server.stop_signal)
            server.started.signal(signal.SIGCONT)  # a paused process handles signals only after it is resumed
        _wait_for_end(family, patience_s)
    left = [each for each in family if not has_ended(each)]
    for each in {*left, *(found for parent in left for found in _descendants(parent))}:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    _wait_for_end(family, patience_s)


def _wait_for_end(processes: Sequence[psutil.Process], patience_s: float) -> None:
    _wait_until(lambda: all(map(has_ended, processes)), patience_s)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


# ---------------------------------------------------------------------------------------------------------------------
# The record of a local cluster between two commands: its ports and processes, in a file of its folder.
# ---------------------------------------------------------------------------------------------------------------------

FILE = "cluster.json"


@dataclass(slots=True)
class ClusterState:
    """The ports and processes of a local cluster. Ports are chosen once: data and published addresses refer to them."""

    nodes: int
    native_port: int
    storage_port: int
    jmx_ports: list[int]
    started: dict[int, Started] = field(default_factory=dict)
    datacenters: list[str] = field(default_factory=list)
    """The datacenter of each node; empty if all nodes are in one."""

    @classmethod
    def new(cls, nodes: int, addresses: list[str], datacenters: Sequence[str] = ()) -> Self:
        native, storage, *jmx = free_ports(2 + nodes, addresses)
        return cls(nodes, native, storage, jmx, datacenters=list(datacenters))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        try:
            kept = json.loads((folder / FILE).read_text())
            started = {int(number): Started(*each) for number, each in kept.pop("started").items()}
            return cls(**kept, started=started)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ServerNotReady(
                f"folder: {folder / FILE} is not the record of a local cluster; stop its Java processes manually if "
                "there are any, remove the folder and start again",
                field="folder",
                reason="unreadable",
            ) from error

    def write(self, folder: Path) -> None:
        """Replace the file as a whole: a concurrent reader gets the previous one."""
        write_whole(folder / FILE, json.dumps(asdict(self), indent=2) + "\n")

    def running(self) -> dict[int, Started]:
        return {number: each for number, each in sorted(self.started.items()) if each.alive}
