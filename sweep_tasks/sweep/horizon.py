"""How far may we sweep?

For a conservative sweep: to what had been started one retention before the end of the run's interval, and no further
than the immutable timestamp. For a thorough sweep: the immutable timestamp alone, bounded by the interval's end.
"""

from __future__ import annotations

from typing import NamedTuple

from sweep_tasks.model import SweepStrategy
from sweep_tasks.timestamps.immutable import immutable_timestamp
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService


class Horizon(NamedTuple):
    """Everything that started below `sweep_ts` may be judged; `wall_ms` is the moment retentions count back from."""

    sweep_ts: int
    wall_ms: int


def horizon(
    strategy: SweepStrategy,
    wall_ms: int,
    retention_s: int,
    timestamps: TimestampService,
    leases: Leases,
    puncher: Puncher,
) -> Horizon:
    """`wall_ms` is now, or the end of the run's interval if that is earlier."""
    immutable = immutable_timestamp(timestamps, leases)
    back_ms = retention_s * 1000 if strategy is SweepStrategy.CONSERVATIVE else 0
    return Horizon(min(immutable, puncher.timestamp_at(wall_ms - back_ms) or 0), wall_ms)
