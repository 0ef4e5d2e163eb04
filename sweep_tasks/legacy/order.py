"""What a run is asked to sweep: a table, from where, how far at most, how much at most.

The same order is given to the sweep in process, to the Spark job as arguments, and to an Airflow task by a form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sweep_tasks.clock import Clock
from sweep_tasks.config import MAX_PAGE_VERSIONS, Settings
from sweep_tasks.errors import BadValue, NotYet, UnknownTable
from sweep_tasks.model import MAX_NAME_BYTES, SweepStrategy, TableRef, checked_timestamp
from sweep_tasks.store.contract import Store, Stretch
from sweep_tasks.sweep.horizon import Horizon, horizon_now

MAX_RANGES = 10_000


@dataclass(frozen=True, slots=True)
class LegacyOrder:
    table: TableRef
    stop_at: int | None = None
    """A sweep timestamp given by hand. It can only lower the one that is found."""
    from_row: bytes = field(default=b"", repr=False)
    """Begin there, in the store's own order of rows."""
    ranges: int = 0
    """How many; 0: as many as the settings say."""
    max_cells: int = 0
    max_seconds: float = 0
    batch: int = 0
    """Versions at a time; 0: as many as the settings say."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.stop_at is not None:
            checked_timestamp(self.stop_at, "stop_at")
        if len(self.from_row) > MAX_NAME_BYTES:
            raise BadValue("from_row", f"has {len(self.from_row)} bytes; at most {MAX_NAME_BYTES} are allowed")
        if not 0 <= self.ranges <= MAX_RANGES:
            raise BadValue("ranges", f"{self.ranges} is out of range; there are 1 to {MAX_RANGES}")
        for name in ("max_cells", "max_seconds", "batch"):
            if getattr(self, name) < 0:
                raise BadValue(name, f"{getattr(self, name)} is negative; give 0 for no limit")
        if not math.isfinite(self.max_seconds):
            raise BadValue("max_seconds", f"{self.max_seconds} is no time; give seconds, or 0 for no limit")
        if self.batch > MAX_PAGE_VERSIONS:
            raise BadValue("batch", f"{self.batch} is too many at once; at most {MAX_PAGE_VERSIONS} are allowed")

    def horizon(self, strategy: SweepStrategy, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """As far as the table may be swept now, if that is how it is swept. Refused where that is nowhere: a scan that
        judges nothing would count as one."""
        found = horizon_now(strategy, store, settings, clock)
        if not found.sweep_ts:
            raise NotYet(
                f"table: nothing in {self.table} is old enough to be swept: the store knows what was written when only "
                f"since its first sweep or transaction; try again {settings.retention_s} s after that (setting "
                "retention_s)",
                reason="too_recent",
            )
        return found if self.stop_at is None else found._replace(sweep_ts=min(found.sweep_ts, self.stop_at))

    def begins_at(self, store: Store) -> bytes:
        """The first place of its first range: tells whether a run that is there is one of the same rows."""
        return store.stretches(self.table, 1, self.from_row)[0].first if self.from_row else b""

    def stretches(self, store: Store, settings: Settings) -> tuple[Stretch, ...]:
        """The ranges of a run. The last one ends behind the rows that are there now: a table that goes on growing at
        its end would never be swept to the end otherwise."""
        found = store.stretches(self.table, self.ranges or settings.legacy_ranges, self.from_row)
        return (*found[:-1], found[-1]._replace(end=store.end_of(self.table)))


def swept_strategy(store: Store, table: TableRef) -> SweepStrategy:
    """How the table is swept now; refused if it is not."""
    found = store.tables([table]).get(table)
    if found is None or table.is_system:
        raise UnknownTable(table)
    if found.strategy is SweepStrategy.NOTHING:
        raise BadValue("table", f"{table} is never swept, its strategy is {found.strategy}; give it another one first")
    return found.strategy
