"""Finds queue entries that are not processed yet: in the queue, parked or quarantined.

Where the entries of a cell may be follows from the cell and from the timestamps of its versions: a shared row of the
queue for each partition and shard, and a column for each start timestamp under each hold. So they are looked up, and a
queue of millions is not read for one cell. The first entries behind the progress are read together, and the marks of
all other rows are read together to find out which rows hold anything. Only entries far back in a long queue, or written
late, take a read of their own.

The shard of a cell depends on the number of shards at the time of the write. All numbers that may have been are
searched, today's first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.obstacles import Queue, WaitingEntry
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, Cell, Span, TableRef
from sweep_tasks.queue.encoding import FINE, coarse, fine, read_write, timestamps_row
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking, Quarantine, Quarantined, all_parked
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.queue.reader import DEFAULT_BATCH, QueueReader, RawEntry, Reference
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import QUEUE_TIMESTAMPS
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

MOST = 10_000
"""Entries that are read of each queue and of each parking, to find those whose version is gone."""
_STARTS = 1_000
_PLACES = 20_000
_TOGETHER = 10_000
_DEEP = 200
"""Start timestamps that are looked up one by one in a partition, the newest: each removes the versions before it."""
_MOST_QUARANTINED = 100_000


def queues_of(table: TableRef, cell: Cell, shards: int) -> list[Queue]:
    """Return the queues that may hold entries of the cell, the most likely first, of either strategy."""
    numbers = dict.fromkeys(shard_of(table, cell, number) for number in range(shards, 0, -1))
    return [(strategy, shard) for shard in numbers for strategy in QUEUES]


class _Read(NamedTuple):
    """The first entries behind the progress. Up to the start timestamp `through` there are no others."""

    entries: Sequence[RawEntry] = ()
    through: int = -1

    def positions(self) -> dict[int, int]:
        """Return the position of the first entry of each start timestamp, from 1."""
        places: dict[int, int] = {}
        for number, each in enumerate(self.entries, start=1):
            if each.start is not None:
                places.setdefault(each.start, number)
        return places


class CellSearch:
    """Finds the entries of one cell."""

    def __init__(self, store: Store, view: SweepView, table: TableRef, cell: Cell) -> None:
        self._store = store
        self._view = view
        self._table = table
        self._cell = cell
        self._commits = CommitTable(store)
        self._timestamps = TimestampService(store)
        self._table_id = TableIds(store).known_id(table)

    def waiting(
        self, queues: Sequence[Queue], progress: dict[Queue, int], starts: Collection[int]
    ) -> list[WaitingEntry]:
        """Return the entries of the cell. `starts` are the start timestamps of its versions."""
        newest = sorted(starts, reverse=True)[:_STARTS]
        parked = self._parked(queues, newest)
        read = {queue: self._read(queue, progress[queue]) for queue in queues[: len(QUEUES)]}
        places = self._places(queues, progress, newest, read)
        found: dict[tuple[int, Queue, Hold | None, bool], WaitingEntry] = {}
        seen: set[int] = set()
        for queue in queues:
            found |= {(each.entry.start, queue, each.hold, False): each for each in parked[queue]}
            judged = {each.entry.start for each in parked[queue]}
            deep = [start for start in places[queue] if start not in seen]
            first = read.get(queue, _Read())
            positions = first.positions()
            for each in self._decode(queue, progress[queue], [*first.entries, *self._look_up(queue, deep)]):
                seen.add(each.entry.start)
                if not self._is_processed(each, progress[queue], judged):
                    position = positions.get(each.entry.start)
                    found[each.entry.start, queue, None, False] = each._replace(position=position)
        for each in self._quarantined(set(queues), {each.entry.start for each in found.values()}, set(starts)):
            found[each.entry.start, each.queue, None, True] = each
        return sorted(found.values(), key=lambda each: each.entry.start)

    # --- the queue ------------------------------------------------------------------------------------------------

    def _places(
        self, queues: Sequence[Queue], progress: dict[Queue, int], starts: Sequence[int], read: dict[Queue, _Read]
    ) -> dict[Queue, list[int]]:
        """Return the start timestamps of each queue whose entries have to be looked up.

        Those that did not commit come first, because only their own entry removes them, then the newest. A row that
        holds entries has a mark, unless the entry was written late into a row that was swept already; such a
        transaction did not commit.
        """
        outcomes = self._outcomes(starts)
        wanted: list[tuple[Queue, int, Cell]] = []
        for start in sorted(starts, key=lambda start: (outcomes[start] != ABORTED, -start)):
            for queue in queues:
                through = read.get(queue, _Read()).through
                if progress[queue] < start <= through:
                    continue  # it was read already, if it exists
                if not _in_current_partition(start, progress[queue]) or outcomes[start] == ABORTED:
                    wanted.append((queue, start, _mark(queue, start)))
        wanted = wanted[:_PLACES]
        marked = self._store.newest(QUEUE_TIMESTAMPS, {mark: MAX_TS for _, _, mark in wanted}) if wanted else {}
        found: dict[Queue, list[int]] = {queue: [] for queue in queues}
        for queue, start, mark in wanted:
            late = outcomes[start] == ABORTED and start <= progress[queue]
            if mark in marked or late:
                found[queue].append(start)
        return found

    def _look_up(self, queue: Queue, starts: Sequence[int]) -> Iterator[RawEntry]:
        """Look up the entries of these start timestamps: those on the first page of a partition together, the others
        one by one."""
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
        """Read the first entries behind the progress, of any cell."""
        end = self._timestamps.greatest() + 1
        batches = QueueReader(self._store, *queue).batches(progress, end, MOST)
        entries = list(islice((raw for batch in batches for raw in batch.entries), MOST))
        cut_at = next((each.start for each in reversed(entries) if each.start is not None), None)
        if len(entries) < MOST or cut_at is None:
            return _Read(entries, end - 1)
        return _Read(entries, cut_at - 1)

    def _decode(self, queue: Queue, progress: int, raw: Collection[RawEntry]) -> list[WaitingEntry]:
        """Return the entries of our cell. Of entries written late, the next sweep finds the undecided ones; aborted
        ones are removed where their partition ends."""
        ours = [each for each in raw if each.start is not None and self._is_our_cell(each.value)]
        starts = {each.start for each in ours if each.start is not None}
        decided = self._commits.outcomes(starts)
        late = {start for start, end in decided.items() if end == ABORTED and _in_current_partition(start, progress)}
        entries, _ = self._view.decoded(ours, dict.fromkeys(starts, ABORTED) | decided, *queue)
        return [
            WaitingEntry(entry, queue, removed_at=(fine(entry.start) + 1) * FINE if entry.start in late else None)
            for entry in entries
            if (entry.table, entry.cell) == (self._table, self._cell)
        ]

    def _is_our_cell(self, value: bytes) -> bool:
        try:
            return read_write(value).cell == self._cell
        except BadValue:
            return False

    @staticmethod
    def _is_processed(waiting: WaitingEntry, progress: int, parked: Collection[int]) -> bool:
        """Return whether the entry was processed: it is below the progress, in the current partition. An entry that was
        aborted and written late is processed again when the partition ends."""
        entry = waiting.entry
        if not _in_current_partition(entry.start, progress):
            return False
        return entry.commit != ABORTED or entry.start in parked

    def _outcomes(self, starts: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)

    # --- parked and quarantined -----------------------------------------------------------------------------------

    def _parked(self, queues: Sequence[Queue], starts: Collection[int]) -> dict[Queue, list[WaitingEntry]]:
        """Return the parked entries of the cell. A few are read together, many queue by queue."""
        found: dict[Queue, list[WaitingEntry]] = {queue: [] for queue in queues}
        if self._table_id is None:
            return found
        together = all_parked(self._store, MOST)
        for queue in queues:
            if together is None:
                parking = Parking(self._store, self._timestamps, *queue)
                ours = parking.entries_of_cell(self._table_id, self._cell, starts, MOST)
            else:
                ours = [each for each in together.get(queue, ()) if self._is_our_entry(each)]
            found[queue] = [WaitingEntry(self._entry(each), queue, each.hold) for each in ours]
        return found

    def _is_our_entry(self, parked: ParkedEntry) -> bool:
        return (parked.table_id, parked.cell) == (self._table_id, self._cell)

    def _entry(self, parked: ParkedEntry) -> Entry:
        return Entry(self._table, parked.table_id, self._cell, parked.start, parked.commit, parked.delete)

    def _quarantined(self, queues: set[Queue], known: set[int], starts: set[int]) -> Iterator[WaitingEntry]:
        """Return the quarantined entries of the cell. An entry that can't be read is attributed to the cell if it has
        the start timestamp of a version whose entry is not found elsewhere."""
        for each in islice(Quarantine(self._store, self._timestamps).all(), _MOST_QUARANTINED):
            if each.start is None or (each.strategy, each.shard) not in queues:
                continue
            if self._is_our_cell(each.value) or (each.start in starts - known and not _readable(each)):
                commit = self._outcomes([each.start])[each.start]
                entry = Entry(self._table, self._table_id or 0, self._cell, each.start, commit, _is_delete(each))
                yield WaitingEntry(entry, (each.strategy, each.shard), None, each.reason)


def waiting_entries(
    store: Store, view: SweepView, queue: Queue, progress: int, most: int = DEFAULT_BATCH
) -> Iterator[WaitingEntry]:
    """Return the first entries of a queue that are not processed yet, and the first parked ones, of any cell."""
    timestamps = TimestampService(store)
    batches = QueueReader(store, *queue).batches(progress, timestamps.greatest() + 1, most)
    raw = list(islice((each for batch in batches for each in batch.entries), most))
    entries, _ = view.decoded(raw, _outcomes_of(store, raw), *queue)
    yield from (WaitingEntry(entry, queue) for entry in entries)
    for parked in islice(Parking(store, timestamps, *queue).all(), most):
        table = view.name_of(parked.table_id)
        if table is not None:
            entry = Entry(table, parked.table_id, parked.cell, parked.start, parked.commit, parked.delete)
            yield WaitingEntry(entry, queue, parked.hold)


class QuarantinedEntries(NamedTuple):
    """Quarantined entries of some queues: those that can be read by now, and the others with their reason."""

    waiting: list[WaitingEntry]
    unreadable: list[Quarantined]
    full: bool
    """There are more than were read."""


def quarantined_entries(store: Store, view: SweepView, queues: Collection[Queue], most: int) -> QuarantinedEntries:
    quarantined = list(islice(Quarantine(store, TimestampService(store)).all(), most))
    found = QuarantinedEntries([], [], len(quarantined) == most)
    by_queue: dict[Queue, list[Quarantined]] = {}
    for each in quarantined:
        by_queue.setdefault((each.strategy, each.shard), []).append(each)
    for queue, ours in by_queue.items():
        if queue in queues:
            raw = [RawEntry(each.start, each.place, each.value) for each in ours]
            reasons = {each.start: each.reason for each in ours}
            entries, unreadable = view.decoded(raw, _outcomes_of(store, raw), *queue)
            found.waiting.extend(WaitingEntry(entry, queue, None, reasons[entry.start]) for entry in entries)
            found.unreadable.extend(unreadable)
    return found


def _outcomes_of(store: Store, raw: Collection[RawEntry]) -> dict[int, int]:
    """Return the outcomes. An unfinished transaction counts as aborted, because a sweep would abort it."""
    starts = {each.start for each in raw if each.start is not None}
    return dict.fromkeys(starts, ABORTED) | CommitTable(store).outcomes(starts)


def _in_current_partition(start: int, progress: int) -> bool:
    """Return whether a start timestamp is below the progress, in the current partition."""
    return start <= progress and fine(start) == fine(progress + 1)


def _mark(queue: Queue, start: int) -> Cell:
    strategy, shard = queue
    return Cell(timestamps_row(shard, coarse(start), strategy), var_long(fine(start)))


def _readable(entry: Quarantined) -> bool:
    try:
        read_write(entry.value)
    except BadValue:
        return False
    return True


def _is_delete(entry: Quarantined) -> bool:
    return _readable(entry) and read_write(entry.value).delete
