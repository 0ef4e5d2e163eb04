"""Processes that are started here and ended from anywhere, perhaps by another command on another day.

A process is known by its number and the moment it was started: a number alone may belong to somebody else by now, and
nobody else's process is ever touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from sweep_tasks.config import inherited_environment

_SAME_MOMENT_S = 5.0
"""How much the computed start of one process may differ between two looks, when the clock is set in between."""
_LOOK_AGAIN_S = 0.05
_PATIENCE_S = 20.0

_GUARD = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"']
"""The kernel is asked to end the process with its parent. A parent that was killed before that is no longer its parent:
that is why the process id of the parent, which follows as `$0`, is compared."""
_long_lived_thread = ThreadPoolExecutor(1, thread_name_prefix="starts-processes")
"""The kernel ends a child when the *thread* that started it does; this one ends with our process."""


class Started(NamedTuple):
    pid: int
    at: float

    @classmethod
    def now(cls, pid: int) -> Self:
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """None once it has ended, whoever has its number now."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.at) > _SAME_MOMENT_S:
                return None
            if found.status() == psutil.STATUS_ZOMBIE and _is_buried(found):
                return None
        except psutil.NoSuchProcess:
            return None
        return found

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
        """A process of many threads does not stop at once."""
        self.signal(signal.SIGSTOP)
        _reached(lambda: self.paused or not self.alive, _PATIENCE_S)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        _reached(lambda: not self.paused, _PATIENCE_S)

    def wait(self, patience_s: float) -> bool:
        """Whether it has ended."""
        return _reached(lambda: not self.alive, patience_s)


def start_process(command: list[str], log: Path, *, dies_with_parent: bool) -> Started:
    """In a session of its own, so that Ctrl-C at our terminal is not for it; `log` gets what it prints."""
    if not dies_with_parent:
        return _spawn(command, log)
    guard = [*_GUARD, str(os.getpid())] if shutil.which("setpriv") else []
    return _long_lived_thread.submit(_spawn, [*guard, *command], log).result()


def _spawn(command: list[str], log: Path) -> Started:
    """Without an object that would have to outlive the process, as `subprocess` wants it."""
    into_log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        command[0],
        command,
        inherited_environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), into_log, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Started.now(pid)


def _reached(state: Callable[[], bool], patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while not state():
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _is_buried(zombie: psutil.Process) -> bool:
    """The first thread of a killed process may be gone while others, and with them its open ports, are still there. A
    child of ours stays in the kernel's table until we ask how it ended; of others' we can only count the threads."""
    try:
        return os.waitpid(zombie.pid, os.WNOHANG)[0] == zombie.pid
    except ChildProcessError:
        return zombie.num_threads() <= 1
