"""What one SSTable holds: its tombstones by block and by age, its keys, and what a reader has to step over.

Counted once for each file, as files never change. What may be dropped depends on gc_grace and on the moment, so the
ages are kept with the counts, and the answer is computed from them whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from sweep_tasks.compaction.cache import Cache
from sweep_tasks.compaction.chunks import UNCOMPRESSED_BLOCK, Chunks, chunks_of
from sweep_tasks.compaction.dump import PARTITION, Dumped, Tools, entries_of
from sweep_tasks.compaction.encoding import Encoding, encoding_of, head
from sweep_tasks.compaction.entries import (
    Expiry,
    Reading,
    reading_of_marker,
    reading_of_partition,
    reading_of_row,
)
from sweep_tasks.compaction.facts import MOST_RANGES
from sweep_tasks.compaction.placing import Placing
from sweep_tasks.compaction.runs import SHORT, Longest, PartitionRun
from sweep_tasks.compaction.sstables import Identity, SSTable
from sweep_tasks.compaction.tombstones import Measured, Pile, SSTableStatistics
from sweep_tasks.errors import BadValue, SSTableGone, SSTableUnreadable
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.sweep.ranges import TokenHistogram

AGES_PER_BLOCK = 16
"""Ages a block keeps apart. Where there are more, the two closest together are taken for the younger of them."""
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
    """Reads the whole file, unless the cache knows it; `identity`: of the file, where that was just looked up."""
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


def _read(sstable: SSTable, tools: Tools, chunks: Chunks, now_s: int) -> Measured:
    try:
        return counted(entries_of(sstable, tools), chunks, encoding_of(sstable), sstable.version, now_s)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = "its dump is not of the kind that Cassandra 5.0 prints"
        raise SSTableUnreadable(sstable.data, problem, reason="unknown_dump") from error


def counted(dumped: Iterable[Dumped], chunks: Chunks, encoding: Encoding, version: str, now_s: int) -> Measured:
    count = _Count(chunks, encoding, version, now_s)
    for kind, entry in dumped:
        count.add(kind, entry)
    return count.finished()


class _Count:
    """Of a file that is read from its start to its end."""

    def __init__(self, chunks: Chunks, encoding: Encoding, version: str, now_s: int) -> None:
        self._chunks = chunks
        self._encoding = encoding
        self._version = version
        self._expiry = Expiry(now_s)
        self._placing = Placing(self._place)
        self._piles: dict[int, dict[int, list[int]]] = {}
        self._ages: tuple[int, int] | None = None
        self._keys: tuple[str, str] | None = None
        self._partitions = self._rows = self._bounds = self._deleted_partitions = 0
        self._run = self._longest_run = self._last_deleted = 0
        self._runs = Longest()
        self._token = self._buried = 0
        self._holds, self._buries = TokenHistogram(MOST_RANGES), TokenHistogram(MOST_RANGES)
        self._before = 0

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        if kind == PARTITION:
            self._open(entry)
        elif kind in _ROWS:
            self._row(entry)
        else:
            self._bound(entry)

    def finished(self) -> Measured:
        self._placing.end(self._chunks.data_length)
        self._close()
        runs = self._runs.found()
        first, last = self._keys or ("", "")
        first_deleted, last_deleted = self._ages or (None, None)
        return Measured(
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
            holds=self._holds.document(),
            buries=self._buries.document(),
        )

    def _open(self, partition: dict[str, Any]) -> None:
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
        self._placing.at(partition["position"], reading, self._before)

    def _close(self) -> None:
        """The partition that was read up to here, if there was one."""
        self._buries.add(self._token, self._buried)
        if self._longest_run:
            self._runs.add(PartitionRun(self._longest_run, self._token, self._last_deleted))
        self._run = self._longest_run = self._last_deleted = 0

    def _row(self, row: dict[str, Any]) -> None:
        self._rows += 1
        reading = reading_of_row(row, self._expiry)
        self._before = self._encoding.row(row)
        self._placing.at(row["position"], reading, self._before)
        self._step(reading)

    def _bound(self, bound: dict[str, Any]) -> None:
        self._bounds += 1
        reading = reading_of_marker(bound)
        self._before = self._encoding.marker(bound, self._before)
        self._placing.behind(self._before, reading)
        self._step(reading)

    def _step(self, reading: Reading) -> None:
        """A reader goes on over what is dead until it meets something alive."""
        self._buried += len(reading.deleted_s)
        self._run = 0 if reading.alive else self._run + len(reading.deleted_s)
        self._longest_run = max(self._longest_run, self._run)
        self._last_deleted = max(self._last_deleted, *reading.deleted_s, 0)

    def _place(self, position: int, size: int, reading: Reading) -> None:
        if not reading.deleted_s:
            return
        *earlier, last = sorted(reading.deleted_s)
        first = earlier[0] if earlier else last
        self._ages = (min(first, self._ages[0]), max(last, self._ages[1])) if self._ages else (first, last)
        (start, part), *others = self._chunks.covered(position, 0 if reading.alive else size)
        for age in earlier:
            self._pile(start, age, 1, 0, reading.written)
        self._pile(start, last, 1, part, reading.written)  # the bytes go when the last of it may go
        for block, rest in others:
            self._pile(block, last, 0, rest, reading.written)

    def _pile(self, block: int, age: int, tombstones: int, size: int, written: int) -> None:
        piles = self._piles.setdefault(block, {})
        pile = piles.setdefault(age, [0, 0, written])
        pile[0] += tombstones
        pile[1] += size
        pile[2] = max(pile[2], written)
        if len(piles) > AGES_PER_BLOCK:
            _join_closest(piles)


def _join_closest(piles: dict[int, list[int]]) -> None:
    """Into the younger, so that nothing counts as droppable that is not."""
    ages = sorted(piles)
    older, younger = min(pairwise(ages), key=lambda pair: pair[1] - pair[0])
    tombstones, size, written = piles.pop(older)
    piles[younger][0] += tombstones
    piles[younger][1] += size
    piles[younger][2] = max(piles[younger][2], written)


def _token(key: str) -> int:
    try:
        return token_of(bytes.fromhex(key))
    except ValueError:
        raise BadValue("table", "its key is not a blob; only tables of this store can be measured") from None
