"""What blocks a table or a shard most: of the entries that wait there, how many wait for what.

A bounded look: of each queue the first entries behind its progress, and the first that are parked. Where there were
more, the figures are the least that it can be; the order of the blocks is then that of what was seen.
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
from sweep_tasks.observation.obstacles import Obstacle, Queue, Waiting, first_obstacle
from sweep_tasks.observation.waiting import waiting_in
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.view import SweepView

MOST = 20_000
_FEWEST = 100
"""Of a queue, however many there are."""

Document = dict[str, Any]


def explain_table(store: Store, settings: Settings, clock: Clock, table: TableRef, most: int = MOST) -> Document:
    if table not in store.tables([table]):
        raise UnknownTable(table)
    progress = Progress(store).all()
    return {"table": str(table), **_blocks(store, settings, clock, progress, table, most)}


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
    each = max(_FEWEST, most // len(progress))
    counted: Counter[Obstacle] = Counter()
    full = False
    for queue, reached in progress.items():
        found = list(waiting_in(store, view, queue, reached, each))
        full = full or _is_full(found, each)
        counted.update(first_obstacle(waiting, around) for waiting in found if table in (None, waiting.entry.table))
    return {
        "entries": counted.total(),
        "at_least": full,
        "blocks": [
            {"reason": why.reason.value, "by": why.by, "entries": number} for why, number in counted.most_common()
        ],
    }


def _is_full(found: Collection[Waiting], each: int) -> bool:
    parked = sum(waiting.hold is not None for waiting in found)
    return parked >= each or len(found) - parked >= each
