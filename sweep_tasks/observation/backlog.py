"""How much is not swept yet: timestamps for certain, entries about.

Nobody counts a queue of millions to draw a line. How many entries came with each timestamp so far is known from all
sweeps before; what lies ahead is taken to be alike. Of a queue that was never swept, a run that ends counts the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from sweep_tasks.model import MAX_TS
from sweep_tasks.observation.tally import Entered, Sums
from sweep_tasks.queue.encoding import read_timestamps_row
from sweep_tasks.queue.progress import NEVER_SWEPT, Progress
from sweep_tasks.queue.reader import QueueReader
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import QUEUE_TIMESTAMPS
from sweep_tasks.sweep.lag import SweptUpTo
from sweep_tasks.timestamps.service import TimestampService

Document = dict[str, Any]
_MARKS = 1_000


def estimated_entries(behind: int, sums: Mapping[str, float] | None) -> int | None:
    """Of so many timestamps; None before the first sweep."""
    passed = sums.get("timestamps", 0) if sums else 0
    return round(sums.get("entries", 0) * behind / passed) if sums and passed else None


def swept_sums(entered: Entered) -> dict[tuple[str, str], Sums]:
    """What sweeps have done, by strategy and shard."""
    return {
        (series.labels["strategy"], series.labels["shard"]): series.sums
        for series in entered.series
        if series.job == "sweep"
    }


def counted_backlog(store: Store, entered: Entered, most: int) -> Document:
    """By queue; where one that was never swept has more than `most`, the least that it can be."""
    sums = swept_sums(entered)
    end = TimestampService(store).greatest() + 1
    entries: dict[str, int] = {}
    at_least = False
    for (strategy, shard), progress in Progress(store).all().items():
        behind = max(0, end - 1 - progress)
        about = estimated_entries(behind, sums.get((strategy.value, str(shard))))
        if about is None:
            batches = QueueReader(store, strategy, shard).batches(progress, end, most)
            about = _length(islice((entry for batch in batches for entry in batch.entries), most))
            at_least = at_least or about == most
        entries[f"{strategy}/{shard}"] = about
    return {"by_shard": entries, "at_least": at_least}


def some_were_never_swept(store: Store, swept: Iterable[SweptUpTo]) -> bool:
    """Whether a queue that nobody ever swept has entries, by the first marks that there are."""
    never = {(each.strategy, each.shard) for each in swept if each.progress == NEVER_SWEPT}
    for cell, _ in store.scan(QUEUE_TIMESTAMPS, MAX_TS, limit=_MARKS).items:
        shard, _, strategy = read_timestamps_row(cell.row)
        if (strategy, shard) in never:
            return True
    return False


def _length(found: Iterable[object]) -> int:
    return sum(1 for _ in found)
