"""Forked processes for tests: one that answers, and a group of them that outlives its first member."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

PATIENCE_S = 60


def in_child(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a forked child, passed as JSON. A child that hangs is killed and fails the test."""
    read, write = os.pipe()
    child = fork(lambda: tell(write, work()))
    os.close(write)
    with open(read) as answer:
        reported = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(reported)


def fork(work: Callable[[], object]) -> int:
    """Fork a child that does this and never returns to the test. Returns its process id."""
    child = os.fork()
    if child == 0:
        run_and_end(work)
    return child


def run_and_end(work: Callable[[], object]) -> NoReturn:
    ended = 1
    try:
        end_if_it_hangs()
        work()
        ended = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(ended)


def end_if_it_hangs() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE_S)


def tell(pipe: int, document: Any) -> None:
    """Write one line. Short lines of several processes are never mixed."""
    os.write(pipe, json.dumps(document).encode() + b"\n")


class Family:
    """A first process and everything it forks, and a test that reads their output and controls when they continue."""

    def __init__(self) -> None:
        self._output, self._input = os.pipe()
        self._go, self._going = os.pipe()
        self._leave, self._leaving = os.pipe()
        self._heard = b""
        self.first = 0

    # --- for the test -------------------------------------------------------------------------------------------

    @contextmanager
    def started(self, work: Callable[[Family], object]) -> Iterator[Family]:
        self.first = fork(lambda: self._begin(work))
        for end in (self._input, self._go, self._leave):
            os.close(end)
        try:
            yield self
        finally:
            for end in (self._going, self._leaving):
                os.close(end)
            self.hear_all()
            os.close(self._output)
            with suppress(ChildProcessError):
                self.wait_for_first()

    def _begin(self, work: Callable[[Family], object]) -> None:
        for end in (self._output, self._going, self._leaving):
            os.close(end)
        work(self)

    def hear(self, within_s: float = PATIENCE_S) -> Any:
        """The next line of any of them; None when the last one has ended."""
        while b"\n" not in self._heard:
            assert select.select([self._output], [], [], within_s)[0], "no process wrote anything"
            more = os.read(self._output, 65_536)
            if not more:
                return None
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def hear_all(self) -> list[Any]:
        """All output until the last of them has ended."""
        return list(iter(self.hear, None))

    def release(self, count: int) -> None:
        """Release this many children."""
        os.write(self._going, b"." * count)

    def release_first(self) -> None:
        os.write(self._leaving, b".")

    def wait_for_first(self) -> int:
        return os.waitpid(self.first, 0)[1]

    # --- for its members ----------------------------------------------------------------------------------------

    def tell(self, **document: Any) -> None:
        tell(self._input, document)

    def wait_for_release(self) -> None:
        if not os.read(self._go, 1):
            os._exit(1)  # the test has failed meanwhile

    def wait_for_leave(self) -> None:
        os.read(self._leave, 1)
