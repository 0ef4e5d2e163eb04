"""The SSTables in a node's data folders: which there are, and what makes each of them itself.

An SSTable never changes after it was written; it is replaced by others and removed. So what was found out about one
holds for as long as the same file stands there: same place, same size, same moment of writing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from sweep_tasks.compaction.reach import HERE, Reach, Stand
from sweep_tasks.errors import BadValue, SSTableGone, SSTableTooOld

DATA, COMPRESSION, STATISTICS, CONTENTS = "Data.db", "CompressionInfo.db", "Statistics.db", "TOC.txt"
OLDEST_VERSION = "na"
"""Of Cassandra 4.0: what was written before has other headers, and 5.0 rewrites it with `nodetool upgradesstables`."""
_OTHER_FORMAT = "bti"
"""Its versions begin anew."""
_NAME = re.compile(r"(?P<version>[a-z]{2})-(?P<generation>[0-9a-z_]+)-(?P<format>[a-z]+)-Data\.db")
_FOLDER = re.compile(r"(?P<table>\w+)-[0-9a-f]{32}")


class Identity(NamedTuple):
    path: str
    """With how it is reached, so that it is no other node's."""
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
    reach: Reach = HERE

    @classmethod
    def at(cls, data: Path, reach: Reach = HERE) -> Self:
        """By the path of its data, which lies in `<keyspace>/<table>-<id>/`."""
        data = data.absolute()
        if not (_NAME.fullmatch(data.name) and _FOLDER.fullmatch(data.parent.name)):
            raise BadValue(
                "file", f"{data} is not the Data.db of an SSTable in the folder of its table; name one that is"
            )
        found = cls.listed(data, reach)
        found.check_format()
        return found

    @classmethod
    def listed(cls, data: Path, reach: Reach = HERE) -> Self:
        """One that lies in the folder of a table, whatever Cassandra has written it."""
        name = _NAME.fullmatch(data.name)
        version, generation = (name["version"], name["generation"]) if name else ("", data.name)
        return cls(data.parent.parent.name, data.parent.name.partition("-")[0], data, version, generation, reach)

    def check_format(self) -> None:
        if self.version < OLDEST_VERSION and not self.data.name.endswith(f"-{_OTHER_FORMAT}-{DATA}"):
            raise SSTableTooOld(self.data)

    def component(self, name: str) -> Path:
        return self.data.with_name(self.data.name.removesuffix(DATA) + name)

    def read(self, component: str, most: int) -> bytes | None:
        """The beginning of a component; None if there is none."""
        return self.reach.read(self.component(component), most)

    def identity(self) -> Identity:
        found = self.reach.stands([self.data]).get(self.data)
        if found is None:
            raise SSTableGone(self.data)
        return self.identified(found)

    def identified(self, stand: Stand) -> Identity:
        return Identity(self.reach.label(self.data), self.generation, stand.size, stand.modified_ns)

    @property
    def qualified_table(self) -> str:
        return f"{self.keyspace}.{self.table}"


def sstables_of(data_folders: Iterable[Path], keyspace: str, table: str) -> list[SSTable]:
    """All on this machine that are complete, in the order of their names."""
    return list(sstables_in(HERE, data_folders, keyspace, {table}))


def sstables_in(
    reach: Reach, data_folders: Iterable[Path], keyspace: str, tables: Container[str]
) -> dict[SSTable, Identity]:
    """All of some tables that are complete, in the order of their names; without snapshots, backups and indexes, which
    lie deeper."""
    found = (each for folder in data_folders for each in _complete(reach, folder.absolute() / keyspace, tables))
    return dict(sorted(found, key=lambda each: each[0].data))


def _complete(reach: Reach, keyspace: Path, tables: Container[str]) -> Iterator[tuple[SSTable, Identity]]:
    """The list of contents is written last: without it the file is under way, or half removed."""
    stands = {each.path: each for each in reach.listed(keyspace, f"-{CONTENTS}", f"-{DATA}")}
    for path, stand in stands.items():
        contents = path.with_name(path.name.removesuffix(DATA) + CONTENTS)
        folder = _FOLDER.fullmatch(path.parent.name)
        if path.name.endswith(DATA) and contents in stands and folder and folder["table"] in tables:
            sstable = SSTable.listed(path, reach)
            yield sstable, sstable.identified(stand)
