"""Wall-clock time: pendulum at the edges, milliseconds since the epoch inside.

Code that waits or reads the clock gets it as an argument, so that tests and the simulator can replace it.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import pendulum

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Uptime(NamedTuple):
    """How long a machine has been running. This clock can't be set, so it measures how much time has passed between two
    readings with the same `boot`, whatever the wall clock shows."""

    boot: str
    """Containers of one machine share it; a restart changes it."""
    host: str
    """The host name, for messages."""
    ms: int


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def uptime(self) -> Uptime: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def uptime(self) -> Uptime:
        host = socket.gethostname()
        boot = _boot_id()
        if boot is None:  # not Linux: one process is all that is known to share a clock
            return Uptime(f"{host}:{os.getpid()}", host, time.monotonic_ns() // 1_000_000)
        return Uptime(boot, host, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class StandingClock:
    """A clock that always shows one moment, for processes that have to agree on the time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def uptime(self) -> Uptime:
        return SystemClock().uptime()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@cache
def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


def to_ms(moment: pendulum.DateTime) -> int:
    return int(moment.timestamp() * 1000)


def from_ms(wall_ms: int) -> pendulum.DateTime:
    return pendulum.from_timestamp(wall_ms / 1000, tz="UTC")
