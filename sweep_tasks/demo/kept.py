"""How many versions are kept for which reason, over a whole store.

Each version is explained as `sweepflow explain` explains it. Holds every waiting entry in memory: for a store of the
demo's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.demo.measure import every_version
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, StoredVersion, SweepStrategy, TableRef
from sweep_tasks.observation import obstacles
from sweep_tasks.observation.circumstances import look_around, without_times
from sweep_tasks.observation.explain import Explained, explained
from sweep_tasks.observation.obstacles import Waiting
from sweep_tasks.observation.waiting import waiting_in
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.commits import CommitTable


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


_PARKED = (obstacles.Reason.PARKED_REPLICAS, obstacles.Reason.QUARANTINED, obstacles.Reason.PAUSED)


class Kept(NamedTuple):
    """`by` names what keeps: a record, a table with a retention of its own, the owner of a transaction."""

    reason: Reason
    by: str | None = None


def kept(store: Store, settings: Settings, clock: Clock) -> Counter[Kept]:
    """How many versions of the user's tables are kept for which reason."""
    looking = _Looking(store, settings, clock)
    counted: Counter[Kept] = Counter()
    for table, metadata in Catalog(store).list().items():
        for cell, versions in groupby(every_version(store, table), key=itemgetter(0)):
            counted.update(looking.at_cell(table, metadata.strategy, cell, [StoredVersion(*each) for each in versions]))
    return counted


class _Looking:
    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._commits = CommitTable(store)
        progress = Progress(store).all()
        view = SweepView.published(store, Horizon(MAX_TS, clock.now_ms()), dry_run=True)
        self._around = without_times(look_around(store, settings, clock, view, progress, bounded=True))
        self._waiting: dict[tuple[TableRef, Cell], list[Waiting]] = {}
        for queue, reached in progress.items():
            for each in waiting_in(store, view, queue, reached):
                self._waiting.setdefault((each.entry.table, each.entry.cell), []).append(each)

    def at_cell(
        self, table: TableRef, strategy: SweepStrategy, cell: Cell, versions: list[StoredVersion]
    ) -> Iterator[Kept]:
        outcomes = self._commits.outcomes([version.ts for version in versions if version.ts != SENTINEL_TS])
        waiting = self._waiting.get((table, cell), [])
        return (_kept(table, each) for each in explained(versions, outcomes, strategy, waiting, self._around))


def _kept(table: TableRef, found: Explained) -> Kept:
    """What a report is told by: all sentinels as one, and all that never committed."""
    if found.ts == SENTINEL_TS:
        return Kept(Reason.SENTINEL)
    if found.state in ("aborted", "unfinished"):
        return Kept(Reason.NOT_COMMITTED)
    if found.why.reason in _PARKED:
        return Kept(Reason.PARKED)
    if found.why.reason is obstacles.Reason.NO_QUEUE_ENTRY:
        return Kept(Reason.NO_QUEUE_ENTRY, str(table))
    return Kept(Reason(found.why.reason), None if found.why.by is None else str(found.why.by))
