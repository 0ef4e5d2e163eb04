"""What to do about a writer that has not finished: wait for a live one, roll back a dead one.

A reader must not pass over an unfinished version below its timestamp, since that writer's commit timestamp may
already be taken. A writer is alive while it holds its lease; it stamps the lease before it writes a value, so whoever
meets a value of its finds the stamp or knows the writer dead.
"""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.clock import Clock
from sweep_tasks.errors import WriterStillCommitting
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.transactions.commits import CommitTable

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1


class Writers:
    def __init__(self, commits: CommitTable, leases: Leases, clock: Clock, patience_s: float) -> None:
        self._commits = commits
        self._leases = leases
        self._clock = clock
        self._patience_ms = int(patience_s * 1000)

    def settled(self, starts: Collection[int]) -> dict[int, int]:
        """The outcome of each, however long that takes, within patience."""
        outcomes = self.settled_without_waiting(starts)
        give_up_at = self._clock.now_ms() + self._patience_ms
        pause = _FIRST_PAUSE_S
        while len(outcomes) < len(starts):
            if self._clock.now_ms() >= give_up_at:
                waiting = min(start for start in starts if start not in outcomes)
                raise WriterStillCommitting(
                    f"transaction: the writer that started at {waiting} has been committing for more than "
                    f"{self._patience_ms / 1000:g} s; try again, or raise the setting writer_wait_s"
                )
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            outcomes |= self.settled_without_waiting([start for start in starts if start not in outcomes])
        return outcomes

    def settled_without_waiting(self, starts: Collection[int]) -> dict[int, int]:
        """The outcome of each but those whose writer is alive and still at it."""
        outcomes = self._commits.outcomes(starts)
        undecided = [start for start in starts if start not in outcomes]
        if not undecided:
            return outcomes
        alive = {lease.start for lease in self._leases.open()}
        # A writer that finished between the two looks has put its outcome before it gave its lease back, so -1 is
        # put in vain and what it put is returned.
        return outcomes | self._commits.abort([start for start in undecided if start not in alive])
