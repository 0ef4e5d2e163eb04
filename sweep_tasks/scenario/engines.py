"""The engines that a scenario can sweep with. An engine sweeps some shards or a table, and returns what it did."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary, SweepCounts


class Sweep(NamedTuple):
    """A sweep of some shards."""

    strategy: SweepStrategy
    shards: Collection[int]
    horizon: Horizon
    options: SweepOptions


class SweepResult(NamedTuple):
    """The result of a sweep of some shards."""

    summaries: list[Summary]
    range_deletes: int
    """Distinct cells over all shards, like `sentinels`."""
    sentinels: int


class SweepEngine(Protocol):
    """Carries out the sweeps of a scenario."""

    def sweep(self, store: Store, sweep: Sweep, clock: Clock) -> SweepResult: ...

    def legacy_sweep(
        self, store: Store, settings: Settings, order: LegacyOrder, horizon: Horizon, clock: Clock
    ) -> LegacySummary: ...


class LocalEngine:
    """Sweeps in this process."""

    def sweep(self, store: Store, sweep: Sweep, clock: Clock) -> SweepResult:
        counted = SweepCounts()
        summaries = [
            ShardSweep(store, sweep.strategy, shard, sweep.horizon, clock, sweep.options, counted).run()
            for shard in sweep.shards
        ]
        return SweepResult(summaries, len(counted.ranged), len(counted.sentinels))

    def legacy_sweep(
        self, store: Store, settings: Settings, order: LegacyOrder, horizon: Horizon, clock: Clock
    ) -> LegacySummary:
        return LegacySweep(store, settings, clock).sweep(order, horizon, take_over=True)
