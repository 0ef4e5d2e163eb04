"""What one run is asked to sweep: a strategy, a shard, how far at most, how much at most.

The same order is given to the in-process sweep, to the Spark job as arguments, and to an Airflow task by a form.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy, checked_timestamp
from sweep_tasks.queue.encoding import checked_shard
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.budget import Budget
from sweep_tasks.sweep.engine import SweepOptions
from sweep_tasks.sweep.horizon import Horizon, horizon_now


@dataclass(frozen=True, slots=True)
class SweepOrder:
    strategy: SweepStrategy
    shard: int
    until_ms: int | None = None
    """The end of the run's data interval; None is now."""
    stop_at: int | None = None
    """A sweep timestamp given by hand. It can only lower the one that is found."""
    max_entries: int = 0
    max_seconds: float = 0
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.strategy not in QUEUES:
            raise BadValue("strategy", f"{self.strategy} is never swept; give {' or '.join(QUEUES)}")
        checked_shard(self.shard)
        if self.stop_at is not None:
            checked_timestamp(self.stop_at, "stop_at")
        for name in ("max_entries", "max_seconds"):
            if getattr(self, name) < 0:
                raise BadValue(name, f"{getattr(self, name)} is negative; give 0 for no limit")

    def options(self, settings: Settings) -> SweepOptions:
        budget = Budget.of(settings, self.max_entries, self.max_seconds)
        return SweepOptions(settings.sweep_batch_entries, settings.grace_s, budget, self.dry_run)

    def horizon(self, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """As far as this order may go now.

        A dry run raises no number of shards, so it may ask about one that the next run is going to make.
        """
        if not self.dry_run:
            Progress(store).check([self.shard])
        found = horizon_now(self.strategy, store, settings, clock, self.until_ms)
        return found if self.stop_at is None else found._replace(sweep_ts=min(found.sweep_ts, self.stop_at))
