"""What Cassandra keeps about a file beside it: its write times, its level, and whether it was repaired.

Unlike what is in the file, some of this changes: a repair marks files, and a level is given anew. So it is asked for
each time, for all files at once, with Cassandra's `sstablemetadata`. Its answer has keys of rows in it: they stay here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.compaction.nodes import AnswerNotUnderstood, Node
from sweep_tasks.compaction.sstables import DATA
from sweep_tasks.store.chunks import chunks

_FILES_A_CALL = 200
_FILE = re.compile(r"^SSTable: (.+)$", re.MULTILINE)
_FIELDS = {
    "min_timestamp": re.compile(r"^Minimum timestamp: .*?(-?\d+)\)?$", re.MULTILINE),
    "max_timestamp": re.compile(r"^Maximum timestamp: .*?(-?\d+)\)?$", re.MULTILINE),
    "level": re.compile(r"^SSTable Level: (\d+)$", re.MULTILINE),
}
_REPAIRED = re.compile(r"^Repaired at: (\d+)", re.MULTILINE)
_COVERS = re.compile(r"^Replay positions covered: (.*)$", re.MULTILINE)
_POSITION = re.compile(r"segmentId=(-?\d+), position=(-?\d+)")
_PENDING_REPAIR = re.compile(r"^Pending repair: (\S+)$", re.MULTILINE)


Position = tuple[int, int]
"""Segment and place in it."""
Stretch = tuple[Position, Position]


class Metadata(NamedTuple):
    min_timestamp: int
    """The least write time of anything in it."""
    max_timestamp: int
    level: int = 0
    repaired: bool = False
    pending_repair: bool = False
    covers: tuple[Stretch, ...] = ()
    """What was written to the commit log between these positions is in it: those of a flush, or of all files that were
    compacted into it. None if it came from another node."""


def metadata_of(node: Node, files: Collection[Path]) -> dict[Path, Metadata]:
    """Files that went away meanwhile are left out: those of which nothing is told."""
    parts = chunks(sorted(files), _FILES_A_CALL)
    return {path: each for part in parts for path, each in metadata_in(node.sstablemetadata(part))}


def metadata_in(said: str) -> Iterator[tuple[Path, Metadata]]:
    """What is not understood is an error: taken for gone, a file would keep tombstones that were proven to go."""
    _, *parts = _FILE.split(said)
    for file, text in zip(parts[::2], parts[1::2], strict=True):
        found = {name: each.search(text) for name, each in _FIELDS.items()}
        repaired, pending = _REPAIRED.search(text), _PENDING_REPAIR.search(text)
        if repaired is None or pending is None or not all(found.values()):
            raise AnswerNotUnderstood(
                "node: sstablemetadata does not tell of a file what Cassandra 5's does; see that compaction_nodes has "
                "that one started",
                tool="sstablemetadata",
            )
        numbers = {name: int(each[1]) for name, each in found.items() if each}
        yield (
            Path(f"{file}-{DATA}"),
            Metadata(**numbers, repaired=repaired[1] != "0", pending_repair=pending[1] != "--", covers=_covers(text)),
        )


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """In their order, those that touch as one, as Cassandra joins them in what it compacts."""
    found: list[Stretch] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def meet(one: Iterable[Stretch], other: Sequence[Stretch]) -> bool:
    """Whether they have more in common than an end."""
    return any(max(start, begins) < min(end, ends) for start, end in one for begins, ends in other)


def _covers(text: str) -> tuple[Stretch, ...]:
    told = _COVERS.search(text)
    positions = [(int(segment), int(place)) for segment, place in _POSITION.findall(told[1] if told else "")]
    return joined(zip(positions[::2], positions[1::2], strict=True))
