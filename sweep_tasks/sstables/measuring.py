"""Measuring one SSTable: its tombstones by block and by age, its keys, and the positions of its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from sweep_tasks.errors import BadValue, SSTableGone
from sweep_tasks.sstables.dump import (
    PARTITION,
    DeletionInfo,
    Dumped,
    DumpedCell,
    DumpEntry,
    Encoding,
    Timed,
    Tools,
    bounds_of,
    encoding_of,
    entries_of,
    head,
    understood,
)
from sweep_tasks.sstables.files import UNCOMPRESSED_BLOCK, Chunks, Identity, SSTable, chunks_of
from sweep_tasks.sstables.statistics import SHORT, Longest, PartitionRun
from sweep_tasks.sstables.statistics_file import Cache
from sweep_tasks.sstables.tombstones import MOST_RANGES, MeasuredFile, Pile, SSTableStatistics, TokenCounts
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.tables.deletions import TokenHistogram

# ---------------------------------------------------------------------------------------------------------------------
# Which parts of an entry are dead, and since when.
#
# Tombstones are deletions of partitions, rows and cells, the bounds of deleted ranges, and expired cells. A tombstone
# may be dropped once gc_grace has passed since its deletion. For an expired cell Cassandra counts gc_grace from its
# write, because the time of its expiry was known from then on.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeadParts:
    """The tombstones of one entry."""

    deleted_s: tuple[int, ...] = ()
    """For each tombstone the moment from which gc_grace counts."""
    written: int = 0
    """The greatest write time of these tombstones: later writes in other files do not keep them."""
    alive: bool = False
    """The entry has live data too; then its bytes do not count as those of a tombstone."""


@dataclass(slots=True)
class Expiry:
    """The period in which everything read so far is as dead or alive as it is now."""

    now_s: int
    since_s: int = field(default=0)
    until_s: int | None = field(default=None)

    def passed(self, expires_s: int) -> bool:
        if expires_s <= self.now_s:
            self.since_s = max(self.since_s, expires_s)
            return True
        self.until_s = expires_s if self.until_s is None else min(self.until_s, expires_s)
        return False


def reading_of_partition(partition: DumpEntry) -> DeadParts:
    deletion = partition.get("deletion_info")
    return DeadParts((_deleted(deletion),), _written(deletion)) if deletion else DeadParts()


def reading_of_marker(marker: DumpEntry) -> DeadParts:
    """Return the tombstones of a bound. It may be the end of one range and the start of the next: then it is dropped
    when both may be."""
    deletions = [bound["deletion_info"] for bound in bounds_of(marker)]
    return DeadParts((max(map(_deleted, deletions)),), max(map(_written, deletions)))


def reading_of_row(row: DumpEntry, expiry: Expiry) -> DeadParts:
    deletion = row.get("deletion_info")
    dead = [_deleted(deletion)] if deletion else []
    written = [_written(deletion)] if deletion else []
    liveness = row.get("liveness_info")
    expired = _expired(liveness, expiry) if liveness else None
    alive = liveness is not None and expired is None
    dead_cells = 0
    for cell in row.get("cells", ()):
        since = _dead_since(cell, liveness, expiry)
        if since is None:
            alive = True
        else:
            dead.append(since)
            written.append(int(cell.get("tstamp") or (liveness or Timed())["tstamp"]))
            dead_cells += 1
    if expired is not None and liveness and not dead_cells and not alive:
        dead.append(expired)
        written.append(int(liveness["tstamp"]))
    return DeadParts(tuple(dead), max(written, default=0), alive)


def _dead_since(cell: DumpedCell, liveness: Timed | None, expiry: Expiry) -> int | None:
    if "deletion_info" in cell:
        return _deleted(cell["deletion_info"])
    if "ttl" in cell:
        return _expired(cell, expiry)
    # A cell written together with its row has the row's time to live, and the dump does not repeat it.
    return _expired(liveness, expiry) if liveness and "tstamp" not in cell else None


def _expired(timed: Timed, expiry: Expiry) -> int | None:
    if "ttl" not in timed or not expiry.passed(int(timed["expires_at"])):
        return None
    return int(timed["expires_at"]) - int(timed["ttl"])


def _written(info: DeletionInfo) -> int:
    return int(info["marked_deleted"])


def _deleted(info: DeletionInfo) -> int:
    return int(info["local_delete_time"])


# ---------------------------------------------------------------------------------------------------------------------
# The positions and sizes of entries, derived from the positions that the dump has.
#
# The head of a partition and each row have a position; the bounds of deleted ranges after them have none. Their size is
# computed, and the rest up to the next position belongs to the row before them. Of a long sequence of bounds only a
# limited number is kept at a time.
# ---------------------------------------------------------------------------------------------------------------------

_KEPT = 1_024
OnEntry = Callable[[int, int, DeadParts], None]
"""Receives position, size and tombstones of each entry, in the order of the file."""


class EntryPositions:
    """Computes the position and the size of each entry, and passes both to `place`."""

    def __init__(self, place: OnEntry) -> None:
        self._place = place
        self._start = 0
        self._first: DeadParts | None = None
        self._about = 0
        self._unplaced: list[tuple[int, DeadParts]] = []
        self._bytes_behind = 0

    def add_at(self, position: int, reading: DeadParts, about: int) -> None:
        """Add an entry with a position. `about`: its approximate size, used if the next position comes too late."""
        self.end(position)
        self._start, self._first, self._about = position, reading, about

    def add_without_position(self, size: int, reading: DeadParts) -> None:
        self._unplaced.append((size, reading))
        self._bytes_behind += size
        if len(self._unplaced) == _KEPT:
            self._flush(self._about)

    def end(self, position: int) -> None:
        """End all entries so far at this position."""
        self._flush(max(0, position - self._start - self._bytes_behind))
        self._first, self._about = None, 0

    def _flush(self, own: int) -> None:
        if self._first is not None:
            self._place(self._start, own, self._first)
            self._start += own
        for size, reading in self._unplaced:
            self._place(self._start, size, reading)
            self._start += size
        self._first, self._about, self._unplaced, self._bytes_behind = None, 0, [], 0


# ---------------------------------------------------------------------------------------------------------------------
# The counts of one SSTable: its tombstones by block and by age, its keys, and the dead cells a reader steps over.
#
# A file is counted once, as files never change. Which tombstones may be dropped depends on gc_grace and on the moment,
# so the ages are kept with the counts, and the answer is computed from them on demand.
# ---------------------------------------------------------------------------------------------------------------------

AGES_PER_BLOCK = 16
"""Ages that are kept apart in a block. If there are more, the two closest are joined and count as the younger."""
_ROWS = ("row", "static_block")


def measure(
    sstable: SSTable,
    tools: Tools,
    gc_grace_s: int,
    now_s: int,
    *,
    cache: Cache | None = None,
    identity: Identity | None = None,
    uncompressed_block: int = UNCOMPRESSED_BLOCK,
) -> SSTableStatistics:
    """Read the whole file, unless the cache has it. `identity`: that of the file, if it was just looked up."""
    sstable.check_format()
    identity = identity or sstable.identity()
    measured = cache.find(identity, uncompressed_block) if cache else None
    if measured is None or not measured.holds_at(now_s):
        measured = _read(sstable, tools, chunks_of(sstable, uncompressed_block), now_s)
        if sstable.identity() != identity:
            raise SSTableGone(sstable.data)
        if cache:
            cache.keep(identity, measured, uncompressed_block)
    return SSTableStatistics(sstable, identity, measured, gc_grace_s, now_s)


def _read(sstable: SSTable, tools: Tools, chunks: Chunks, now_s: int) -> MeasuredFile:
    encoding = encoding_of(sstable)
    with understood(sstable):
        return counted(entries_of(sstable, tools), chunks, encoding, sstable.version, now_s)


def counted(dumped: Iterable[Dumped], chunks: Chunks, encoding: Encoding, version: str, now_s: int) -> MeasuredFile:
    count = _Count(chunks, encoding, version, now_s)
    for kind, entry in dumped:
        count.add(kind, entry)
    return count.finish()


class _Count:
    """Counts the entries of a file, which come in their order."""

    def __init__(self, chunks: Chunks, encoding: Encoding, version: str, now_s: int) -> None:
        self._chunks = chunks
        self._encoding = encoding
        self._version = version
        self._expiry = Expiry(now_s)
        self._positions = EntryPositions(self._place)
        self._piles: dict[int, dict[int, list[int]]] = {}
        self._ages: tuple[int, int] | None = None
        self._keys: tuple[str, str] | None = None
        self._partitions = self._rows = self._bounds = self._deleted_partitions = 0
        self._run = self._longest_run = self._last_deleted = 0
        self._runs = Longest()
        self._token = self._buried = 0
        self._holds, self._buries = TokenHistogram(MOST_RANGES), TokenHistogram(MOST_RANGES)
        self._before = 0

    def add(self, kind: str, entry: DumpEntry) -> None:
        if kind == PARTITION:
            self._open(entry)
        elif kind in _ROWS:
            self._count_row(entry)
        else:
            self._count_bound(entry)

    def finish(self) -> MeasuredFile:
        self._positions.end(self._chunks.data_length)
        self._close()
        runs = self._runs.found()
        first, last = self._keys or ("", "")
        first_deleted, last_deleted = self._ages or (None, None)
        return MeasuredFile(
            chunks=self._chunks,
            piles={
                number: [Pile(age, *each) for age, each in sorted(piles.items())]
                for number, piles in self._piles.items()
            },
            partitions=self._partitions,
            rows=self._rows,
            bounds=self._bounds,
            deleted_partitions=self._deleted_partitions,
            longest_run=runs[0].longest if runs else 0,
            run_token=runs[0].token if runs else None,
            runs=[run for run in runs if run.longest > SHORT],
            first_token=_token(first),
            last_token=_token(last),
            first_deleted_s=first_deleted,
            last_deleted_s=last_deleted,
            holds_since_s=self._expiry.since_s,
            holds_until_s=self._expiry.until_s,
            holds=TokenCounts.of(self._holds),
            buries=TokenCounts.of(self._buries),
        )

    def _open(self, partition: DumpEntry) -> None:
        (key,) = partition["key"]
        self._keys = (self._keys[0] if self._keys else key, key)
        self._partitions += 1
        self._close()
        self._token, self._buried = _token(key), 0
        self._holds.add(self._token)
        reading = reading_of_partition(partition)
        self._deleted_partitions += bool(reading.deleted_s)
        self._buried += len(reading.deleted_s)
        self._before = head(self._version, len(key) // 2, bool(reading.deleted_s))
        self._positions.add_at(_position(partition), reading, self._before)

    def _close(self) -> None:
        """Add up the partition that was read up to here, if there was one."""
        self._buries.add(self._token, self._buried)
        if self._longest_run:
            self._runs.add(PartitionRun(self._longest_run, self._token, self._last_deleted))
        self._run = self._longest_run = self._last_deleted = 0

    def _count_row(self, row: DumpEntry) -> None:
        self._rows += 1
        reading = reading_of_row(row, self._expiry)
        self._before = self._encoding.row(row)
        self._positions.add_at(_position(row), reading, self._before)
        self._extend_run(reading)

    def _count_bound(self, bound: DumpEntry) -> None:
        self._bounds += 1
        reading = reading_of_marker(bound)
        self._before = self._encoding.marker(bound, self._before)
        self._positions.add_without_position(self._before, reading)
        self._extend_run(reading)

    def _extend_run(self, reading: DeadParts) -> None:
        """Add the dead cells of an entry to the current run. A reader steps over them until it meets a live one."""
        self._buried += len(reading.deleted_s)
        self._run = 0 if reading.alive else self._run + len(reading.deleted_s)
        self._longest_run = max(self._longest_run, self._run)
        self._last_deleted = max(self._last_deleted, *reading.deleted_s, 0)

    def _place(self, position: int, size: int, reading: DeadParts) -> None:
        if not reading.deleted_s:
            return
        *earlier, last = sorted(reading.deleted_s)
        first = earlier[0] if earlier else last
        self._ages = (min(first, self._ages[0]), max(last, self._ages[1])) if self._ages else (first, last)
        (start, part), *others = self._chunks.covered(position, 0 if reading.alive else size)
        for age in earlier:
            self._add_to_pile(start, age, 1, 0, reading.written)
        # The bytes are freed when the last tombstone may be dropped.
        self._add_to_pile(start, last, 1, part, reading.written)
        for block, rest in others:
            self._add_to_pile(block, last, 0, rest, reading.written)

    def _add_to_pile(self, block: int, age: int, tombstones: int, size: int, written: int) -> None:
        piles = self._piles.setdefault(block, {})
        pile = piles.setdefault(age, [0, 0, written])
        pile[0] += tombstones
        pile[1] += size
        pile[2] = max(pile[2], written)
        if len(piles) > AGES_PER_BLOCK:
            _join_closest(piles)


def _join_closest(piles: dict[int, list[int]]) -> None:
    """Join the two closest ages into the younger, so that nothing counts as droppable too early."""
    ages = sorted(piles)
    older, younger = min(pairwise(ages), key=lambda pair: pair[1] - pair[0])
    tombstones, size, written = piles.pop(older)
    piles[younger][0] += tombstones
    piles[younger][1] += size
    piles[younger][2] = max(piles[younger][2], written)


def _position(entry: DumpEntry) -> int:
    """The position of an entry. A negative one is refused: all blocks from there on would be visited."""
    position = entry["position"]
    if type(position) is not int or position < 0:
        raise ValueError
    return position


def _token(key: str) -> int:
    try:
        return token_of(bytes.fromhex(key))
    except ValueError:
        raise BadValue("table", "its key is not a blob; only tables of this store can be measured") from None
