"""What of an entry is dead, and since when.

Tombstones are deletions of partitions, rows and cells, the bounds of deleted ranges, and cells whose time is up. One
may be dropped once gc_grace has passed since its deletion, or, for a cell with a time to live, since it was written:
Cassandra counts so, because that cell was told from the start when it would go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    deleted_s: tuple[int, ...] = ()
    """The moment from which gc_grace counts, of each tombstone."""
    written: int = 0
    """The greatest write time of these tombstones: what was written later anywhere does not keep them."""
    alive: bool = False
    """A reader finds something here; then its bytes are not those of a tombstone."""


@dataclass(slots=True)
class Expiry:
    """Between which moments everything read so far is as dead or alive as it is now."""

    now_s: int
    since_s: int = field(default=0)
    until_s: int | None = field(default=None)

    def passed(self, expires_s: int) -> bool:
        if expires_s <= self.now_s:
            self.since_s = max(self.since_s, expires_s)
            return True
        self.until_s = expires_s if self.until_s is None else min(self.until_s, expires_s)
        return False


def reading_of_partition(partition: dict[str, Any]) -> Reading:
    deletion = partition.get("deletion_info")
    return Reading((_deleted(deletion),), _written(deletion)) if deletion else Reading()


def reading_of_marker(marker: dict[str, Any]) -> Reading:
    """The end of one range may be the start of the next: one entry, which goes when both may."""
    deletions = [marker[side]["deletion_info"] for side in ("start", "end") if side in marker]
    return Reading((max(map(_deleted, deletions)),), max(map(_written, deletions)))


def reading_of_row(row: dict[str, Any], expiry: Expiry) -> Reading:
    deletion = row.get("deletion_info")
    dead = [_deleted(deletion)] if deletion else []
    written = [_written(deletion)] if deletion else []
    liveness = row.get("liveness_info")
    expired = _expired(liveness, expiry) if liveness else None
    alive = liveness is not None and expired is None
    dead_cells = 0
    for cell in row.get("cells", ()):
        gone = _gone(cell, liveness, expiry)
        if gone is None:
            alive = True
        else:
            dead.append(gone)
            written.append(int(cell.get("tstamp") or (liveness or {})["tstamp"]))
            dead_cells += 1
    if expired is not None and liveness and not dead_cells and not alive:
        dead.append(expired)
        written.append(int(liveness["tstamp"]))
    return Reading(tuple(dead), max(written, default=0), alive)


def _gone(cell: dict[str, Any], liveness: dict[str, Any] | None, expiry: Expiry) -> int | None:
    if "deletion_info" in cell:
        return _deleted(cell["deletion_info"])
    if "ttl" in cell:
        return _expired(cell, expiry)
    # A cell written together with its row has the row's time to live, and the dump does not repeat it.
    return _expired(liveness, expiry) if liveness and "tstamp" not in cell else None


def _expired(timed: dict[str, Any], expiry: Expiry) -> int | None:
    if "ttl" not in timed or not expiry.passed(int(timed["expires_at"])):
        return None
    return int(timed["expires_at"]) - int(timed["ttl"])


def _written(info: dict[str, Any]) -> int:
    return int(info["marked_deleted"])


def _deleted(info: dict[str, Any]) -> int:
    return int(info["local_delete_time"])
