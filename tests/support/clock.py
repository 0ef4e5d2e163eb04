"""A clock that stands still until it is moved."""

from __future__ import annotations

import time
from collections.abc import Callable


class ManualClock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self.while_sleeping: Callable[[], None] | None = None
        """Runs whenever somebody sleeps: what happens elsewhere in the meantime."""

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        if self.while_sleeping:
            self.while_sleeping()


class PatientClock:
    """For a store that counts whole seconds by a clock of its own: what must be over is waited for, and a little
    longer; what must not be over yet is not waited for at all."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def advance(self, seconds: float) -> None:
        if seconds >= 1:
            time.sleep(seconds + 2)
