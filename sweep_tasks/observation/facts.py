"""Everything that the state of a store is told by, read in a fixed number of calls.

However many shards and protections there are: each kind of thing is read at once. What would have to be counted comes
from the last sample (`samples.py`), what runs did from the tally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy
from sweep_tasks.observation.backlog import some_were_never_swept
from sweep_tasks.observation.samples import latest_sample
from sweep_tasks.observation.tally import Entered, Tally
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.ledger import Meta
from sweep_tasks.protection.records import Record
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.lag import ShardLag, SweptUpTo, lags_at, swept_up_to
from sweep_tasks.sweep.pauses import Paused, Pauses
from sweep_tasks.timestamps.leases import Lease, Leases
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class Facts:
    now_ms: int
    timestamp: int
    """The last one handed out."""
    thresholds: Mapping[SweepStrategy, int]
    swept: list[SweptUpTo]
    first: Punch | None
    """Where the wall-clock map begins."""
    waits_unknown: bool
    """Entries wait in a queue that was never swept, and there is no wall-clock map to tell since when."""
    leases: list[Lease]
    lease_moments: Mapping[int, int | None]
    meta: Meta
    records: list[Record]
    sample: dict[str, Any] | None
    entered: Entered
    paused: Paused

    def lags(self) -> list[ShardLag]:
        """As of now; of a store without a wall-clock map none is known to be behind."""
        return lags_at(self.now_ms, self.swept, self.first.wall_ms if self.first else self.now_ms)

    def open_since_ms(self, lease: Lease) -> tuple[int | None, bool]:
        """When a transaction began, at the earliest. One that is older than the wall-clock map is open at least since
        that began, and then True; None where there is no map."""
        since_ms = self.lease_moments.get(lease.ts)
        if since_ms is None and self.first:
            return self.first.wall_ms, True
        return since_ms, False


def read_facts(store: Store, settings: Settings, clock: Clock) -> Facts:
    thresholds, puncher = Thresholds(store), Puncher(store)
    leases = Leases(store, settings.lease_ttl_s).open()
    meta, records = ProtectionCatalog(store).state()
    swept, first = swept_up_to(store), puncher.first()
    return Facts(
        now_ms=clock.now_ms(),
        timestamp=TimestampService(store).greatest(),
        thresholds={strategy: thresholds.of_strategy(strategy) for strategy in QUEUES},
        swept=swept,
        first=first,
        waits_unknown=first is None and some_were_never_swept(store, swept),
        leases=leases,
        lease_moments=puncher.moments_of([lease.ts for lease in leases[:1]]),
        meta=meta,
        records=records,
        sample=latest_sample(store),
        entered=Tally(store).read(),
        paused=Pauses(store).standing(),
    )
