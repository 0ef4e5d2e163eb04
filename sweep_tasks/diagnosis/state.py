"""The state of a store, read in a fixed number of calls: the model that status and doctor are views of.

The number of calls does not depend on the number of shards, transactions or protections: all items of one kind are
read together. Numbers that take counting come from the last sample (`metrics/samples.py`), totals of past runs from the
tally (`metrics/tally.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.clock_problems import ClockProblem, clock_problems
from sweep_tasks.coordination.clock_samples import ClockRecord
from sweep_tasks.coordination.leases import Lease, Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.documents import as_document
from sweep_tasks.diagnosis.lag import ShardLag, SweptUpTo, has_unswept_queue, lags_at, swept_up_to
from sweep_tasks.legacy.progress import Undone
from sweep_tasks.metrics.samples import QueueSample, latest_sample
from sweep_tasks.metrics.tally import SWEEP, LastSweep, Recorded, Series, Tally
from sweep_tasks.model import ScanDue, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.ledger import ProtectionMetadata
from sweep_tasks.protection.records import Record
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.tables.pauses import EVERYTHING, Paused, Pauses


@dataclass(frozen=True, slots=True)
class StoreState:
    now_ms: int
    host: str
    """The host whose clock shows `now_ms`."""
    timestamp: int
    """The last timestamp that was handed out."""
    thresholds: Mapping[SweepStrategy, int]
    swept: list[SweptUpTo]
    clock: ClockRecord | None
    """The last clock sample, and the hosts whose samples are refused."""
    first: ClockSample | None
    """The first clock sample."""
    lag_unknown: bool
    """A queue that was never swept has entries, and without clock samples their age is not known."""
    leases: list[Lease]
    """The open transactions, oldest first."""
    lease_moments: Mapping[int, int | None]
    """The wall time of the oldest lease."""
    meta: ProtectionMetadata
    records: list[Record]
    """The protections."""
    sample: QueueSample | None
    recorded: Recorded
    paused: Paused

    def lags(self) -> list[ShardLag]:
        """Return the lag of each shard; 0 in a store without clock samples."""
        return lags_at(self.now_ms, self.swept, self.first.wall_ms if self.first else self.now_ms)

    def open_since_ms(self, lease: Lease) -> tuple[int | None, bool]:
        """Return the earliest time at which a transaction may have begun, and whether that is a lower bound of its age.

        A transaction older than the first clock sample is open at least since that sample. Without any sample the time
        is None.
        """
        since_ms = self.lease_moments.get(lease.ts)
        if since_ms is None and self.first:
            return self.first.wall_ms, True
        return since_ms, False

    def clock_problems(self, settings: Settings) -> list[ClockProblem]:
        return clock_problems(self.clock, self.now_ms, self.host, settings.clock_step_max_s)

    def sweeps(self) -> Iterator[tuple[Series, LastSweep]]:
        """Yield the totals of each shard that was ever swept, and its last run."""
        for series in self.recorded.series:
            if series.job == SWEEP and isinstance(series.last, LastSweep):
                yield series, series.last


def read_state(store: Store, settings: Settings, clock: Clock) -> StoreState:
    thresholds, clock_history = Thresholds(store), ClockHistory(store)
    leases = Leases(store, settings.lease_ttl_s).open()
    meta, records = ProtectionCatalog(store).state()
    swept, first = swept_up_to(store), clock_history.first()
    return StoreState(
        now_ms=clock.now_ms(),
        host=clock.uptime().host,
        timestamp=TimestampService(store).greatest(),
        thresholds={strategy: thresholds.of_strategy(strategy) for strategy in QUEUES},
        swept=swept,
        clock=clock_history.clock_record(),
        first=first,
        lag_unknown=first is None and has_unswept_queue(store, swept),
        leases=leases,
        lease_moments=clock_history.moments_of([lease.ts for lease in leases[:1]]),
        meta=meta,
        records=records,
        sample=latest_sample(store),
        recorded=Tally(store).read(),
        paused=Pauses(store).current(),
    )


# --- what the doctor finds in addition --------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A whole table, estimated from a sample."""

    versions: int
    cells: int
    versions_per_cell: float
    goes_now: int
    goes_later: int
    scan_seconds: float


class TotalEstimate(NamedTuple):
    """What a scan of all sampled tables would find."""

    versions: int
    goes_now: int
    goes_later: int
    scan_seconds: float


class TableSample(NamedTuple):
    """Part of a table, read as a scan reads it."""

    cells: int
    versions: int
    sentinels: int
    delete_markers: int
    goes_now: int
    """Versions of the sample that a scan would delete now."""
    goes_later: int
    """Versions that a scan would delete when retention has passed and open transactions have ended."""
    share: float
    """The part of the table that was read, approximately; 1 is all of it."""
    at_least: bool
    """The table may be larger than the share suggests."""
    seconds_per_version: float
    """Time to read and judge one version in one process."""

    @property
    def versions_per_cell(self) -> float:
        return self.versions / self.cells if self.cells else 0.0

    def of_all(self, count: int) -> int:
        """Extrapolate a count of the sample to the whole table."""
        return round(count / self.share) if self.share else count

    @property
    def scan_seconds(self) -> float:
        """Time to read and judge the whole table in one process."""
        return self.of_all(self.versions) * self.seconds_per_version

    def estimate(self) -> Estimate:
        return Estimate(
            versions=self.of_all(self.versions),
            cells=self.of_all(self.cells),
            versions_per_cell=round(self.versions_per_cell, 2),
            goes_now=self.of_all(self.goes_now),
            goes_later=self.of_all(self.goes_later),
            scan_seconds=round(self.scan_seconds, 1),
        )


@dataclass(frozen=True, slots=True)
class TableFacts:
    table: TableRef
    strategy: SweepStrategy
    retention_s: int | None = None
    scan_due: ScanDue | None = None
    scan_lacks: Undone | None = None
    """Why a scan now would not complete the scan that is due."""
    reach: int = 0
    """The sweep timestamp of the table now."""
    last_scan_ms: int | None = None
    scan_running: str | None = None
    """The owner of the scan that is running."""
    not_by_turns: str | None = None
    """Why the scheduled scans leave the table out; None if they include it."""
    sample: TableSample | None = None
    """None if the time was over before the table was sampled."""


class PauseFacts(NamedTuple):
    """A table, or everything, that an operator has paused."""

    what: str
    by: str
    reason: str
    since_ms: int


class ShardFacts(NamedTuple):
    strategy: SweepStrategy
    shard: int
    progress: int
    lag_s: int | None
    objective_s: int


class OpenTransaction(NamedTuple):
    """The oldest open transaction, where sweeps stop."""

    lease: int
    owner: str
    age_s: int | None


class OldestProtection(NamedTuple):
    id: str
    ts: int
    owner: str
    age_s: int | None


class LimitedCount(NamedTuple):
    number: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the doctor found in a store."""

    store: str
    timestamp: int
    clock_known: bool
    """The store has a clock sample, so the age of timestamps is known."""
    clocks: tuple[ClockProblem, ...]
    tables: tuple[TableFacts, ...]
    shards: tuple[ShardFacts, ...]
    queued: LimitedCount
    parked: dict[str, int]
    """By reason."""
    parked_at_least: bool
    quarantined: LimitedCount
    open_transactions: int
    oldest_transaction: OpenTransaction | None
    protections: int
    oldest_protection: OldestProtection | None
    protection_max_age_s: int
    bytes_used: int | None
    bytes_free: int | None
    tombstones: str
    """A sentence about tombstones in this kind of store."""
    tombstones_written: int | None = None
    """Written by sweeps; None in a store where deleting leaves no tombstones."""
    pauses: tuple[PauseFacts, ...] = ()
    """A pause of everything comes first."""

    def is_paused(self, what: str) -> bool:
        """Return whether a table (by its name) or everything is paused."""
        return any(pause.what in (what, EVERYTHING) for pause in self.pauses)

    def estimated(self) -> TotalEstimate:
        samples = [each.sample for each in self.tables if each.sample and each.strategy is not SweepStrategy.NOTHING]
        return TotalEstimate(
            versions=sum(each.of_all(each.versions) for each in samples),
            goes_now=sum(each.of_all(each.goes_now) for each in samples),
            goes_later=sum(each.of_all(each.goes_later) for each in samples),
            scan_seconds=round(sum(each.scan_seconds for each in samples), 1),
        )

    def document(self) -> dict[str, Any]:
        return as_document(self) | {
            "tables": [_table_document(each) for each in self.tables],
            "clocks": [each.document() for each in self.clocks],
            "estimated": as_document(self.estimated()),
        }


def _table_document(each: TableFacts) -> dict[str, Any]:
    return as_document(each) | ({"estimated": as_document(each.sample.estimate())} if each.sample else {})
