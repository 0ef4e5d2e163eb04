"""The entries of a cell that have yet to act: in the queue, parked, or set aside.

Where they may be follows from the cell and from when its versions were written: a shared row of the queue for each
partition and shard, and below each hold a column for each start. So they are looked up, and a queue of millions is not
read for one cell. Entries of writes that left no version can only be met by reading: that is done for so many.

A cell falls to a shard by the number of shards that there was when it was written; all that may have been are looked
at, that of today first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from sweep_tasks.encoding import var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.observation.obstacles import Queue, Waiting
from sweep_tasks.queue.encoding import FINE, fine, read_write
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.queue.reader import DEFAULT_BATCH, QueueReader, RawEntry, Reference
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import ABORTED, CommitTable

MOST = 10_000
"""Entries that are read of each queue and of each parking, looking for some that left no version."""
_STARTS = 1_000
_MOST_ASIDE = 100_000


def queues_of(table: TableRef, cell: Cell, shards: int) -> list[Queue]:
    """Where entries of the cell may be, the likeliest first. Any strategy: tables change theirs."""
    numbers = dict.fromkeys(shard_of(table, cell, number) for number in range(shards, 0, -1))
    return [(strategy, shard) for shard in numbers for strategy in QUEUES]


class CellSearch:
    """Looks for the entries of one cell."""

    def __init__(self, store: Store, view: SweepView, table: TableRef, cell: Cell) -> None:
        self._store = store
        self._view = view
        self._table = table
        self._cell = cell
        self._commits = CommitTable(store)
        self._timestamps = TimestampService(store)
        self._table_id = TableIds(store).known_id(table)

    def waiting(self, queues: Sequence[Queue], progress: dict[Queue, int], starts: Collection[int]) -> list[Waiting]:
        """`starts` are those of the cell's versions."""
        newest = sorted(starts, reverse=True)[:_STARTS]
        today = queues[: len(QUEUES)]
        found: dict[tuple[int, Queue, Hold | None, bool], Waiting] = {}
        left = set(newest)
        for queue in queues:
            parked = list(self._parked(queue, newest))
            found |= {(each.entry.start, queue, each.hold, False): each for each in parked}
            judged = {each.entry.start for each in parked}
            raw = [*self._announced(queue, left), *(self._read(queue, progress[queue]) if queue in today else ())]
            for each in self._of_cell(queue, raw):
                left.discard(each.entry.start)
                if not self._is_done(each, progress[queue], judged):
                    found[each.entry.start, queue, None, False] = each
        for aside in self._set_aside(set(queues), {each.entry.start for each in found.values()}, set(starts)):
            found[aside.entry.start, aside.queue, None, True] = aside
        return sorted(found.values(), key=lambda each: each.entry.start)

    # --- the queue ------------------------------------------------------------------------------------------------

    def _announced(self, queue: Queue, starts: Collection[int]) -> Iterator[RawEntry]:
        reader = QueueReader(self._store, *queue)
        for start in starts:
            columns = Span(var_long(start % FINE), var_long(start % FINE + 1))
            for each in reader.shared(fine(start), start - 1, start + 1, columns):
                if isinstance(each, Reference):
                    yield from (raw for row in reader.dedicated_rows(each) for raw in reader.dedicated(start, row))
                elif each.start == start:
                    yield each

    def _read(self, queue: Queue, progress: int) -> Iterator[RawEntry]:
        """The first that come behind the progress, whatever they are of."""
        end = self._timestamps.greatest() + 1
        batches = QueueReader(self._store, *queue).batches(progress, end, MOST)
        return islice((raw for batch in batches for raw in batch.entries), MOST)

    def _of_cell(self, queue: Queue, raw: Collection[RawEntry]) -> list[Waiting]:
        ours = [each for each in raw if each.start is not None and self._is_ours(each.value)]
        outcomes = self._outcomes({each.start for each in ours if each.start is not None})
        entries, _ = self._view.decoded(ours, outcomes, *queue)
        return [Waiting(entry, queue) for entry in entries if (entry.table, entry.cell) == (self._table, self._cell)]

    def _is_ours(self, value: bytes) -> bool:
        try:
            return read_write(value).cell == self._cell
        except BadValue:
            return False

    @staticmethod
    def _is_done(waiting: Waiting, progress: int, parked: Collection[int]) -> bool:
        """Below the progress, in the partition under way: it was judged, unless it came late; what was aborted and came
        late goes once more when the partition is used up."""
        entry = waiting.entry
        if entry.start > progress or fine(entry.start) != fine(progress + 1):
            return False
        return entry.commit != ABORTED or entry.start in parked

    def _outcomes(self, starts: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)

    # --- parked and set aside -------------------------------------------------------------------------------------

    def _parked(self, queue: Queue, starts: Collection[int]) -> Iterator[Waiting]:
        if self._table_id is None:
            return
        parking = Parking(self._store, self._timestamps, *queue)
        for each in parking.of_cell(self._table_id, self._cell, starts, MOST):
            yield Waiting(self._entry(each), queue, each.hold)

    def _entry(self, parked: ParkedEntry) -> Entry:
        return Entry(self._table, parked.table_id, self._cell, parked.start, parked.commit, parked.delete)

    def _set_aside(self, queues: set[Queue], known: set[int], starts: set[int]) -> Iterator[Waiting]:
        """One that can't be read is taken for the cell's if it started with a version of it whose entry is not to be
        found elsewhere."""
        for each in islice(Quarantine(self._store, self._timestamps).all(), _MOST_ASIDE):
            if each.start is None or (each.strategy, each.shard) not in queues:
                continue
            if self._is_ours(each.value) or (each.start in starts - known and not _readable(each)):
                commit = self._outcomes([each.start])[each.start]
                entry = Entry(self._table, self._table_id or 0, self._cell, each.start, commit, _delete(each))
                yield Waiting(entry, (each.strategy, each.shard), None, each.reason)


def waiting_in(
    store: Store, view: SweepView, queue: Queue, progress: int, most: int = DEFAULT_BATCH
) -> Iterator[Waiting]:
    """The first entries of a queue that have yet to act, and the first that are parked, whatever they are of."""
    timestamps = TimestampService(store)
    batches = QueueReader(store, *queue).batches(progress, timestamps.greatest() + 1, most)
    raw = list(islice((each for batch in batches for each in batch.entries), most))
    starts = {each.start for each in raw if each.start is not None}
    outcomes = dict.fromkeys(starts, ABORTED) | CommitTable(store).outcomes(starts)
    entries, _ = view.decoded(raw, outcomes, *queue)
    yield from (Waiting(entry, queue) for entry in entries)
    for parked in islice(Parking(store, timestamps, *queue).all(), most):
        table = view.name_of(parked.table_id)
        if table is not None:
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            yield Waiting(entry, queue, parked.hold)


def _readable(aside: Quarantined) -> bool:
    try:
        read_write(aside.value)
    except BadValue:
        return False
    return True


def _delete(aside: Quarantined) -> bool:
    return _readable(aside) and read_write(aside.value).delete
