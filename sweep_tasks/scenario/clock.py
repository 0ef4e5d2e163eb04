"""The clock of a scenario: its own, moved by the scenario alone."""

from __future__ import annotations

from sweep_tasks.timestamps.puncher import Puncher


class ScenarioClock:
    """Starts at the greatest punched time, 0 without one."""

    def __init__(self, puncher: Puncher) -> None:
        last = puncher.last()
        self._now_ms = last.wall_ms if last else 0

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def reach(self, wall_ms: int) -> None:
        """A punch tells what time it is at least."""
        self._now_ms = max(self._now_ms, wall_ms)

    def sleep(self, seconds: float) -> None:
        self.advance(max(1, round(seconds * 1000)))
