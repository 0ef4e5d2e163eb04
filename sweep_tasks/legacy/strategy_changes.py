"""The scan that a change of strategy requires, and the check whether a run has done it.

The run must have scanned the whole table, gone far enough (`progress.py`), and left nothing behind. Otherwise the scan
stays due, and the reason is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy.progress import Run, Undone, short_of
from sweep_tasks.model import MAX_TS, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry, Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.tables.activity import Activity
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import ABORTED

_PAGE = 1_000


def queue_passed(store: Store) -> int:
    """Return the timestamp below which every shard of the conservative queue has judged or parked everything."""
    existing = Progress(store).all()
    return 1 + min(ts for (strategy, _), ts in existing.items() if strategy is SweepStrategy.CONSERVATIVE)


def lacking(
    store: Store, table: TableRef, metadata: TableMetadata, sweep_ts: int, passed: int, most: int | None = None
) -> Undone | None:
    """Return what a scan of the table lacks to complete a change of strategy. Parked entries are read only if nothing
    else is missing. If there are more than `most`, some are assumed to belong to the table."""
    found = short_of(metadata, sweep_ts, passed, parked=False)
    if found or metadata.scan_due is None or not metadata.scan_waits_for_queue:
        return found
    return short_of(metadata, sweep_ts, passed, are_parked(store, table, most))


def lacked(store: Store, run: Run, sweep_ts: int) -> Undone | None:
    """Return what a run that has done all its ranges lacked."""
    if run.table not in store.tables([run.table]):
        return None
    return lacking(store, run.table, Catalog(store).date_scan(run.table), sweep_ts, run.queue_passed)


def complete_scan(store: Store, run: Run) -> Undone | None:
    """Record what a finished run has completed. Return why the scan is still due, or None."""
    if run.table not in store.tables([run.table]):
        return None
    if run.is_whole and run.went_up_to:
        Activity(store).record_scan(run.table, run.written)
    if Catalog(store).date_scan(run.table).scan_due is None:
        return None
    undone = undone_by(run)
    if undone is None:
        Catalog(store).complete_scan(run.table, run.went_up_to)
    return undone


def undone_by(run: Run) -> Undone | None:
    counts = run.counts
    hindrances = {
        Undone.PART: not run.is_whole,
        Undone.HELD: counts.held,
        Undone.WAITING: counts.waiting,
        Undone.LEFT: counts.left,
    }
    return run.lacked or next((why for why, is_so in hindrances.items() if is_so), None)


def are_parked(store: Store, table: TableRef, most: int | None = None) -> bool:
    """Return whether entries of the table are parked in the conservative queue. Aborted ones write no sentinels."""
    table_id = TableIds(store).known_id(table)
    if table_id is None:
        return False
    is_of_others = _of_others(store, table, table_id)
    examined = 0
    for strategy, shard in Progress(store).all():
        if strategy is not SweepStrategy.CONSERVATIVE:
            continue
        for entry in _not_under(Parking(store, TimestampService(store), strategy, shard), is_of_others):
            examined += 1
            if (entry.table_id == table_id and entry.commit != ABORTED) or examined == most:
                return True
    return False


def _of_others(store: Store, table: TableRef, table_id: int) -> Callable[[Hold], bool]:
    """Return a function that returns True for a hold of other tables only: entries under such a hold are not read."""
    records = {record.id: record for record in ProtectionCatalog(store).records()}
    existing = Protections(records.values())

    @cache
    def is_of_others(hold: Hold) -> bool:
        if hold.why is HoldReason.PROTECTED:
            record = records.get(hold.record)
            recreated = existing.frees_below(hold.record, hold.record_ts) == MAX_TS  # it may have covered others before
            return record is not None and not recreated and not record.covers_table(table)
        return hold.why is HoldReason.GRACE or (
            hold.why in (HoldReason.RETENTION, HoldReason.PAUSED) and hold.table_id != table_id
        )

    return is_of_others


def _not_under(parking: Parking, passed_over: Callable[[Hold], bool]) -> Iterator[ParkedEntry]:
    after = b""
    while entries := parking.page(after, _PAGE).entries:
        yield from (entry for entry in entries if not passed_over(entry.hold))
        last = entries[-1]
        after = Parking.behind(last.hold) if passed_over(last.hold) else last.column()
