"""What a change of strategy has left to a scan, and when a scan has done it.

A scan settles it if it has seen the whole table, went far enough, and left nothing behind. How far it went is the sweep
timestamp it published, or as far as a retention of the table's own let it. Where sentinels and delete markers of a
conservative table are to go, the conservative queue must have passed that point too before the scan began: its entries
are judged by the rules of their queue, and would write sentinels behind the back of the scan; so would those that are
parked, until they are judged.
"""

from __future__ import annotations

from itertools import islice

from sweep_tasks.catalog import Catalog
from sweep_tasks.legacy.counts import Counts
from sweep_tasks.legacy.progress import Run
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Activity
from sweep_tasks.sweep.rules import TableView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import ABORTED

_PARKED_LOOKED_AT = 10_000


def queue_passed(store: Store) -> int:
    """Everything that started below this is judged in every shard of the conservative queue, or parked."""
    standing = Progress(store).all()
    return 1 + min(ts for (strategy, _), ts in standing.items() if strategy is SweepStrategy.CONSERVATIVE)


def far_enough(waits: bool, since: int, reach: int, passed: int) -> bool:
    """Whether a scan up to `reach` does what is due; where it waits for the conservative queue, if that had passed this
    much before."""
    return since <= (min(reach, passed) if waits else reach)


def settle(store: Store, run: Run, view: TableView, counts: Counts) -> bool:
    """After a run is finished. True if something was due and is done."""
    if run.table not in store.tables([run.table]):
        return False
    if not run.is_whole:
        return False
    Activity(store).scanned(run.table, run.written)
    metadata = Catalog(store).date_scan(run.table)
    due = metadata.scan_due
    if due is None or due.since is None or counts.held or counts.waiting or counts.left:
        return False
    reach = run.horizon.sweep_ts if view.horizon is None else min(view.horizon, run.horizon.sweep_ts)
    waits = metadata.scan_waits_for_queue
    if not far_enough(waits, due.since, reach, run.queue_passed):
        return False
    if waits and _may_be_parked(store, run.table):
        return False
    return Catalog(store).scanned(run.table, reach)


def _may_be_parked(store: Store, table: TableRef) -> bool:
    """Whether entries of the table wait in the conservative queue; so many of others that nobody looked at them all
    count as if."""
    table_id = TableIds(store).id_of(table)
    looked_at = 0
    for strategy, shard in Progress(store).all():
        if strategy is not SweepStrategy.CONSERVATIVE:
            continue
        parking = Parking(store, TimestampService(store), strategy, shard)
        for entry in islice(parking.all(), _PARKED_LOOKED_AT):
            looked_at += 1
            ours = entry.table_id == table_id and entry.commit != ABORTED
            if ours or looked_at >= _PARKED_LOOKED_AT:
                return True
    return False
