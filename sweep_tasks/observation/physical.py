"""What is swept and still takes room: told where somebody can look into the files, and said plainly where nobody can.

SQLite frees what is deleted at once. Cassandra keeps a tombstone for its time of grace, and what the tombstone hides
until both are compacted together; only the files of a node tell, so whoever can reach them hands in a
`Reader` (`in_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.store.location import StoreLocation


class Remain(NamedTuple):
    """A version that readers no longer find and that is still in a file."""

    ts: int
    reason: Reason
    """`waiting_gc_grace` or `overlapping_sstable`."""
    until_ms: int | None = None
    by: str | None = None
    """The file that is in the way."""


Reader = Callable[[TableRef, Cell], list[Remain]]
"""Looks into the files of every node that has a copy."""


def remains_of(store_url: str, table: TableRef, cell: Cell, reader: Reader | None = None) -> dict[str, Any]:
    if StoreLocation.parse(store_url).scheme != "cassandra":
        return {"known": True, "remains": [], "says": "what was swept of it is gone from the store"}
    if reader is None:
        return {
            "known": False,
            "reason": "not_configured",
            "remains": None,
            "says": "what was swept of it may still be in Cassandra's files, until its tombstones are purged; that can "
            "only be told where the files of the nodes can be read (setting compaction_nodes)",
        }
    try:
        found = reader(table, cell)
    except SweepflowError as error:
        return {
            "known": False,
            "reason": error.code,
            "remains": None,
            "says": f"what Cassandra's files still hold of it is not known: {error}",
        }
    return {
        "known": True,
        "remains": [each._asdict() | {"reason": each.reason.value} for each in found],
        "says": f"{len(found)} versions that were swept are still in Cassandra's files",
    }
