"""The entries of a cell that have yet to act: in the queue, parked, or set aside.

Where they may be follows from the cell and from when its versions were written: a shared row of the queue for each
partition and shard, and below each hold a column for each start. So they are looked up, and a queue of millions is not
read for one cell. What comes first behind the progress is read together, and which other rows can hold anything at all
is asked of their marks together: only what lies deep in a long queue, or came late, takes a look of its own.

A cell falls to a shard by the number of shards that there was when it was written; all that may have been are looked
at, that of today first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from sweep_tasks.encoding import var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, Cell, Span, TableRef
from sweep_tasks.observation.obstacles import Queue, Waiting
from sweep_tasks.queue.encoding import FINE, coarse, fine, read_write, timestamps_row
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking, all_parked
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.queue.reader import DEFAULT_BATCH, QueueReader, RawEntry, Reference
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import QUEUE_TIMESTAMPS
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import ABORTED, CommitTable

MOST = 10_000
"""Entries that are read of each queue and of each parking, looking for some that left no version."""
_STARTS = 1_000
_PLACES = 20_000
_TOGETHER = 10_000
_DEEP = 200
"""Starts that are looked up one by one in a partition, the newest: any of them removes the versions before it."""
_MOST_ASIDE = 100_000


def queues_of(table: TableRef, cell: Cell, shards: int) -> list[Queue]:
    """Where entries of the cell may be, the likeliest first. Any strategy: tables change theirs."""
    numbers = dict.fromkeys(shard_of(table, cell, number) for number in range(shards, 0, -1))
    return [(strategy, shard) for shard in numbers for strategy in QUEUES]


class _Read(NamedTuple):
    """The first entries behind the progress, and up to which start there are no others."""

    entries: Sequence[RawEntry] = ()
    through: int = -1

    def positions(self) -> dict[int, int]:
        """Of each start the place of its first entry, from 1."""
        places: dict[int, int] = {}
        for number, each in enumerate(self.entries, start=1):
            if each.start is not None:
                places.setdefault(each.start, number)
        return places


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
        parked = self._parked(queues, newest)
        read = {queue: self._read(queue, progress[queue]) for queue in queues[: len(QUEUES)]}
        places = self._places(queues, progress, newest, read)
        found: dict[tuple[int, Queue, Hold | None, bool], Waiting] = {}
        met: set[int] = set()
        for queue in queues:
            found |= {(each.entry.start, queue, each.hold, False): each for each in parked[queue]}
            judged = {each.entry.start for each in parked[queue]}
            deep = [start for start in places[queue] if start not in met]
            first = read.get(queue, _Read())
            positions = first.positions()
            for each in self._of_cell(queue, progress[queue], [*first.entries, *self._announced(queue, deep)]):
                met.add(each.entry.start)
                if not self._is_done(each, progress[queue], judged):
                    position = positions.get(each.entry.start)
                    found[each.entry.start, queue, None, False] = each._replace(position=position)
        for aside in self._set_aside(set(queues), {each.entry.start for each in found.values()}, set(starts)):
            found[aside.entry.start, aside.queue, None, True] = aside
        return sorted(found.values(), key=lambda each: each.entry.start)

    # --- the queue ------------------------------------------------------------------------------------------------

    def _places(
        self, queues: Sequence[Queue], progress: dict[Queue, int], starts: Sequence[int], read: dict[Queue, _Read]
    ) -> dict[Queue, list[int]]:
        """Of each queue the starts that are worth a look: first what did not commit, which only its own entry removes,
        then the newest. A row that holds entries is marked, unless it is past and the entry came late; and what comes
        late did not commit."""
        outcomes = self._outcomes(starts)
        wanted: list[tuple[Queue, int, Cell]] = []
        for start in sorted(starts, key=lambda start: (outcomes[start] != ABORTED, -start)):
            for queue in queues:
                through = read.get(queue, _Read()).through
                if progress[queue] < start <= through:
                    continue  # it would have been read
                if not _under_way(start, progress[queue]) or outcomes[start] == ABORTED:
                    wanted.append((queue, start, _mark(queue, start)))
        wanted = wanted[:_PLACES]
        marked = self._store.newest(QUEUE_TIMESTAMPS, {mark: MAX_TS for _, _, mark in wanted}) if wanted else {}
        found: dict[Queue, list[int]] = {queue: [] for queue in queues}
        for queue, start, mark in wanted:
            late = outcomes[start] == ABORTED and start <= progress[queue]
            if mark in marked or late:
                found[queue].append(start)
        return found

    def _announced(self, queue: Queue, starts: Sequence[int]) -> Iterator[RawEntry]:
        """Of one partition together, as far as a page of its row goes; what comes behind, each by itself."""
        for partition in dict.fromkeys(fine(start) for start in starts):
            ours = {start for start in starts if fine(start) == partition}
            page = list(islice(self._shared(queue, partition, min(ours), max(ours)), _TOGETHER))
            seen = max(ours) if len(page) < _TOGETHER else max((each.start or 0) for each in page) - 1
            yield from self._entries(queue, (each for each in page if each.start in ours and each.start <= seen))
            for start in sorted(start for start in ours if start > seen)[-_DEEP:]:
                yield from self._entries(queue, self._shared(queue, partition, start, start))

    def _shared(self, queue: Queue, partition: int, first: int, last: int) -> Iterator[RawEntry | Reference]:
        columns = Span(var_long(first % FINE), var_long(last % FINE + 1))
        return QueueReader(self._store, *queue).shared(partition, first - 1, last + 1, columns)

    def _entries(self, queue: Queue, found: Iterable[RawEntry | Reference]) -> Iterator[RawEntry]:
        reader = QueueReader(self._store, *queue)
        for each in found:
            if isinstance(each, Reference):
                for row in reader.dedicated_rows(each):
                    yield from reader.dedicated(each.start, row)
            elif each.start is not None:
                yield each

    def _read(self, queue: Queue, progress: int) -> _Read:
        """Whatever they are of."""
        end = self._timestamps.greatest() + 1
        batches = QueueReader(self._store, *queue).batches(progress, end, MOST)
        entries = list(islice((raw for batch in batches for raw in batch.entries), MOST))
        cut_at = next((each.start for each in reversed(entries) if each.start is not None), None)
        if len(entries) < MOST or cut_at is None:
            return _Read(entries, end - 1)
        return _Read(entries, cut_at - 1)

    def _of_cell(self, queue: Queue, progress: int, raw: Collection[RawEntry]) -> list[Waiting]:
        """What came late and is undecided is found by the next sweep; what was aborted by then goes where its partition
        ends."""
        ours = [each for each in raw if each.start is not None and self._is_ours(each.value)]
        starts = {each.start for each in ours if each.start is not None}
        decided = self._commits.outcomes(starts)
        late = {start for start, end in decided.items() if end == ABORTED and _under_way(start, progress)}
        entries, _ = self._view.decoded(ours, dict.fromkeys(starts, ABORTED) | decided, *queue)
        return [
            Waiting(entry, queue, goes_at=(fine(entry.start) + 1) * FINE if entry.start in late else None)
            for entry in entries
            if (entry.table, entry.cell) == (self._table, self._cell)
        ]

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
        if not _under_way(entry.start, progress):
            return False
        return entry.commit != ABORTED or entry.start in parked

    def _outcomes(self, starts: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)

    # --- parked and set aside -------------------------------------------------------------------------------------

    def _parked(self, queues: Sequence[Queue], starts: Collection[int]) -> dict[Queue, list[Waiting]]:
        """Read together where they are few; else each queue by itself."""
        found: dict[Queue, list[Waiting]] = {queue: [] for queue in queues}
        if self._table_id is None:
            return found
        together = all_parked(self._store, MOST)
        for queue in queues:
            if together is None:
                parking = Parking(self._store, self._timestamps, *queue)
                ours = parking.of_cell(self._table_id, self._cell, starts, MOST)
            else:
                ours = [each for each in together.get(queue, ()) if self._is_parked_here(each)]
            found[queue] = [Waiting(self._entry(each), queue, each.hold) for each in ours]
        return found

    def _is_parked_here(self, parked: ParkedEntry) -> bool:
        return (parked.table_id, parked.cell) == (self._table_id, self._cell)

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
    entries, _ = view.decoded(raw, _ended(store, raw), *queue)
    yield from (Waiting(entry, queue) for entry in entries)
    for parked in islice(Parking(store, timestamps, *queue).all(), most):
        table = view.name_of(parked.table_id)
        if table is not None:
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            yield Waiting(entry, queue, parked.hold)


class Aside(NamedTuple):
    """What is set aside in some queues: entries that could be judged by now, and why the others still can't."""

    waiting: list[Waiting]
    unreadable: list[Quarantined]
    full: bool


def set_aside_in(store: Store, view: SweepView, queues: Collection[Queue], most: int) -> Aside:
    aside = list(islice(Quarantine(store, TimestampService(store)).all(), most))
    found = Aside([], [], len(aside) == most)
    by_queue: dict[Queue, list[Quarantined]] = {}
    for each in aside:
        by_queue.setdefault((each.strategy, each.shard), []).append(each)
    for queue, ours in by_queue.items():
        if queue in queues:
            raw = [RawEntry(each.start, each.place, each.value) for each in ours]
            reasons = {each.start: each.reason for each in ours}
            entries, unreadable = view.decoded(raw, _ended(store, raw), *queue)
            found.waiting.extend(Waiting(entry, queue, None, reasons[entry.start]) for entry in entries)
            found.unreadable.extend(unreadable)
    return found


def _ended(store: Store, raw: Collection[RawEntry]) -> dict[int, int]:
    """What has not ended counts as aborted: a sweep would roll it back."""
    starts = {each.start for each in raw if each.start is not None}
    return dict.fromkeys(starts, ABORTED) | CommitTable(store).outcomes(starts)


def _under_way(start: int, progress: int) -> bool:
    """Below the progress, in the partition that it stands in."""
    return start <= progress and fine(start) == fine(progress + 1)


def _mark(queue: Queue, start: int) -> Cell:
    strategy, shard = queue
    return Cell(timestamps_row(shard, coarse(start), strategy), var_long(fine(start)))


def _readable(aside: Quarantined) -> bool:
    try:
        read_write(aside.value)
    except BadValue:
        return False
    return True


def _delete(aside: Quarantined) -> bool:
    return _readable(aside) and read_write(aside.value).delete
