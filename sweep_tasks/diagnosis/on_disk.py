"""Finds what is left on disk of swept versions: tombstones, and files that still hold the versions.

SQLite frees deleted data at once. Cassandra keeps a tombstone for gc_grace, and the data that it hides until both are
compacted together. Only the files of a node show that. Each node of setting `compaction_nodes` is asked which files
hold the row, and that row is dumped from each file. A version that is in a file and is not visible was swept: a
tombstone in another file hides it. Until gc_grace has passed, no compaction purges it; after that, it is held by the
file that was not compacted together with the tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.diagnosis.documents import as_document
from sweep_tasks.diagnosis.explanation import ReasonContext, describe
from sweep_tasks.diagnosis.obstacles import Obstacle, Reason
from sweep_tasks.errors import SweepflowError, UnknownTable
from sweep_tasks.model import MAX_NAME_BYTES, Cell, TableRef
from sweep_tasks.sstables.dump import PARTITION, Bound, DeletionInfo, Dumped, DumpEntry, entries_of, understood
from sweep_tasks.sstables.files import SSTable
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.store.contract import Store
from sweep_tasks.store.location import StoreLocation


class Remnant(NamedTuple):
    """A version that readers no longer see and that is still in a file."""

    ts: int
    reason: Reason
    """`waiting_gc_grace` or `overlapping_sstable`."""
    until_ms: int | None = None
    by: str | None = None
    """The file that holds it."""

    def sentence(self, context: ReasonContext) -> str:
        return describe(Obstacle(self.reason, self.by, self.until_ms), context)


@dataclass(frozen=True, slots=True)
class PhysicalState:
    """What the files still hold of a cell's swept versions, as far as it is known."""

    says: str
    remains: list[Remnant] | None
    """None if it is not known."""
    reason: str | None = None
    """Why it is not known."""

    def document(self, context: ReasonContext | None = None) -> dict[str, Any]:
        return {
            "known": self.remains is not None,
            **({"reason": self.reason} if self.reason else {}),
            "remains": None if self.remains is None else [_remnant_document(each, context) for each in self.remains],
            "says": self.says,
        }


def _remnant_document(remnant: Remnant, context: ReasonContext | None) -> dict[str, Any]:
    return as_document(remnant) | ({"says": remnant.sentence(context)} if context else {})


RemnantReader = Callable[[TableRef, Cell], list[Remnant]]
"""Reads the files of every node that has a replica."""


def physical_state(store_url: str, table: TableRef, cell: Cell, reader: RemnantReader | None = None) -> PhysicalState:
    if StoreLocation.parse(store_url).scheme != "cassandra":
        return PhysicalState("its swept versions are gone from the store", [])
    if reader is None:
        return PhysicalState(
            "its swept versions may still be in Cassandra's files until their tombstones are purged; to find out, "
            "configure access to the files of the nodes (setting compaction_nodes)",
            None,
            "not_configured",
        )
    try:
        found = reader(table, cell)
    except SweepflowError as error:
        return PhysicalState(f"what Cassandra's files still hold of it is not known: {error}", None, error.code)
    return PhysicalState(f"{len(found)} swept versions are still in Cassandra's files", found)


# --- reading the files ------------------------------------------------------------------------------------------------

_FIRST, _LAST = -(2**65), 2**65
_NO_COLUMN, _ANY_COLUMN = b"", b"\xff" * (MAX_NAME_BYTES + 1)

Point = tuple[bytes, int]
"""A column and the position of a version in it, newest first as Cassandra sorts them. Even numbers are versions, odd
numbers lie between two versions."""


class FileVersion(NamedTuple):
    ts: int
    written: int
    file: str


class Tombstone(NamedTuple):
    first: Point
    last: Point
    written: int
    deleted_s: int

    def hides(self, column: bytes, version: FileVersion) -> bool:
        return self.written >= version.written and self.first <= (column, 2 * ~version.ts) <= self.last


class Found(NamedTuple):
    """Versions and tombstones of one row, from one file or several."""

    versions: list[FileVersion]
    tombstones: list[Tombstone]


def remnant_reader(store: Store, settings: Settings, clock: Clock) -> RemnantReader | None:
    """Return a reader of the files; None if they can't be read."""
    tombstones = store.capabilities.tombstones
    if tombstones is None or not settings.compaction_nodes:
        return None

    def read(table: TableRef, cell: Cell) -> list[Remnant]:
        physical = tombstones.physical_tables().get(table)
        if physical is None:
            raise UnknownTable(table)
        found = Found([], [])
        for name in settings.compaction_nodes:
            _read_node(Node.named(settings, name), physical.keyspace, physical.name, cell, found)
        visible = store.timestamps(table, [cell]).get(cell, [])
        return find_remnants(found, cell.column, visible, physical.gc_grace_s, clock.now_ms() // 1000)

    return read


def find_remnants(found: Found, column: bytes, visible: Collection[int], gc_grace_s: int, now_s: int) -> list[Remnant]:
    """Return the remnants, oldest version first. A version in several files is listed once, with the longest wait."""
    by_version: dict[int, Remnant] = {}
    for version in sorted(found.versions):
        if version.ts not in visible:
            hiding = [each.deleted_s for each in found.tombstones if each.hides(column, version)]
            remnant = _remnant(version, max(hiding, default=None), gc_grace_s, now_s)
            existing = by_version.get(version.ts)
            if existing is None or (remnant.until_ms or 0) > (existing.until_ms or 0):
                by_version[version.ts] = remnant
    return list(by_version.values())


def _remnant(version: FileVersion, deleted_s: int | None, gc_grace_s: int, now_s: int) -> Remnant:
    """A tombstone that is in no file yet is in memory, and its gc_grace has only begun."""
    if deleted_s is None:
        return Remnant(version.ts, Reason.WAITING_GC_GRACE, by=version.file)
    free_s = deleted_s + gc_grace_s
    if now_s <= free_s:
        return Remnant(version.ts, Reason.WAITING_GC_GRACE, free_s * 1000, version.file)
    return Remnant(version.ts, Reason.OVERLAPPING_SSTABLE, by=version.file)


def _read_node(node: Node, keyspace: str, table: str, cell: Cell, found: Found) -> None:
    key = cell.row.hex()
    for path in node.nodetool("getsstables", "--hex-format", keyspace, table, key).split():
        sstable = SSTable.at(Path(path), node.access)
        with understood(sstable):
            versions, tombstones = read_dump(entries_of(sstable, node.tools, key), cell.column, path)
        found.versions.extend(versions)
        found.tombstones.extend(tombstones)


def read_dump(entries: Iterable[Dumped], column: bytes, file: str) -> Found:
    """Read one row of one file: the versions of the column, and every tombstone that could hide one."""
    found = Found([], [])
    opened: tuple[Point, DeletionInfo] | None = None
    for kind, entry in entries:
        if kind == PARTITION:
            found.tombstones.extend(_partition_tombstone(entry))
        elif kind == "row":
            found.tombstones.extend(_row_tombstone(entry))
            found.versions.extend(_version(entry, column, file))
        else:
            if "end" in entry and opened:
                found.tombstones.append(_tombstone(opened[0], _bound(entry["end"], ends=True), opened[1]))
            opened = (_bound(entry["start"], ends=False), entry["start"]["deletion_info"]) if "start" in entry else None
    return found


def _partition_tombstone(partition: DumpEntry) -> Iterator[Tombstone]:
    if "deletion_info" in partition:
        yield _tombstone((_NO_COLUMN, _FIRST), (_ANY_COLUMN, _LAST), partition["deletion_info"])


def _row_tombstone(row: DumpEntry) -> Iterator[Tombstone]:
    if "deletion_info" in row:
        place = _point(row["clustering"])
        yield _tombstone(place, place, row["deletion_info"])


def _version(row: DumpEntry, column: bytes, file: str) -> Iterator[FileVersion]:
    at, place = _point(row["clustering"])
    timed = (row.get("liveness_info", {}), *row.get("cells", ()))
    written = [int(each["tstamp"]) for each in timed if "tstamp" in each]
    if at == column and written:
        yield FileVersion(~(place // 2), max(written), file)


def _bound(bound: Bound, ends: bool) -> Point:
    """Return the first or last position inside a range; an exclusive bound lies beside its version."""
    column, place = _point(bound.get("clustering", ()), ends)
    return column, place + (-1 if ends else 1) * (bound["type"] == "exclusive")


def _point(clustering: Iterable[object], last: bool = False) -> Point:
    """Return the position that a clustering names. Missing parts mean the first or the last position."""
    given = [each for each in clustering if each != "*"]
    if not given:
        return (_ANY_COLUMN, _LAST) if last else (_NO_COLUMN, _FIRST)
    column = bytes.fromhex(str(given[0]).removeprefix("0x"))
    return column, 2 * int(str(given[1])) if len(given) > 1 else (_LAST if last else _FIRST)


def _tombstone(first: Point, last: Point, deletion: DeletionInfo) -> Tombstone:
    return Tombstone(first, last, int(deletion["marked_deleted"]), int(deletion["local_delete_time"]))
