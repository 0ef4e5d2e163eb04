"""Explains why versions still exist: for every version of a cell exactly one reason; for a table or shard, the most
frequent reasons.

A version that is not live exists because the entries that would remove it are not processed yet. The entry that can be
processed first decides, and one of its obstacles is the reason. Remove that obstacle and sweep: the version is gone, or
the next obstacle is the reason. Explaining changes nothing: no transaction is aborted, nothing is published.

For a table or shard the work is bounded: the first entries behind the progress of each queue, the first parked entries
and the first quarantined entries are read. If there are more, the numbers are a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.diagnosis.explanation import (
    CellExplanation,
    ExplainedVersion,
    ParkedExplanation,
    QueuedExplanation,
    QueueExplanation,
    ReasonCount,
)
from sweep_tasks.diagnosis.obstacles import (
    Obstacle,
    Queue,
    Reason,
    SweepConditions,
    WaitingEntry,
    effective,
    first_obstacle,
    read_conditions,
    reason_for,
    removes,
)
from sweep_tasks.diagnosis.waiting import CellSearch, quarantined_entries, queues_of, waiting_entries
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, Span, StoredVersion, SweepStrategy, TableRef
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store, chunks
from sweep_tasks.sweep.horizon import Horizon, now_here
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

_PAGE = 1_000
_NO_ENTRY = Obstacle(Reason.NO_QUEUE_ENTRY)
_NEWEST = Obstacle(Reason.NEWEST)

# --- one cell ---------------------------------------------------------------------------------------------------------


def explain_cell(
    store: Store, settings: Settings, clock: Clock, table: TableRef, cell: Cell, *, bounded: bool = True
) -> CellExplanation:
    """Explain every version of a cell.

    `bounded` is False for scenarios: open transactions, the retention setting and clock samples do not limit their
    sweeps, because sweep timestamps and the clock are given.
    """
    metadata = store.tables([table]).get(table)
    if metadata is None:
        raise UnknownTable(table)
    horizon = now_here(MAX_TS, store, settings, clock) if bounded else Horizon(MAX_TS, clock.now_ms())
    view = SweepView.publish(store, horizon, dry_run=True)
    progress = Progress(store).all()
    queues = queues_of(table, cell, 1 + max(shard for _, shard in progress))
    reached = {queue: progress[queue] for queue in queues}
    conditions = read_conditions(store, settings, clock, view, reached, bounded=bounded)
    versions = list(versions_of(store, table, cell))
    starts = [version.ts for version in versions if version.ts != SENTINEL_TS]
    waiting = CellSearch(store, view, table, cell).waiting(queues, progress, starts)
    outcomes = CommitTable(store).outcomes({*starts, *(each.entry.start for each in waiting)})
    stored = sorted((version.ts for version in versions), reverse=True)
    return CellExplanation(
        explain_versions(versions, outcomes, metadata.strategy, waiting, conditions, mark=metadata.mark),
        [_queued(each, outcomes) for each in waiting if each.hold is None and each.quarantined is None],
        [_parked(each, outcomes, first_obstacle(each, stored, conditions)) for each in waiting if each.hold],
    )


def explain_versions(
    versions: Sequence[StoredVersion],
    outcomes: Mapping[int, int],
    strategy: SweepStrategy,
    waiting: Collection[WaitingEntry],
    conditions: SweepConditions,
    *,
    mark: int = 0,
    when: bool = True,
) -> list[ExplainedVersion]:
    """Explain the versions of one cell. `outcomes` are those of finished transactions. No reader sees versions that
    started below `mark`. For `when` see `reason_for`."""
    committed = (each.ts for each in versions if outcomes.get(each.ts, ABORTED) != ABORTED)
    newest = max((ts for ts in committed if ts >= mark), default=None)
    able = effective(strategy, waiting)
    found = []
    for version in sorted(versions, key=lambda each: each.ts):
        state = _state(version, outcomes, newest, strategy, able, conditions)
        otherwise = (_NEWEST if state == "live" else _NO_ENTRY), None
        why, remover = reason_for(version.ts, able, conditions, when=when) or otherwise
        found.append(ExplainedVersion(version.ts, _kind(version), outcomes.get(version.ts), state, why, remover))
    return found


def versions_of(store: Store, table: TableRef, cell: Cell) -> Iterator[StoredVersion]:
    """Read the versions of one cell, without their values."""
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
    waiting: Collection[WaitingEntry],
    conditions: SweepConditions,
) -> str:
    """Return the state of a version. An entry removes what its queue says, whatever the table's strategy is today."""
    sentinel = version.ts == SENTINEL_TS
    commit = outcomes.get(version.ts)
    if not sentinel and (commit is None or commit == ABORTED):
        return "unfinished" if commit is None else "aborted"
    hides_nothing = strategy is SweepStrategy.THOROUGH and (sentinel or version.empty)
    stays = (sentinel or version.ts == newest) and not hides_nothing
    return "live" if stays and not any(removes(each, version.ts, conditions) for each in waiting) else "garbage"


def _kind(version: StoredVersion) -> str:
    if version.ts == SENTINEL_TS:
        return "sentinel"
    return "delete" if version.empty else "value"


def _queued(waiting: WaitingEntry, outcomes: Mapping[int, int]) -> QueuedExplanation:
    entry = waiting.entry
    return QueuedExplanation(*waiting.queue, entry.start, outcomes.get(entry.start), entry.delete, waiting.position)


def _parked(waiting: WaitingEntry, outcomes: Mapping[int, int], why: Obstacle) -> ParkedExplanation:
    entry = waiting.entry
    commit = outcomes.get(entry.start)
    return ParkedExplanation(*waiting.queue, entry.start, commit, entry.delete, why.reason, why.until_ms, why.by)


# --- a table or a shard -----------------------------------------------------------------------------------------------

MOST_EXPLAINED = 20_000
"""The greatest number of entries that are read. The queues share it: what one queue does not use, the next may."""
_FEWEST = 100
"""The number of entries that are read of each queue at least."""
_CELLS = 1_000
_COMPARED = 200_000
"""The greatest number of pairs of a version and an entry that are compared: a cell that is written often has very
many."""


def explain_table(
    store: Store, settings: Settings, clock: Clock, table: TableRef, most: int = MOST_EXPLAINED
) -> QueueExplanation:
    metadata = store.tables([table]).get(table)
    if metadata is None:
        raise UnknownTable(table)
    never_swept = metadata.strategy is SweepStrategy.NOTHING
    found = _explain_queues(store, settings, clock, Progress(store).all(), table, most)
    return replace(found, table=table, never_swept=never_swept)


def explain_shard(
    store: Store, settings: Settings, clock: Clock, strategy: SweepStrategy, shard: int, most: int = MOST_EXPLAINED
) -> QueueExplanation:
    progress = Progress(store)
    progress.check([shard])
    queue = strategy, shard
    found = _explain_queues(store, settings, clock, {queue: progress.of(*queue)}, None, most)
    return replace(found, queue=queue)


def _explain_queues(
    store: Store, settings: Settings, clock: Clock, progress: dict[Queue, int], table: TableRef | None, most: int
) -> QueueExplanation:
    view = SweepView.publish(store, now_here(MAX_TS, store, settings, clock), dry_run=True)
    conditions = read_conditions(store, settings, clock, view, progress, bounded=True)
    counts = _Counts(store, conditions)
    quarantined = quarantined_entries(store, view, progress.keys(), most)
    full, left = quarantined.full, most
    waiting = list(quarantined.waiting)
    for number, (queue, reached) in enumerate(progress.items()):
        share = max(_FEWEST, left // (len(progress) - number))
        found = list(waiting_entries(store, view, queue, reached, share))
        full = full or _is_full(found, share)
        left = max(0, left - len(found))
        waiting += found
    counts.add([each for each in waiting if table in (None, each.entry.table)])
    if table is None:
        counts.entries.update(Obstacle(Reason.QUARANTINED, each.reason) for each in quarantined.unreadable)
    return QueueExplanation(
        entries=counts.entries.total(),
        versions=counts.versions.total(),
        at_least=full or counts.full,
        unreadable=len(quarantined.unreadable),
        blocks=counts.blocks(),
    )


class _Counts:
    """Counts entries by their first obstacle, and the versions that they would remove by the reason that `reason_for`
    gives for each version alone."""

    def __init__(self, store: Store, conditions: SweepConditions) -> None:
        self.entries: Counter[Obstacle] = Counter()
        self.versions: Counter[Obstacle] = Counter()
        self.full = False
        self._store = store
        self._conditions = conditions
        self._left = _COMPARED

    def add(self, waiting: Iterable[WaitingEntry]) -> None:
        by_table: dict[TableRef, dict[Cell, list[WaitingEntry]]] = {}
        for each in waiting:
            by_table.setdefault(each.entry.table, {}).setdefault(each.entry.cell, []).append(each)
        for table, cells in by_table.items():
            for some in chunks(cells, _CELLS):
                stored: dict[Cell, list[int]] = {}
                with suppress(UnknownTable):  # a dropped table still has entries, and no versions
                    stored = self._store.timestamps(table, some)
                for cell in some:
                    self._add_cell(table, cells[cell], stored.get(cell, []))

    def _add_cell(self, table: TableRef, waiting: list[WaitingEntry], stored: list[int]) -> None:
        untimed = self._conditions.without_times()
        self.entries.update(first_obstacle(each, stored, untimed) for each in waiting)
        view = self._conditions.tables.get(table)
        able = effective(view.strategy, waiting) if view else []
        examined = stored[-(self._left // len(waiting)) :] if self._left >= len(waiting) else []
        self._left -= len(examined) * len(waiting)
        self.full = self.full or len(examined) < len(stored)
        for ts in examined:  # the oldest versions: the first entries remove those
            found = reason_for(ts, able, self._conditions, when=False)
            if found:
                self.versions[found[0]._replace(until_ms=None)] += 1

    def blocks(self) -> list[ReasonCount]:
        found = sorted({*self.entries, *self.versions}, key=lambda why: (self.versions[why], self.entries[why]))
        return [ReasonCount(why, self.entries[why], self.versions[why]) for why in reversed(found)]


def _is_full(found: Collection[WaitingEntry], share: int) -> bool:
    parked = sum(waiting.hold is not None for waiting in found)
    return parked >= share or len(found) - parked >= share
