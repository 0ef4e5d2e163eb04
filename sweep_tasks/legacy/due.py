"""Does a scan do what a change of strategy has left? Pure.

The same answer for a run that has ended, for turns that are to be given, and for `doctor`, which says what to run: who
asks for a scan must not ask for one that settles nothing. How far a scan goes is the sweep timestamp it published, or
as far as a retention of the table's own lets it. Where sentinels are to go, the conservative queue must have passed
that point before the scan began: its entries are judged by the rules of their queue, and would write sentinels behind
the back of the scan; so would those that are parked, until they are judged.
"""

from __future__ import annotations

from enum import StrEnum

from sweep_tasks.model import TableMetadata


class Undone(StrEnum):
    """Why what is due stays due."""

    REACH = "reach"
    QUEUE = "queue"
    PARKED = "parked"
    PART = "part"
    HELD = "held"
    WAITING = "waiting"
    LEFT = "left"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Undone.REACH: "sweeps of the table do not go as far as the change yet",
    Undone.QUEUE: "the conservative queue was not swept as far as the change before the scan",
    Undone.PARKED: "entries of the table are parked in the conservative queue and may write sentinels",
    Undone.PART: "only part of the table was scanned",
    Undone.HELD: "protections hold something back",
    Undone.WAITING: "not every copy confirmed that delete markers are gone",
    Undone.LEFT: "rows had their share of tombstones from one scan",
}


def short_of(metadata: TableMetadata, reach: int, passed: int, parked: bool) -> Undone | None:
    """What a scan lacks that goes up to `reach` in its table, where the conservative queue had passed this much before
    it began; None if it does what is due, or nothing is."""
    due = metadata.scan_due
    if due is None:
        return None
    if due.since is None or reach < due.since:
        return Undone.REACH
    if not metadata.scan_waits_for_queue:
        return None
    if passed < due.since:
        return Undone.QUEUE
    return Undone.PARKED if parked else None
