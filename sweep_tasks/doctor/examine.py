"""Looks at a store and changes nothing in it: no timestamp is taken, nothing is published.

Every count has a limit and the samples a time, so that it answers soon however large the store is. Where a limit was
met, the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.doctor.facts import (
    Counted,
    Facts,
    OldestProtection,
    OpenTransaction,
    PauseFacts,
    ShardFacts,
    TableFacts,
)
from sweep_tasks.doctor.sample import Sampler
from sweep_tasks.errors import UnknownTable
from sweep_tasks.legacy.candidates import is_running, not_by_turns
from sweep_tasks.legacy.progress import Runs
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.legacy.settling import lacking, queue_passed
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.quarantine import Quarantine
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.location import StoreLocation
from sweep_tasks.store.system import QUEUE_CELLS
from sweep_tasks.sweep.deletions import Deletions
from sweep_tasks.sweep.horizon import Horizon, in_table, old_enough
from sweep_tasks.sweep.lag import lag_s, swept_up_to
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService

MOST = 20_000
"""Queue entries, parked or quarantined ones that are counted."""
_PAGE = 5_000


class Doctor:
    def __init__(self, store: Store, settings: Settings, clock: Clock, sample_s: float) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._sample_until_ms = self._now_ms + round(sample_s * 1000)
        self._puncher = Puncher(store)
        self._greatest = TimestampService(store).greatest()
        self._leases = Leases(store, settings.lease_ttl_s).open()
        self._protections = ProtectionCatalog(store)
        self._reach = {strategy: self._found_reach(strategy) for strategy in SweepStrategy}
        self._sampler = Sampler(store, self._in_time)

    def examine(self, location: StoreLocation) -> Facts:
        tables = Catalog(self._store).list()
        parked, parked_at_least = self._parked()
        records = sorted(self._protections.records(), key=lambda record: record.created_ms or 0)
        size = self._store.size()
        return Facts(
            store=str(location),
            timestamp=self._greatest,
            clock_known=self._puncher.last() is not None,
            tables=tuple(self._tables(tables)),
            shards=tuple(self._shards()),
            queued=self._queued(),
            parked=parked,
            parked_at_least=parked_at_least,
            quarantined=self._quarantined(),
            open_transactions=len(self._leases),
            oldest_transaction=self._oldest_transaction(),
            protections=len(records),
            oldest_protection=OldestProtection(
                records[0].id, records[0].ts, records[0].meta_type, self._age_s(records[0].created_ms)
            ) if records else None,
            protection_max_age_s=self._settings.protection_max_age_s,
            bytes_used=size.used if size else None,
            bytes_free=size.free if size else None,
            tombstones=_ON_NODES if location.cassandra else _NONE,
            tombstones_written=self._tombstones(tables) if location.cassandra else None,
            pauses=tuple(PauseFacts(what, *pause) for what, pause in Pauses(self._store).standing().listed()),
        )  # fmt: skip

    # --- tables ---------------------------------------------------------------------------------------------------

    def _tables(self, tables: dict[TableRef, TableMetadata]) -> Iterator[TableFacts]:
        runs, passed = Runs(self._store).of_all(tables), queue_passed(self._store)
        for table, metadata in tables.items():
            run = runs.get(table)
            last = run.last_whole if run else None
            at_work = is_running(self._store, run, self._settings, self._clock)
            reach = in_table(Horizon(self._reach[metadata.strategy], self._now_ms), metadata.retention_s, self._puncher)
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
                run.owner if run and at_work else None,
                alone.sentence if (alone := not_by_turns(table, self._settings, run)) else None,
                sample,
            )

    def _in_time(self) -> bool:
        return self._clock.now_ms() < self._sample_until_ms

    def _rules(self, table: TableRef, metadata: TableMetadata) -> tuple[TableRules | None, TableRules | None]:
        """What may go now, and what may go once nothing but protections is in the way."""
        if metadata.strategy is SweepStrategy.NOTHING:
            return None, None
        horizon = Horizon(self._reach[metadata.strategy], self._now_ms)
        view = SweepView.published(self._store, horizon, dry_run=True, only=[table]).tables.get(table)
        if view is None:
            return None, None  # swept by nothing since the tables were listed, or dropped
        protections = self._protections.protections()
        now = TableRules(table, view, horizon.sweep_ts, protections)
        return now, TableRules(table, view._replace(horizon=None), self._greatest + 1, protections)

    def _found_reach(self, strategy: SweepStrategy) -> int:
        """As far as a sweep may go, found without taking a timestamp."""
        started = old_enough(strategy, self._now_ms, self._settings.retention_s, self._puncher)
        return min([started, *(lease.ts for lease in self._leases)])

    # --- the queue, and who is in the way -------------------------------------------------------------------------

    def _shards(self) -> Iterator[ShardFacts]:
        objectives = {
            SweepStrategy.CONSERVATIVE: self._settings.lag_objective_conservative_s,
            SweepStrategy.THOROUGH: self._settings.lag_objective_thorough_s,
        }
        for each in swept_up_to(self._store):
            lag = None if each.moment_ms is None else lag_s(each.moment_ms, self._now_ms)
            yield ShardFacts(each.strategy, each.shard, each.progress, lag, objectives[each.strategy])

    def _queued(self) -> Counted:
        found = every(lambda resume: self._store.scan_versions(QUEUE_CELLS, limit=_PAGE, after=resume))
        return _counted(sum(1 for _ in islice(found, MOST + 1)))

    def _quarantined(self) -> Counted:
        found = Quarantine(self._store, TimestampService(self._store)).all()
        return _counted(sum(1 for _ in islice(found, MOST + 1)))

    def _parked(self) -> tuple[dict[str, int], bool]:
        found: Counter[str] = Counter()
        for strategy, shard in Progress(self._store).all():
            parking = Parking(self._store, TimestampService(self._store), strategy, shard)
            for entry in parking.all(_PAGE):
                if found.total() == MOST:
                    return dict(found), True
                found[entry.hold.why.name.lower()] += 1
        return dict(found), False

    def _oldest_transaction(self) -> OpenTransaction | None:
        if not self._leases:
            return None
        oldest = self._leases[0]
        return OpenTransaction(oldest.ts, oldest.owner, self._age_s(self._puncher.moment_of(oldest.ts)))

    def _tombstones(self, tables: Iterable[TableRef]) -> int:
        deletions = Deletions(self._store)
        left = (deletions.left(table, 0, self._now_ms) for table in tables)
        return sum(each.tally.tombstones for each in left if each)

    def _age_s(self, moment_ms: int | None) -> int | None:
        return None if moment_ms is None else max(0, self._now_ms - moment_ms) // 1000


_NONE = "deleting leaves none in this store; what was freed is used again"
_ON_NODES = "how many of them are still there, only the files of the nodes tell: 'sweepflow compaction' is about those"


def _counted(number: int) -> Counted:
    return Counted(min(number, MOST), number > MOST)
