"""A clock that only moves when a test moves it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sweep_tasks.clock import Uptime


class ManualClock:
    def __init__(self, now_ms: int = 1_000_000, boot: str = "manual") -> None:
        """Clocks with the same boot belong to one machine, which has been up since the epoch."""
        self._now_ms = now_ms
        self._uptime = Uptime(boot, boot, now_ms)
        self.while_sleeping: Callable[[], None] | None = None
        """Called whenever a process sleeps, to simulate what happens elsewhere meanwhile."""

    def now_ms(self) -> int:
        return self._now_ms

    def uptime(self) -> Uptime:
        return self._uptime

    def advance(self, seconds: float) -> None:
        self.step(seconds)
        self._uptime = self._uptime._replace(ms=self._uptime.ms + round(seconds * 1000))

    def step(self, seconds: float) -> None:
        """Set the clock. No time passes."""
        self._now_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        if self.while_sleeping:
            self.while_sleeping()


class PatientClock:
    """For a store that counts whole seconds with a clock of its own: waits a little longer than a time that must be
    over, and not at all for a time that must not be over yet."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def advance(self, seconds: float) -> None:
        if seconds >= 1:
            time.sleep(seconds + 2)
