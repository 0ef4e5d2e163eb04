"""The SSTables of a table in a node's data folders: which there are, and what makes each of them itself.

An SSTable never changes after it was written; it is replaced by others and removed. So what was found out about one
holds for as long as the same file stands there: same place, same size, same moment of writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from sweep_tasks.errors import BadValue, SSTableGone

DATA, COMPRESSION, STATISTICS, CONTENTS = "Data.db", "CompressionInfo.db", "Statistics.db", "TOC.txt"
OLDEST_VERSION = "na"
"""Of Cassandra 4.0: what was written before has other headers, and 5.0 rewrites it with `nodetool upgradesstables`."""
_NAME = re.compile(r"(?P<version>[a-z]{2})-(?P<generation>[0-9a-z_]+)-(?P<format>[a-z]+)-Data\.db")
_FOLDER = re.compile(r"(?P<table>\w+)-[0-9a-f]{32}")


class Identity(NamedTuple):
    path: str
    generation: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SSTable:
    keyspace: str
    table: str
    """As Cassandra calls it."""
    data: Path
    version: str
    generation: str

    @classmethod
    def at(cls, data: Path) -> Self:
        """By the path of its data, which lies in `<keyspace>/<table>-<id>/`."""
        data = data.absolute()
        name, folder = _NAME.fullmatch(data.name), _FOLDER.fullmatch(data.parent.name)
        if not (name and folder):
            raise BadValue(
                "file", f"{data} is not the Data.db of an SSTable in the folder of its table; name one that is"
            )
        if name["version"] < OLDEST_VERSION and name["format"] == "big":
            raise BadValue(
                "file", f"{data} has the format of an old Cassandra; run 'nodetool upgradesstables' on its table first"
            )
        return cls(data.parent.parent.name, folder["table"], data, name["version"], name["generation"])

    def component(self, name: str) -> Path:
        return self.data.with_name(self.data.name.removesuffix(DATA) + name)

    def identity(self) -> Identity:
        try:
            found = self.data.stat()
        except FileNotFoundError:
            raise SSTableGone(self.data) from None
        return Identity(str(self.data), self.generation, found.st_size, found.st_mtime_ns)

    @property
    def qualified_table(self) -> str:
        return f"{self.keyspace}.{self.table}"


def sstables_of(data_folders: Iterable[Path], keyspace: str, table: str) -> list[SSTable]:
    """All that are complete, in the order of their names; without snapshots, backups and indexes, which lie deeper."""
    found = (each for folder in data_folders for each in _complete(folder / keyspace, table))
    return sorted(found, key=lambda each: each.data)


def _complete(keyspace: Path, table: str) -> Iterator[SSTable]:
    """The list of contents is written last: without it the file is under way, or half removed."""
    for contents in keyspace.glob(f"{table}-*/*-{CONTENTS}"):
        data = contents.with_name(contents.name.removesuffix(CONTENTS) + DATA)
        folder = _FOLDER.fullmatch(data.parent.name)
        if folder and folder["table"] == table and data.exists():
            yield SSTable.at(data)
