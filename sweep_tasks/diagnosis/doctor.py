"""Examines a store without changing it: no timestamp is taken, nothing is published.

Every count has a limit and the sampling of tables has a time limit, so that the answer comes soon however large the
store is. Where a limit was reached, the answer says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.lag import lag_s, objectives
from sweep_tasks.diagnosis.state import (
    Facts,
    LimitedCount,
    OldestProtection,
    OpenTransaction,
    PauseFacts,
    ShardFacts,
    TableFacts,
    TableSample,
    read_state,
)
from sweep_tasks.errors import UnknownTable
from sweep_tasks.legacy.candidates import is_running, why_unscheduled
from sweep_tasks.legacy.progress import Runs
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.legacy.strategy_changes import lacking, queue_passed
from sweep_tasks.model import SENTINEL_TS, StoredVersion, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.parking import Parking, Quarantine
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import EVERYWHERE, ScanRange, Store, every
from sweep_tasks.store.location import StoreLocation
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.sweep.horizon import Horizon, in_table, old_enough
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.deletions import Deletions
from sweep_tasks.transactions.outcomes import CommitTable

# --- samples of tables ------------------------------------------------------------------------------------------------
# A small table is read completely. The scan order of a large table is split into parts and a few of them are read; if
# one is too long to be read to its end, the table is split into smaller parts. The versions are judged by the rules of
# a scan, without deleting anything, so the sample shows what a scan would remove.
#
# The time that a scan takes is measured on the first few thousand versions, which are read in sequence as a scan does.
# Small parts are not measured: most of their time is the latency of requests.

_SAMPLE_PAGE = 1_000
_WHOLE = 5_000
"""A table with fewer versions than this is read completely."""
_PER_PART = 2_000
_PARTS_READ = 8
_CUTS = (16, 256, 4_096, 65_536)


class _Read(NamedTuple):
    parts: list[list[StoredVersion]]
    share: float
    """The part of the table that was read."""
    at_least: bool
    """The share may be smaller."""


class Sampler:
    """Samples tables while `in_time` returns True. The first few thousand versions are always read."""

    def __init__(
        self,
        store: Store,
        in_time: Callable[[], bool] = lambda: True,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._in_time = in_time
        self._now_s = now_s
        self._commits = CommitTable(store)

    def sample(self, table: TableRef, now: TableRules | None, later: TableRules | None) -> TableSample:
        """Sample a table, and judge the sample by two sets of rules; None for a table that is never swept."""
        began = self._now_s()
        first, complete = self._read_part(table, EVERYWHERE, _WHOLE)
        removable_of_first = self._removable(now, first)
        per_version = (self._now_s() - began) / len(first) if first else 0.0
        read = _Read([first], 1.0, False) if complete else self._read_parts(table, first)
        found = [version for part in read.parts for version in part]
        sentinels = sum(ts == SENTINEL_TS for _, ts, _ in found)
        return TableSample(
            cells=sum(1 for _ in groupby(found, key=lambda version: version.cell)),
            versions=len(found),
            sentinels=sentinels,
            delete_markers=sum(empty for _, _, empty in found) - sentinels,
            goes_now=removable_of_first if complete else sum(self._removable(now, part) for part in read.parts),
            goes_later=sum(self._removable(later, part) for part in read.parts),
            share=read.share,
            at_least=read.at_least,
            seconds_per_version=per_version,
        )

    def _read_parts(self, table: TableRef, first: list[StoredVersion]) -> _Read:
        """Split the table into smaller and smaller parts until a few can be read to their end, or the time is over."""
        read = _Read([first], 1.0, True)
        for cut in _CUTS:
            if not self._in_time():
                break
            scan_ranges = self._store.scan_ranges(table, cut)
            picked = scan_ranges[:: -(-len(scan_ranges) // _PARTS_READ)]
            parts = [self._read_part(table, scan_range, _PER_PART) for scan_range in picked if self._in_time()]
            if not parts:
                break
            at_least = not all(complete for _, complete in parts)
            read = _Read([found for found, _ in parts], len(parts) / len(scan_ranges), at_least)
            if not at_least or len(scan_ranges) < cut // 2:
                break
        return read

    def _read_part(self, table: TableRef, scan_range: ScanRange, most: int) -> tuple[list[StoredVersion], bool]:
        """Read up to `most` versions. Return them, and whether that was the whole part."""
        found: list[StoredVersion] = []
        resume = None
        while len(found) < most:
            page = self._store.scan_versions(table, limit=_SAMPLE_PAGE, after=resume, scan_range=scan_range)
            found += page.items
            resume = page.resume
            if resume is None:
                return found, True
        return found, False

    def _removable(self, rules: TableRules | None, versions: list[StoredVersion]) -> int:
        if rules is None:
            return 0
        outcomes = self._commits.abort_unfinished(rules.starts(versions), dry_run=True)
        return rules.judged(None, versions, outcomes, at_end=True).counts.deleted


# --- the examination --------------------------------------------------------------------------------------------------

MOST = 20_000
"""The greatest number of queued, parked or quarantined entries that are counted."""
_PAGE = 5_000


class Doctor:
    def __init__(self, store: Store, settings: Settings, clock: Clock, sample_s: float) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._state = read_state(store, settings, clock)
        self._sample_until_ms = self._state.now_ms + round(sample_s * 1000)
        self._clock_history = ClockHistory(store)
        self._believed_ms = self._clock_history.believed_ms(clock, settings.clock_step_max_s)
        self._sweep_ts = {strategy: self._sweep_timestamp(strategy) for strategy in SweepStrategy}
        self._sampler = Sampler(store, self._in_time)

    def examine(self, location: StoreLocation) -> Facts:
        state = self._state
        tables = Catalog(self._store).list()
        parked, parked_at_least = self._parked()
        size = self._store.size()
        return Facts(
            store=str(location),
            timestamp=state.timestamp,
            clock_known=state.clock is not None,
            clocks=tuple(state.clock_problems(self._settings)),
            tables=tuple(self._tables(tables)),
            shards=tuple(self._shards()),
            queued=self._queued(),
            parked=parked,
            parked_at_least=parked_at_least,
            quarantined=self._quarantined(),
            open_transactions=len(state.leases),
            oldest_transaction=self._oldest_transaction(),
            protections=len(state.records),
            oldest_protection=self._oldest_protection(),
            protection_max_age_s=self._settings.protection_max_age_s,
            bytes_used=size.used if size else None,
            bytes_free=size.free if size else None,
            tombstones=_TOMBSTONES_ON_NODES if location.has_tombstones else _NO_TOMBSTONES,
            tombstones_written=self._tombstones(tables) if location.has_tombstones else None,
            pauses=tuple(PauseFacts(what, *pause) for what, pause in state.paused.listed()),
        )

    # --- tables ---------------------------------------------------------------------------------------------------

    def _tables(self, tables: dict[TableRef, TableMetadata]) -> Iterator[TableFacts]:
        runs, passed = Runs(self._store).of_all(tables), queue_passed(self._store)
        for table, metadata in tables.items():
            run = runs.get(table)
            last = run.last_whole if run else None
            running = is_running(self._store, run, self._settings, self._clock)
            reach = in_table(self._horizon(metadata.strategy), metadata.retention_s, self._clock_history)
            try:
                sample = self._sampler.sample(table, *self._rules(table, metadata)) if self._in_time() else None
            except UnknownTable:
                continue  # dropped since the tables were listed
            yield TableFacts(
                table,
                metadata.strategy,
                metadata.retention_s,
                metadata.scan_due,
                lacking(self._store, table, metadata, reach, passed, MOST),
                reach,
                last.ended_ms if last else None,
                run.owner if run and running else None,
                unscheduled.sentence if (unscheduled := why_unscheduled(table, self._settings, run)) else None,
                sample,
            )

    def _in_time(self) -> bool:
        return self._clock.now_ms() < self._sample_until_ms

    def _rules(self, table: TableRef, metadata: TableMetadata) -> tuple[TableRules | None, TableRules | None]:
        """Return the rules of a scan now, and those of a later scan, when only protections still keep versions."""
        if metadata.strategy is SweepStrategy.NOTHING:
            return None, None
        horizon = self._horizon(metadata.strategy)
        view = SweepView.publish(self._store, horizon, dry_run=True, only=[table]).tables.get(table)
        if view is None:
            return None, None  # dropped or set to strategy nothing since the tables were listed
        protections = ProtectionCatalog(self._store).protections()
        now = TableRules(table, view, horizon.sweep_ts, protections)
        return now, TableRules(table, view._replace(horizon=None), self._state.timestamp + 1, protections)

    def _horizon(self, strategy: SweepStrategy) -> Horizon:
        return Horizon(self._sweep_ts[strategy], self._believed_ms)

    def _sweep_timestamp(self, strategy: SweepStrategy) -> int:
        """Return the sweep timestamp of a strategy, computed without taking a timestamp."""
        started = old_enough(strategy, self._believed_ms, self._settings.retention_s, self._clock_history)
        return min([started, *(lease.ts for lease in self._state.leases)])

    # --- the queue, and what holds sweeps back ---------------------------------------------------------------------

    def _shards(self) -> Iterator[ShardFacts]:
        allowed = objectives(self._settings)
        for each in self._state.swept:
            lag = None if each.moment_ms is None else lag_s(each.moment_ms, self._state.now_ms)
            yield ShardFacts(each.strategy, each.shard, each.progress, lag, allowed[each.strategy])

    def _queued(self) -> LimitedCount:
        found = every(lambda resume: self._store.scan_versions(QUEUE_CELLS, limit=_PAGE, after=resume))
        return _counted(found)

    def _quarantined(self) -> LimitedCount:
        return _counted(Quarantine(self._store, TimestampService(self._store)).all())

    def _parked(self) -> tuple[dict[str, int], bool]:
        """Count parked entries by reason; True if there are more than were counted."""
        found: Counter[str] = Counter()
        for strategy, shard in Progress(self._store).all():
            parking = Parking(self._store, TimestampService(self._store), strategy, shard)
            for entry in parking.all(_PAGE):
                if found.total() == MOST:
                    return dict(found), True
                found[entry.hold.why.name.lower()] += 1
        return dict(found), False

    def _oldest_transaction(self) -> OpenTransaction | None:
        for oldest in self._state.leases[:1]:
            age_s = self._age_s(self._state.lease_moments.get(oldest.ts))
            return OpenTransaction(oldest.ts, oldest.owner, age_s)
        return None

    def _oldest_protection(self) -> OldestProtection | None:
        oldest = min(self._state.records, key=lambda record: record.created_ms or 0, default=None)
        if oldest is None:
            return None
        return OldestProtection(oldest.id, oldest.ts, oldest.meta_type, self._age_s(oldest.created_ms))

    def _tombstones(self, tables: Iterable[TableRef]) -> int:
        deletions = Deletions(self._store)
        left = (deletions.left(table, 0, self._state.now_ms) for table in tables)
        return sum(each.tally.tombstones for each in left if each)

    def _age_s(self, moment_ms: int | None) -> int | None:
        return None if moment_ms is None else max(0, self._state.now_ms - moment_ms) // 1000


_NO_TOMBSTONES = "deleting leaves none in this store, and the space is reused"
_TOMBSTONES_ON_NODES = "only the files of the nodes show how many are still there, see 'sweepflow compaction'"


def _counted(found: Iterable[object]) -> LimitedCount:
    """Count up to the limit."""
    number = sum(1 for _ in islice(found, MOST + 1))
    return LimitedCount(min(number, MOST), number > MOST)
