"""The sweep of a shard that has nothing to do: the same order of steps, and no work in any of them.

Most shards of most hours are like that. Finding out costs a few reads, and then the progress moves: no Spark is started
for it. The first sign of work ends the look, and somebody else sweeps.
"""

from __future__ import annotations

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.engine import ShardSweep
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.summary import Summary


def sweep_idle(store: Store, settings: Settings, clock: Clock, order: SweepOrder) -> Summary | None:
    """The summary of a shard that had nothing to do, now swept as far as it may be; None if there is work."""
    horizon = order.horizon(store, settings, clock)
    try:
        return IdleSweep(store, order.strategy, order.shard, horizon, clock, order.options(settings)).run()
    except WorkFound:
        return None


class WorkFound(Exception):
    """Not an error: the shard is not idle."""


class IdleSweep(ShardSweep):
    def _sweep_parked(self) -> None:
        if any(True for _ in self._judge.due_holds()):
            raise WorkFound

    def _sweep_late(self, progress: int) -> None:
        if self._late_partitions(progress) or self._some_came_late(progress):
            raise WorkFound

    def _sweep_queue(self, begin: int) -> None:
        sweep_ts = self._horizon.sweep_ts
        for partition in self._reader.partitions(begin, sweep_ts):
            used_up = (partition + 1) * FINE <= sweep_ts
            if used_up or not self._reader.is_empty(partition, begin, sweep_ts):
                raise WorkFound
        self._advance(sweep_ts - 1)
