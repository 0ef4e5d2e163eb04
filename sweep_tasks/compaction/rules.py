"""Which files deserve a compaction, and in what order. Pure: statistics in, a plan out.

A block is dense when it holds many tombstones (they cost CPU) or when tombstones fill much of it (they cost I/O).
A file qualifies by its share of dense blocks, so that a short dense run inside a large file is still seen, and the file
with the highest share comes first. What the engine itself is about to compact is left to it.

Statistics may have more than blocks. Then two more things make a file qualify, which blocks don't show: a long run of
dead cells, and many tombstones compared with the keys in the same range (`sstables/statistics.py`). Its rank is by its
share of dense blocks all the same. Last come files that qualify only because reads of their table met many tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from sweep_tasks.sstables.statistics import (
    Block,
    FileStatistics,
    FileThresholds,
    Reads,
    Spread,
    ThresholdsByTable,
    keys_in_reach,
    overlap,
    reaches,
    reaches_count,
    reads_over,
)


class Density(NamedTuple):
    dense: int
    blocks: int

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.dense, self.blocks) if self.blocks else Fraction(0)


class CandidateReason(StrEnum):
    DENSE = "dense"
    LONG_RUN = "long_run"
    OVERLAP = "overlap"
    READ = "read"
    SWEPT = "swept"
    """Sweeps have deleted much in a range of the ring; never the reason for a file."""
    BELOW_THRESHOLD = "below_threshold"
    EMPTY = "empty"
    SWITCHED_OFF = "switched_off"
    PENDING = "pending"


ELIGIBLE = frozenset({CandidateReason.DENSE, CandidateReason.LONG_RUN, CandidateReason.OVERLAP, CandidateReason.READ})


@dataclass(frozen=True, slots=True)
class AssessedFile:
    file: str
    table: str | None
    density: Density
    reason: CandidateReason
    longest_run: int | None = None
    reads: Reads | None = None
    """The outcome of a read over that run."""
    overlap: Fraction | None = None
    """Tombstones for each key that a compaction would rewrite; None if it is not known."""
    rank: int | None = None
    """1 for the first to be compacted; None for a file that is not eligible."""
    if_not_pending: CandidateReason | None = None
    """For a file that the engine is about to compact: the reason it would have otherwise."""

    @property
    def eligible(self) -> bool:
        return self.reason in ELIGIBLE

    @property
    def worth_it(self) -> bool:
        """Whether the file is a candidate, including one that is left to the engine for now."""
        return self.eligible or self.if_not_pending in ELIGIBLE


def plan(files: Iterable[FileStatistics], thresholds: ThresholdsByTable) -> list[AssessedFile]:
    """Verdicts on all files: eligible files first, the densest before the others; ties by name.

    Only a few numbers of each file are kept, so `files` may be a stream.
    """
    counted = [_counted(file, thresholds.of(file.table)) for file in files]
    overlaps = _overlaps(counted)
    verdicts = (_judged(file, overlaps.get(number), thresholds.of(file.table)) for number, file in enumerate(counted))
    ordered = sorted(verdicts, key=_place)
    return [replace(it, rank=place) if it.eligible else it for place, it in enumerate(ordered, start=1)]


def _place(verdict: AssessedFile) -> tuple[bool, bool, Fraction, str, str]:
    last = verdict.reason is CandidateReason.READ
    return not verdict.eligible, last, -verdict.density.ratio, verdict.file, verdict.table or ""


def is_dense(block: Block, thresholds: FileThresholds) -> bool:
    return reaches_count(block.tombstones, thresholds.dense_tombstones) or reaches(
        block.tombstone_bytes, block.total_bytes, thresholds.dense_share
    )


class _Counted(NamedTuple):
    """A file without its blocks, of which there may be millions."""

    file: str
    table: str | None
    pending: bool
    density: Density
    longest_run: int | None
    tombstones: int
    spread: Spread | None
    read_tombstones: int


def _counted(file: FileStatistics, thresholds: FileThresholds) -> _Counted:
    dense = sum(is_dense(block, thresholds) for block in file.blocks)
    tombstones = sum(block.tombstones for block in file.blocks) if file.tombstones is None else file.tombstones
    density = Density(dense, len(file.blocks) + file.clean_blocks)
    met = file.read_tombstones or 0
    return _Counted(file.file, file.table, file.pending, density, file.longest_run, tombstones, file.spread, met)


def _overlaps(files: Sequence[_Counted]) -> Mapping[int, Fraction]:
    """Overlaps by the index of the file. If the keys of one file of a table are not known, the overlap of none is: that
    file could hold most of the keys that a compaction rewrites."""
    tables: dict[str | None, list[int]] = {}
    for number, file in enumerate(files):
        tables.setdefault(file.table, []).append(number)
    found: dict[int, Fraction] = {}
    for numbers in tables.values():
        spreads = [spread for number in numbers if (spread := files[number].spread) is not None]
        if len(spreads) == len(numbers):
            keys = zip(numbers, keys_in_reach(spreads), strict=True)
            found.update((number, overlap(files[number].tombstones, in_reach)) for number, in_reach in keys)
    return found


def _judged(file: _Counted, overlapped: Fraction | None, thresholds: FileThresholds) -> AssessedFile:
    read = None if file.longest_run is None else reads_over(file.longest_run, thresholds)
    found = _reason(file, read, overlapped or Fraction(0), thresholds)
    reason, if_not = (CandidateReason.PENDING, found) if file.pending else (found, None)
    verdict = AssessedFile(file.file, file.table, file.density, reason, file.longest_run, read, overlapped)
    return replace(verdict, if_not_pending=if_not)


def _reason(file: _Counted, read: Reads | None, overlapped: Fraction, thresholds: FileThresholds) -> CandidateReason:
    if thresholds.off:
        return CandidateReason.SWITCHED_OFF
    if reaches(file.density.dense, file.density.blocks, thresholds.eligible_share):
        return CandidateReason.DENSE
    if read in (Reads.WARNED, Reads.FAILING):
        return CandidateReason.LONG_RUN
    if 0 < thresholds.overlap_share <= overlapped:
        return CandidateReason.OVERLAP
    if file.tombstones and reaches_count(file.read_tombstones, thresholds.read_tombstones):
        return CandidateReason.READ
    if thresholds.no_block_is_dense:
        return CandidateReason.SWITCHED_OFF
    return CandidateReason.BELOW_THRESHOLD if file.density.blocks else CandidateReason.EMPTY
