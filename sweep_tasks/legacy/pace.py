"""How much at a time, and how fast: batches that shrink when the store can't keep up and grow back, and a limit on what
is examined in a second."""

from __future__ import annotations

from sweep_tasks.clock import Clock

LEAST_BATCH = 50
_MOST_FAILURES = 8
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class BatchSize:
    """Halved by each failure, and a quarter larger after each success, up to what was asked for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._failures = 0
        self.now = most

    def succeeded(self) -> None:
        self._failures = 0
        self.now = min(self._most, self.now + max(1, self.now // 4))

    def failed(self) -> float | None:
        """Seconds to wait before the next try; None if there should be none."""
        self._failures += 1
        self.now = max(min(LEAST_BATCH, self._most), self.now // 2)
        if self._failures >= _MOST_FAILURES:
            return None
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * (1 << self._failures - 1))


class Pace:
    """Lets so many versions through in a second, on the average; 0 is no limit."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._due_ms = float(clock.now_ms())

    def passed(self, versions: int) -> None:
        """Waits for as long as these should have taken. Time that was not used is not made up for later."""
        if not self._per_s:
            return
        now = self._clock.now_ms()
        self._due_ms = max(self._due_ms, now) + 1000 * versions / self._per_s
        self._clock.sleep((self._due_ms - now) / 1000)
