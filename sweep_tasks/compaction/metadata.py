"""What Cassandra keeps about a file beside it: its write times, its level, and whether it was repaired.

Unlike what is in the file, some of this changes: a repair marks files, and a level is given anew. So it is asked for
each time, for all files at once, with Cassandra's `sstablemetadata`. Its answer has keys of rows in it: they stay here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.compaction.nodes import Node
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
_PENDING_REPAIR = re.compile(r"^Pending repair: (\S+)$", re.MULTILINE)


class Metadata(NamedTuple):
    min_timestamp: int
    """The least write time of anything in it."""
    max_timestamp: int
    level: int = 0
    repaired: bool = False
    pending_repair: bool = False


def metadata_of(node: Node, files: Collection[Path]) -> dict[Path, Metadata]:
    """Files that went away meanwhile are left out."""
    parts = chunks(sorted(files), _FILES_A_CALL)
    return {path: each for part in parts for path, each in metadata_in(node.sstablemetadata(part))}


def metadata_in(said: str) -> Iterator[tuple[Path, Metadata]]:
    _, *parts = _FILE.split(said)
    for file, text in zip(parts[::2], parts[1::2], strict=True):
        found = {name: each.search(text) for name, each in _FIELDS.items()}
        repaired, pending = _REPAIRED.search(text), _PENDING_REPAIR.search(text)
        if repaired is None or pending is None or not all(found.values()):
            continue
        numbers = {name: int(each[1]) for name, each in found.items() if each}
        yield (
            Path(f"{file}-{DATA}"),
            Metadata(**numbers, repaired=repaired[1] != "0", pending_repair=pending[1] != "--"),
        )
