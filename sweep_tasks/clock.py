"""Wall-clock time: pendulum at the edges, milliseconds since the epoch inside.

Code that waits or looks at the clock is handed one of these, so that the simulator can hand it another.
"""

from __future__ import annotations

import time
from typing import Protocol

import pendulum


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class StandingClock:
    """The time that somebody else has read: what many processes work by who must agree on it."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def to_ms(moment: pendulum.DateTime) -> int:
    return int(moment.timestamp() * 1000)


def from_ms(wall_ms: int) -> pendulum.DateTime:
    return pendulum.from_timestamp(wall_ms / 1000, tz="UTC")
