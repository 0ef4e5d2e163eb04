"""Why is this version still here? For every version of a cell exactly one reason, with names and times.

A version that is not live is there because the entries that would remove it have yet to act. Of those the one is looked
at that has the fewest obstacles in its way which do not pass by themselves, and one of its obstacles is the reason.
Take that away and sweep, and the version is gone, or the next obstacle is the reason.

Nothing is changed by asking: no transaction is rolled back, nothing is punched or published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, Span, StoredVersion, SweepStrategy, TableRef
from sweep_tasks.observation.circumstances import look_around
from sweep_tasks.observation.obstacles import (
    Circumstances,
    Obstacle,
    Reason,
    Waiting,
    first_obstacle,
    named,
    obstacles,
    removes,
)
from sweep_tasks.observation.waiting import CellSearch, queues_of
from sweep_tasks.queue.parking import Why
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.commits import ABORTED, CommitTable

Document = dict[str, Any]
_PAGE = 1_000
_NO_ENTRY = Obstacle(Reason.NO_QUEUE_ENTRY)
_NEWEST = Obstacle(Reason.NEWEST)


class Explained(NamedTuple):
    ts: int
    kind: str
    commit: int | None
    state: str
    why: Obstacle
    remover: Waiting | None = None
    """The entry that is looked at: it removes the version, once nothing is in its way."""

    def document(self) -> Document:
        return {
            "ts": self.ts,
            "kind": self.kind,
            "commit": self.commit,
            "state": self.state,
            "reason": self.why.reason.value,
            "until": self.why.until_ms,
            "by": self.why.by,
            "where": _place(self.remover) if self.remover else None,
        }


def explain_cell(
    store: Store, settings: Settings, clock: Clock, table: TableRef, cell: Cell, *, bounded: bool = True
) -> Document:
    """`bounded` is whether sweeps go by open transactions and the retention of the settings; those of a scenario, whose
    sweep timestamps are given, do not."""
    metadata = store.tables([table]).get(table)
    if metadata is None:
        raise UnknownTable(table)
    view = SweepView.published(store, Horizon(MAX_TS, clock.now_ms()), dry_run=True)
    progress = Progress(store).all()
    queues = queues_of(table, cell, 1 + max(shard for _, shard in progress))
    around = look_around(store, settings, clock, view, {queue: progress[queue] for queue in queues}, bounded=bounded)
    versions = list(versions_of(store, table, cell))
    starts = [version.ts for version in versions if version.ts != SENTINEL_TS]
    waiting = CellSearch(store, view, table, cell).waiting(queues, progress, starts)
    outcomes = CommitTable(store).outcomes({*starts, *(each.entry.start for each in waiting)})
    found = explained(versions, outcomes, metadata.strategy, waiting, around)
    return {
        "versions": [each.document() for each in found],
        "queue": [
            _entry(each, outcomes) | {"position": each.position}
            for each in waiting
            if each.hold is None and each.aside is None
        ],
        "parked": [_entry(each, outcomes) | _held(each, around) for each in waiting if each.hold],
    }


def explained(
    versions: Sequence[StoredVersion],
    outcomes: Mapping[int, int],
    strategy: SweepStrategy,
    waiting: Collection[Waiting],
    around: Circumstances,
) -> list[Explained]:
    """Of one cell. `outcomes` are those of its transactions that have ended."""
    newest = max((each.ts for each in versions if outcomes.get(each.ts, ABORTED) != ABORTED), default=None)
    acting = [each for each in waiting if strategy is not SweepStrategy.NOTHING or _acts_anyway(each)]
    found = []
    for version in sorted(versions, key=lambda each: each.ts):
        state = _state(version, outcomes, newest, strategy, acting)
        why, remover = (_NEWEST, None) if state == "live" else _why(version.ts, acting, around)
        found.append(Explained(version.ts, _kind(version), outcomes.get(version.ts), state, why, remover))
    return found


def _acts_anyway(waiting: Waiting) -> bool:
    """Whatever the table is swept by: a sweep has given that write up, and only waits for a slow writer."""
    return waiting.hold is not None and waiting.hold.why is Why.GRACE


def versions_of(store: Store, table: TableRef, cell: Cell) -> Iterator[StoredVersion]:
    """Without the values, and without what else is in the row."""
    after = (cell, MAX_TS)
    while True:
        page = store.scan_versions(table, Span.only(cell.row), _PAGE, after)
        yield from (version for version in page.items if version.cell == cell)
        if page.resume is None or page.resume[0] != cell:
            return
        after = page.resume


def _state(
    version: StoredVersion,
    outcomes: Mapping[int, int],
    newest: int | None,
    strategy: SweepStrategy,
    waiting: Collection[Waiting],
) -> str:
    """What an entry does is its queue's to say, and not what the table is swept by today."""
    sentinel = version.ts == SENTINEL_TS
    commit = outcomes.get(version.ts)
    if not sentinel and (commit is None or commit == ABORTED):
        return "unfinished" if commit is None else "aborted"
    hides_nothing = strategy is SweepStrategy.THOROUGH and (sentinel or version.empty)
    stays = (sentinel or version.ts == newest) and not hides_nothing
    return "live" if stays and not any(removes(each, version.ts) for each in waiting) else "garbage"


def _why(ts: int, waiting: Collection[Waiting], around: Circumstances) -> tuple[Obstacle, Waiting | None]:
    """Of the entry that takes the least to get there, and that entry; a delete that takes itself away comes last, as it
    needs every copy."""
    ways = [(obstacles(each, ts, around), each) for each in waiting if removes(each, ts)]
    if not ways:
        return _NO_ENTRY, None
    way, remover = min(ways, key=lambda each: (*_effort(*each), each[1].entry.start == ts))
    return named(way), remover


def _effort(way: Sequence[Obstacle], waiting: Waiting) -> tuple[int, int, int]:
    """What does not pass by itself, then when the rest has passed, then how many there are. One that came late has its
    partition to wait for."""
    stands = sum(each.until_ms is None for each in way) + (waiting.goes_at is not None)
    return stands, max((each.until_ms or 0 for each in way), default=0), len(way)


def _kind(version: StoredVersion) -> str:
    if version.ts == SENTINEL_TS:
        return "sentinel"
    return "delete" if version.empty else "value"


def _place(waiting: Waiting) -> Document:
    strategy, shard = waiting.queue
    return {
        "strategy": strategy.value,
        "shard": shard,
        "start": waiting.entry.start,
        "position": waiting.position,
        "goes_at": waiting.goes_at,
    }


def _entry(waiting: Waiting, outcomes: Mapping[int, int]) -> Document:
    strategy, shard = waiting.queue
    entry = waiting.entry
    return {
        "strategy": strategy.value,
        "shard": shard,
        "start": entry.start,
        "commit": outcomes.get(entry.start),
        "delete": entry.delete,
    }


def _held(waiting: Waiting, around: Circumstances) -> Document:
    first = first_obstacle(waiting, around)
    return {"reason": first.reason.value, "until": first.until_ms, "by": first.by}
