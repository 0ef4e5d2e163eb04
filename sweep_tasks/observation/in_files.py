"""What of a cell is still in the files of Cassandra's nodes, though no reader finds it any more.

Each node of setting `compaction_nodes` is asked which files hold the row, and those are dumped, that row alone. What
lies there and is not visible was swept: a tombstone in another file hides it. Until gc_grace has passed since then no
compaction is begun for its sake; after that it is the file that was not compacted together with its tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.compaction.dump import PARTITION, Dumped, entries_of
from sweep_tasks.compaction.nodes import Node
from sweep_tasks.compaction.sstables import SSTable
from sweep_tasks.config import Settings
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import MAX_NAME_BYTES, Cell, TableRef
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.observation.physical import Reader, Remain
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import Store

_FIRST, _LAST = -(2**65), 2**65
_NO_COLUMN, _ANY_COLUMN = b"", b"\xff" * (MAX_NAME_BYTES + 1)

Point = tuple[bytes, int]
"""A column and the place of a version in it, newest first as Cassandra keeps them: even numbers; odd ones lie between
two versions."""


class Stored(NamedTuple):
    ts: int
    written: int
    file: str


class Tombstone(NamedTuple):
    first: Point
    last: Point
    written: int
    deleted_s: int

    def hides(self, column: bytes, version: Stored) -> bool:
        return self.written >= version.written and self.first <= (column, 2 * ~version.ts) <= self.last


class Found(NamedTuple):
    """In all files that hold the row."""

    versions: list[Stored]
    tombstones: list[Tombstone]


def reader_of(store: Store, settings: Settings, clock: Clock) -> Reader | None:
    """None where nobody can look into the files."""
    if not isinstance(store, CassandraStore) or not settings.compaction_nodes:
        return None

    def read(table: TableRef, cell: Cell) -> list[Remain]:
        physical = store.physical_tables().get(table)
        if physical is None:
            raise UnknownTable(table)
        found = Found([], [])
        for name in settings.compaction_nodes:
            _look(Node.named(settings, name), physical.keyspace, physical.name, cell, found)
        visible = store.timestamps(table, [cell]).get(cell, [])
        return remains(found, cell.column, visible, physical.gc_grace_s, clock.now_ms() // 1000)

    return read


def remains(found: Found, column: bytes, visible: Collection[int], gc_grace_s: int, now_s: int) -> list[Remain]:
    """By version, the oldest first; a version that lies in several files once, with what takes longest."""
    by_version: dict[int, Remain] = {}
    for version in sorted(found.versions):
        if version.ts not in visible:
            hiding = [each.deleted_s for each in found.tombstones if each.hides(column, version)]
            remain = _remain(version, max(hiding, default=None), gc_grace_s, now_s)
            standing = by_version.get(version.ts)
            if standing is None or (remain.until_ms or 0) > (standing.until_ms or 0):
                by_version[version.ts] = remain
    return list(by_version.values())


def _remain(version: Stored, deleted_s: int | None, gc_grace_s: int, now_s: int) -> Remain:
    """A tombstone that is in no file yet is in memory, and its time of grace has only begun."""
    if deleted_s is None:
        return Remain(version.ts, Reason.WAITING_GC_GRACE, by=version.file)
    free_s = deleted_s + gc_grace_s
    if now_s <= free_s:
        return Remain(version.ts, Reason.WAITING_GC_GRACE, free_s * 1000, version.file)
    return Remain(version.ts, Reason.OVERLAPPING_SSTABLE, by=version.file)


def _look(node: Node, keyspace: str, table: str, cell: Cell, found: Found) -> None:
    key = cell.row.hex()
    for path in node.nodetool("getsstables", "--hex-format", keyspace, table, key).split():
        sstable = SSTable.at(Path(path), node.reach)
        versions, tombstones = read_dump(entries_of(sstable, node.tools, key), cell.column, path)
        found.versions.extend(versions)
        found.tombstones.extend(tombstones)


def read_dump(entries: Iterable[Dumped], column: bytes, file: str) -> Found:
    """Of one row in one file: the versions of the column, and every tombstone that could hide one."""
    found = Found([], [])
    opened: tuple[Point, Mapping[str, Any]] | None = None
    for kind, entry in entries:
        if kind == PARTITION:
            found.tombstones.extend(_whole_row(entry))
        elif kind == "row":
            found.tombstones.extend(_single(entry))
            found.versions.extend(_version(entry, column, file))
        else:
            if "end" in entry and opened:
                found.tombstones.append(_tombstone(opened[0], _bound(entry["end"], ends=True), opened[1]))
            opened = (_bound(entry["start"], ends=False), entry["start"]["deletion_info"]) if "start" in entry else None
    return found


def _whole_row(partition: Mapping[str, Any]) -> Iterator[Tombstone]:
    if "deletion_info" in partition:
        yield _tombstone((_NO_COLUMN, _FIRST), (_ANY_COLUMN, _LAST), partition["deletion_info"])


def _single(row: Mapping[str, Any]) -> Iterator[Tombstone]:
    if "deletion_info" in row:
        place = _point(row["clustering"])
        yield _tombstone(place, place, row["deletion_info"])


def _version(row: Mapping[str, Any], column: bytes, file: str) -> Iterator[Stored]:
    at, place = _point(row["clustering"])
    timed = (row.get("liveness_info", {}), *row.get("cells", ()))
    written = [int(each["tstamp"]) for each in timed if "tstamp" in each]
    if at == column and written:
        yield Stored(~(place // 2), max(written), file)


def _bound(bound: Mapping[str, Any], ends: bool) -> Point:
    """The first or last place within: beside a version that is left out."""
    column, place = _point(bound.get("clustering", ()), ends)
    return column, place + (-1 if ends else 1) * (bound["type"] == "exclusive")


def _point(clustering: Iterable[Any], last: bool = False) -> Point:
    """What is not given is all there is, from the first or up to the last."""
    given = [each for each in clustering if each != "*"]
    if not given:
        return (_ANY_COLUMN, _LAST) if last else (_NO_COLUMN, _FIRST)
    column = bytes.fromhex(str(given[0]).removeprefix("0x"))
    return column, 2 * int(given[1]) if len(given) > 1 else (_LAST if last else _FIRST)


def _tombstone(first: Point, last: Point, deletion: Mapping[str, Any]) -> Tombstone:
    return Tombstone(first, last, int(deletion["marked_deleted"]), int(deletion["local_delete_time"]))
