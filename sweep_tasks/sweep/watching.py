"""How far a sweep under way has got, for whoever watches: a bar, a log, Spark's own page. Numbers, never cells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from sweep_tasks.model import SweepStrategy

log = structlog.get_logger(__name__)

EVERY_S = 5.0


class Reached(NamedTuple):
    strategy: SweepStrategy
    shard: int
    phase: str
    begin: int
    """The progress it began with."""
    progress: int
    sweep_ts: int
    entries: int
    batches: int

    @property
    def share(self) -> float:
        """Of the timestamps that were to be swept, those that are."""
        whole = self.sweep_ts - 1 - self.begin
        return 1.0 if whole <= 0 else min(1.0, max(0.0, (self.progress - self.begin) / whole))


Watcher = Callable[[Reached], None]


def nobody(_: Reached) -> None:
    """Watches."""


class LogEvery:
    """A line every few seconds, however often it is told; none for what is done before the first are over."""

    def __init__(self, seconds: float = EVERY_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now_s = now_s
        self._said_s = now_s()
        self.last: Reached | None = None

    def __call__(self, reached: Reached) -> None:
        self.last = reached
        if self._now_s() - self._said_s >= self._seconds:
            self.say()

    def say(self, **more: object) -> None:
        """Whatever was told last."""
        self._said_s = self._now_s()
        if self.last is not None:
            _, _, phase, _, progress, sweep_ts, entries, batches = self.last
            log.info(
                "sweeping",
                phase=phase,
                done=f"{self.last.share:.0%}",
                progress=progress,
                sweep_ts=sweep_ts,
                entries=entries,
                batches=batches,
                **more,
            )
