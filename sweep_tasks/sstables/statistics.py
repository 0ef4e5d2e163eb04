"""The statistics of a file that decide on a compaction, and the thresholds they are compared with. Pure.

They are the blocks of the file, the runs of dead cells that a reader steps over, and the tombstones compared with the
keys in the same range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from heapq import heappush, heapreplace, nlargest
from itertools import accumulate
from typing import Any, NamedTuple

from sweep_tasks.config import Settings, TableThresholds
from sweep_tasks.errors import BadValue
from sweep_tasks.store.contract import PhysicalTable

# ---------------------------------------------------------------------------------------------------------------------
# The thresholds of the settings, for all tables and for single ones.
#
# Shares are exact fractions. As a floating-point number 0.05 is a little more than 5 %, and one dense block of twenty
# would not reach it.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileThresholds:
    """A value equal to a threshold reaches it. Zero or less disables a threshold; without `eligible_share` all are
    disabled."""

    dense_tombstones: int = 100
    dense_share: Fraction = Fraction(1, 2)
    eligible_share: Fraction = Fraction(1, 20)
    run_warn: int = 1_000
    run_fail: int = 100_000
    overlap_share: Fraction = Fraction(1, 2)
    read_tombstones: int = 1_000

    @property
    def off(self) -> bool:
        return self.eligible_share <= 0

    @property
    def no_block_is_dense(self) -> bool:
        return self.dense_tombstones <= 0 and self.dense_share <= 0


@dataclass(frozen=True, slots=True)
class ThresholdsByTable:
    general: FileThresholds
    tables: Mapping[str, FileThresholds]

    def of(self, table: str | None) -> FileThresholds:
        return self.general if table is None else self.tables.get(table, self.general)


def thresholds_in(settings: Settings, tables: Iterable[PhysicalTable] = ()) -> ThresholdsByTable:
    """The thresholds of the settings. Tables may have their names in the store or in Cassandra; files have the
    latter."""
    general = FileThresholds(
        dense_tombstones=settings.compaction_dense_tombstones,
        dense_share=_exact(settings.compaction_dense_share),
        eligible_share=_exact(settings.compaction_eligible_share),
        run_warn=settings.compaction_run_warn,
        run_fail=settings.compaction_run_fail,
        overlap_share=_exact(settings.compaction_overlap_share),
        read_tombstones=settings.compaction_read_tombstones,
    )
    own = {table: replace(general, **_given(values)) for table, values in settings.compaction_tables.items()}
    by_store = {table.qualified: own[str(table.table)] for table in tables if str(table.table) in own}
    return ThresholdsByTable(general, own | by_store)


def check_tables(settings: Settings, tables: Iterable[PhysicalTable]) -> None:
    """Refuse settings for unknown tables: a misspelled table would be compacted although that was disabled. `tables`:
    all tables of the store."""
    known = {name for table in tables for name in (table.qualified, str(table.table))}
    unknown = sorted(settings.compaction_tables.keys() - known)
    if unknown:
        raise BadValue(
            "setting compaction_tables",
            f"{', '.join(unknown)} {'is no table' if len(unknown) == 1 else 'are no tables'} of the store; write it as "
            "'sweepflow tables list' does, or remove it",
            reason="unknown_table",
        )


def reaches(part: int, whole: int, share: Fraction) -> bool:
    """Whether `part` is at least that share of `whole`. Zero never reaches a share, not even of zero."""
    wanted = share.numerator  # negative if the share is, and comparing fractions takes several times as long
    return part > 0 and wanted > 0 and part * share.denominator >= whole * wanted


def reaches_count(count: int, threshold: int) -> bool:
    return 0 < threshold <= count


def _given(values: TableThresholds) -> dict[str, Any]:
    given = {name: value for name, value in values if value is not None}
    return {name: _exact(value) if isinstance(value, Decimal) else value for name, value in given.items()}


def _exact(share: Decimal) -> Fraction:
    return Fraction(share) if share > 0 else Fraction(0)


# ---------------------------------------------------------------------------------------------------------------------
# The tombstones of a file compared with the keys in the same token range: its own, and those of overlapping files.
#
# A tombstone can be dropped only together with what it hides, so a compaction includes the files of the same token
# range. The ratio of tombstones to rewritten keys is the gain of a compaction relative to its cost. It finds files
# whose tombstones are too scattered for any single block to be dense: one for every live row of a few hundred bytes,
# say.
# ---------------------------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The keys of a file, dead ones included, and the tokens of its first and its last."""

    keys: int
    first_token: int
    last_token: int


def keys_in_reach(files: Sequence[Spread]) -> list[int]:
    """For each file the number of keys in all files whose token range overlaps its own, including itself.

    Two files do not overlap if one starts after the other ends. So the number is that of all files that start before
    the end of a file, minus that of those that end before its start: two lookups instead of a comparison with every
    other."""
    begun = _Sums((file.first_token, file.keys) for file in files)
    ended = _Sums((file.last_token, file.keys) for file in files)
    return [begun.up_to(file.last_token) - ended.before(file.first_token) for file in files]


def overlap(tombstones: int, keys: int) -> Fraction:
    """Tombstones for each key in the range, at most 1, as a row may hold several tombstones."""
    return Fraction(min(tombstones, keys), keys) if keys > 0 else Fraction(0)


class _Sums:
    """Keys by token, summed from the least token on."""

    def __init__(self, keys: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(keys)
        self._tokens = [token for token, _ in ordered]
        self._sums = [0, *accumulate(count for _, count in ordered)]

    def up_to(self, token: int) -> int:
        return self._sums[bisect_right(self._tokens, token)]

    def before(self, token: int) -> int:
        return self._sums[bisect_left(self._tokens, token)]


class Block(NamedTuple):
    """The unit of a read from disk; sizes are uncompressed."""

    tombstones: int
    tombstone_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class FileStatistics:
    file: str
    blocks: Sequence[Block]
    table: str | None = None
    pending: bool = False
    """The engine itself is about to compact it."""
    longest_run: int | None = None
    """The most dead cells in a row in any partition of the file."""
    tombstones: int | None = None
    """Tombstones in the whole file; the sum over the blocks if it is not given."""
    spread: Spread | None = None
    read_tombstones: int | None = None
    """The most tombstones that one recent read of its table met."""
    clean_blocks: int = 0
    """The number of further blocks, which have no tombstones."""
    proof: Mapping[str, Any] | None = None
    """The stored `FileFacts` for the proof of a compaction; not used here."""


# ---------------------------------------------------------------------------------------------------------------------
# Runs of dead cells in a partition, which a reader steps over before it meets a live cell.
#
# A server counts the tombstones that one read steps over, warns at one threshold and fails the read at another. Blocks
# do not show that: a file may have few dense blocks, all of them in a row. A single file does not show it either: a
# reader merges all files that hold the partition. So the longest runs of a partition are added up over its files. That
# is an estimate. It is too high where a live cell in one file lies between dead cells of another, and too low where a
# live cell in one file is hidden by another, so that two runs of the first become one.
# ---------------------------------------------------------------------------------------------------------------------

MOST_OF_A_FILE = 256
SHORT = 16
"""Runs up to this length are ignored: they would matter only in thousands of files."""
_MOST_OF_A_TABLE = 50_000


class PartitionRun(NamedTuple):
    """The longest run of a partition in one file. The partition is named by its token, which does not reveal its
    key."""

    longest: int
    token: int
    last_deleted_s: int
    """The deletion time of the youngest tombstone of the partition."""


class Longest:
    """Keeps the longest runs of a file, which may have millions of partitions."""

    def __init__(self, most: int = MOST_OF_A_FILE) -> None:
        self._most = most
        self._kept: list[tuple[int, int, PartitionRun]] = []

    def add(self, run: PartitionRun) -> None:
        placed = run.longest, -run.token, run
        if len(self._kept) < self._most:
            heappush(self._kept, placed)
        elif placed > self._kept[0]:
            heapreplace(self._kept, placed)

    def found(self) -> list[PartitionRun]:
        """The longest first; ties by token."""
        return [run for *_, run in sorted(self._kept, reverse=True)]


class HeldRun(NamedTuple):
    """A run in one file at a moment."""

    token: int
    longest: int
    held: int
    """The part of it that gc_grace may still hold: only that counts against the server's thresholds."""


class Combined(NamedTuple):
    """The run of a partition over all files of its table."""

    token: int
    longest: int
    held: int
    files: int
    file: str
    """The file with the longest run."""
    longest_of_file: int


class PartitionRuns:
    """The runs of one table, added up by partition. If there are too many, the shortest are dropped."""

    def __init__(self, most: int = _MOST_OF_A_TABLE) -> None:
        self._most = most
        self._kept: dict[int, Combined] = {}

    def add(self, file: str, runs: Iterable[HeldRun]) -> None:
        for run in runs:
            new = Combined(run.token, run.longest, run.held, 1, file, run.longest)
            known = self._kept.get(run.token)
            self._kept[run.token] = _both(known, new) if known else new
        if len(self._kept) > self._most:
            longest = nlargest(self._most // 2, self._kept.values(), key=lambda each: (each.held, each.longest))
            self._kept = {each.token: each for each in longest}

    def found(self) -> Iterable[Combined]:
        return self._kept.values()


def _both(one: Combined, other: Combined) -> Combined:
    worst = max(one, other, key=lambda each: (each.longest_of_file, each.file))
    return Combined(
        token=one.token,
        longest=one.longest + other.longest,
        held=one.held + other.held,
        files=one.files + other.files,
        file=worst.file,
        longest_of_file=worst.longest_of_file,
    )


class Reads(StrEnum):
    """The outcome of a read over a run, on a server with these thresholds."""

    FINE = "fine"
    WARNED = "warned"
    FAILING = "failing"


def reads_over(longest: int, thresholds: FileThresholds) -> Reads:
    if reaches_count(longest, thresholds.run_fail):
        return Reads.FAILING
    return Reads.WARNED if reaches_count(longest, thresholds.run_warn) else Reads.FINE
