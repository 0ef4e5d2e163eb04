"""Why each version is still there, by looking at what stands between it and its removal.

A version goes when an entry of the queue acts that hides it. So a version that is still there is live, or the entries
that would remove it wait: in the queue, beyond what a sweep may touch yet, or parked. What an entry would remove is
asked of the sweep's own rules. Holds every waiting entry in memory: for a store of the demo's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.demo.measure import every_version
from sweep_tasks.model import SENTINEL_TS, Cell, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import Parking, Why
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.rules import Entry, doomed, holder
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED, CommitTable


class Reason(StrEnum):
    NEWEST = "newest"
    RETENTION = "retention"
    OPEN_TRANSACTION = "open_transaction"
    PROTECTED = "protected"
    BLOCKED = "blocked"
    QUEUED = "queued"
    PARKED = "parked"
    NOT_COMMITTED = "not_committed"
    SENTINEL = "sentinel"
    NO_QUEUE_ENTRY = "no_queue_entry"


class Kept(NamedTuple):
    """`by` names what keeps: a record, a table with a retention of its own, a timestamp."""

    reason: Reason
    by: str | None = None


class _Waiting(NamedTuple):
    entry: Entry
    why: Kept


def kept(store: Store, settings: Settings, clock: Clock) -> Counter[Kept]:
    """How many versions of the user's tables are kept for which reason."""
    looking = _Looking(store, settings, clock)
    counted: Counter[Kept] = Counter()
    for table, metadata in Catalog(store).list().items():
        for cell, versions in groupby(every_version(store, table), key=itemgetter(0)):
            counted.update(looking.at_cell(table, metadata.strategy, cell, [ts for _, ts, _ in versions]))
    return counted


class _Looking:
    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._commits = CommitTable(store)
        self._protections: Protections = ProtectionCatalog(store).protections()
        self._view = SweepView.published(store, Horizon(0, clock.now_ms()), dry_run=True)
        self._limits = {strategy: _limit(store, settings, clock, strategy) for strategy in (
            SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH)}  # fmt: skip
        self._waiting: dict[tuple[TableRef, Cell], list[_Waiting]] = {}
        for strategy, shard in Progress(store).all():
            for each in (*self._queued(strategy, shard), *self._parked(strategy, shard)):
                self._waiting.setdefault((each.entry.table, each.entry.cell), []).append(each)

    def at_cell(self, table: TableRef, strategy: SweepStrategy, cell: Cell, versions: list[int]) -> Iterator[Kept]:
        outcomes = self._outcomes(ts for ts in versions if ts != SENTINEL_TS)
        newest = max((ts for ts, commit in outcomes.items() if commit != ABORTED), default=None)
        waiting = sorted(self._waiting.get((table, cell), ()), key=lambda each: each.entry.start)
        for ts in versions:
            if ts == SENTINEL_TS:
                yield Kept(Reason.SENTINEL)
            elif outcomes[ts] == ABORTED:
                yield Kept(Reason.NOT_COMMITTED)
            else:
                yield self._why(strategy, ts, waiting) or Kept(
                    Reason.NEWEST if ts == newest else Reason.NO_QUEUE_ENTRY, str(table) if ts != newest else None
                )

    def _why(self, strategy: SweepStrategy, ts: int, waiting: list[_Waiting]) -> Kept | None:
        """What keeps the first entry from acting that would remove the version; else the record that covers it."""
        protected: Kept | None = None
        for entry, why in waiting:
            held_by = holder(entry, self._protections)
            if _within(ts, doomed(entry, held_by, strategy)):
                return why
            if held_by and protected is None and _within(ts, doomed(entry, None, strategy)):
                protected = Kept(Reason.PROTECTED, held_by.record)
        return protected

    def _outcomes(self, starts: Iterable[int]) -> dict[int, int]:
        """Those of transactions that never ended are as good as aborted, and nothing is put in their place here."""
        wanted = list(starts)
        return dict.fromkeys(wanted, ABORTED) | self._commits.outcomes(wanted)

    def _queued(self, strategy: SweepStrategy, shard: int) -> Iterator[_Waiting]:
        progress = Progress(self._store).of(strategy, shard)
        end = TimestampService(self._store).greatest() + 1
        batches = QueueReader(self._store, strategy, shard).batches(progress, end)
        raw = [entry for batch in batches for entry in batch.entries]
        outcomes = self._outcomes({entry.start for entry in raw if entry.start is not None})
        entries, _ = self._view.decoded(raw, outcomes, strategy, shard)
        committed = [entry for entry in entries if entry.commit != ABORTED]
        limit = self._limits[strategy]
        swept = Thresholds(self._store).of_strategy(strategy)
        in_the_way = min((e.start for e in committed if e.start < swept <= e.commit), default=None)
        for entry in committed:
            if in_the_way is not None and in_the_way <= entry.start < swept:
                yield _Waiting(entry, Kept(Reason.BLOCKED, str(in_the_way)))
            else:
                beyond = limit is not None and entry.start >= limit[0]
                yield _Waiting(entry, limit[1] if limit and beyond else Kept(Reason.QUEUED))

    def _parked(self, strategy: SweepStrategy, shard: int) -> Iterator[_Waiting]:
        for parked in Parking(self._store, TimestampService(self._store), strategy, shard).all():
            table = self._view.name_of(parked.table_id)
            if table is None or parked.commit == ABORTED:
                continue
            why = Kept(Reason.PARKED)
            if parked.hold.why is Why.RETENTION:
                why = Kept(Reason.RETENTION, str(table))
            elif parked.hold.why is Why.PROTECTED:
                why = Kept(Reason.PROTECTED, parked.hold.record)
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            yield _Waiting(entry, why)


def _limit(store: Store, settings: Settings, clock: Clock, strategy: SweepStrategy) -> tuple[int, Kept] | None:
    """From which start on a sweep may not go now, and because of what: the lower of what holds it back."""
    limits = [(lease.ts, Kept(Reason.OPEN_TRANSACTION, str(lease.ts)))
              for lease in Leases(store, settings.lease_ttl_s).open()]  # fmt: skip
    if strategy is SweepStrategy.CONSERVATIVE:
        old_enough = Puncher(store).timestamp_at(clock.now_ms() - settings.retention_s * 1000) or 0
        limits.append((old_enough, Kept(Reason.RETENTION)))
    return min(limits, default=None)


def _within(ts: int, versions: VersionRange | None) -> bool:
    return versions is not None and versions.first <= ts < versions.end
