"""A clock that stands still until it is moved."""

from __future__ import annotations

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
