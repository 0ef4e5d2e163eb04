"""What came too late for a sweep and was rolled back by somebody else: the last chance to remove it.

An entry that lands below the progress is found while its transaction is undecided. One that a reader rolled back before
the sweep came by looks like those that were judged long ago; but nobody deleted its versions. So before a partition
that was under way is used up, everything in it that was aborted goes once more. Deleting what can never commit is right
whenever it is done. Of a paused table nothing goes now, and the queue is about to forget it: so it is parked.
"""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.parking import Parking, Why
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.sweep.rules import Plan, plan
from sweep_tasks.sweep.tally import Tally
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import ABORTED


def delete_aborted(
    store: Store, view: SweepView, strategy: SweepStrategy, shard: int, progress: int, aborted: Collection[int]
) -> Tally:
    """The versions of these starts, all of the partition that the progress is in. Returned is what that took."""
    partition = progress // FINE
    batch = QueueReader(store, strategy, shard).all_of(partition, partition * FINE, progress + 1)
    entries = [raw for raw in batch.entries if raw.start in aborted]
    readable, _ = view.decoded(entries, dict.fromkeys(aborted, ABORTED), strategy, shard)
    decided = plan(readable, strategy, view.tables, Protections([]), 0)
    paused = [entry for entry in decided.parked if entry.hold.why is Why.PAUSED]
    Parking(store, TimestampService(store), strategy, shard).park(paused)
    return Actions(store, dry_run=False).apply(Plan(exact=decided.exact), view.tables).deleted
