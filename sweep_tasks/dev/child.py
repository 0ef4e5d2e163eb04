"""A server of ours on this machine: its words go to a file, and it ends when we do, whatever ends us.

Ctrl-C in a terminal reaches a whole group of processes at once; servers are in a group of their own, so that they are
stopped in order, and by us.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from sweep_tasks.errors import PartNotReady

PATIENCE_S = 240.0
_LOOK_EVERY_S = 0.1
_TAIL_LINES = 15

Answer = TypeVar("Answer")


class Child:
    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str],
        folder: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: str | None = None,
    ) -> None:
        """`folder` is where it works; `user` is as whom, if not as we do."""
        self.name = name
        self._log = log
        self._stop_signal = stop_signal
        ends_with_us = ["setpriv", "--pdeathsig", stop_signal.name.removeprefix("SIG")]
        with log.open("wb") as out:
            self._process = psutil.Popen(
                [*(ends_with_us if shutil.which("setpriv") else []), *map(str, command)],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def wait_for(self, what: str, look: Callable[[str], Answer | None]) -> Answer:
        """The first answer of `look`, which is shown what the server has said so far."""
        until = time.monotonic() + PATIENCE_S
        while (answer := look(self._said())) is None:
            self.check()
            if time.monotonic() > until:
                raise PartNotReady(
                    f"{self.name}: waited {PATIENCE_S:g} s for {what} in vain; its log is {self._log}",
                    field=self.name,
                    reason="timeout",
                )
            time.sleep(_LOOK_EVERY_S)
        return answer

    def check(self) -> None:
        if self._process.poll() is not None:
            last_words = "\n".join(self._said().strip().splitlines()[-_TAIL_LINES:])
            raise PartNotReady(
                f"{self.name}: has ended, its log is {self._log}: {last_words}", field=self.name, reason="ended"
            )

    def stop(self, patience_s: float = 20.0) -> None:
        """It, and whatever it started."""
        if not self._process.is_running():
            return
        family = [self._process, *self._process.children(recursive=True)]
        self._process.send_signal(self._stop_signal)
        for each in self._left(family, patience_s):
            each.kill()
        self._left(family, patience_s)
        self._process.wait(patience_s)

    def _left(self, family: list[psutil.Process], patience_s: float) -> list[psutil.Process]:
        """Those that have not ended in that time. A dead one that its new parent never asks for counts as ended."""
        until = time.monotonic() + patience_s
        while True:
            self._process.poll()
            left = [each for each in family if not has_ended(each)]
            if not left or time.monotonic() > until:
                return left
            time.sleep(_LOOK_EVERY_S)

    def _said(self) -> str:
        return self._log.read_text(errors="replace")


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
