"""What blocks a table or a shard most: of the entries that wait there, how many wait for what.

A bounded look: of each queue the first entries behind its progress, and the first that are parked; what is set aside
too. Where there were more, the figures are the least that it can be, and that nothing was found means nothing; the
order of the blocks is then that of what was seen. What is set aside and can't be read may be of any table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_TS, SweepStrategy, TableRef
from sweep_tasks.observation.circumstances import look_around, without_times
from sweep_tasks.observation.obstacles import Obstacle, Queue, Reason, Waiting, first_obstacle
from sweep_tasks.observation.waiting import set_aside_in, waiting_in
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.view import SweepView

MOST = 20_000
"""Shared by all queues: what one does not need is left to the others."""
_FEWEST = 100
"""Of a queue, however many there are."""

Document = dict[str, Any]


def explain_table(store: Store, settings: Settings, clock: Clock, table: TableRef, most: int = MOST) -> Document:
    metadata = store.tables([table]).get(table)
    if metadata is None:
        raise UnknownTable(table)
    never_swept = metadata.strategy is SweepStrategy.NOTHING
    found = _blocks(store, settings, clock, Progress(store).all(), table, most)
    return {"table": str(table), "never_swept": never_swept, **found}


def explain_shard(
    store: Store, settings: Settings, clock: Clock, strategy: SweepStrategy, shard: int, most: int = MOST
) -> Document:
    progress = Progress(store)
    progress.check([shard])
    queue = {(strategy, shard): progress.of(strategy, shard)}
    return {"strategy": strategy.value, "shard": shard, **_blocks(store, settings, clock, queue, None, most)}


def _blocks(
    store: Store, settings: Settings, clock: Clock, progress: dict[Queue, int], table: TableRef | None, most: int
) -> Document:
    view = SweepView.published(store, Horizon(MAX_TS, clock.now_ms()), dry_run=True)
    around = without_times(look_around(store, settings, clock, view, progress, bounded=True))
    counted: Counter[Obstacle] = Counter()
    aside = set_aside_in(store, view, progress.keys(), most)
    full, left = aside.full, most
    for number, (queue, reached) in enumerate(progress.items()):
        each = max(_FEWEST, left // (len(progress) - number))
        found = list(waiting_in(store, view, queue, reached, each))
        full = full or _is_full(found, each)
        left = max(0, left - len(found))
        counted.update(first_obstacle(waiting, around) for waiting in found if table in (None, waiting.entry.table))
    counted.update(first_obstacle(waiting, around) for waiting in aside.waiting if table in (None, waiting.entry.table))
    if table is None:
        counted.update(Obstacle(Reason.QUARANTINED, each.reason) for each in aside.unreadable)
    return {
        "entries": counted.total(),
        "at_least": full,
        "unreadable": len(aside.unreadable),
        "blocks": [
            {"reason": why.reason.value, "by": why.by, "entries": number} for why, number in counted.most_common()
        ],
    }


def _is_full(found: Collection[Waiting], each: int) -> bool:
    parked = sum(waiting.hold is not None for waiting in found)
    return parked >= each or len(found) - parked >= each
