"""Leaves out the entries of a batch that a later entry of the same cell makes redundant, before they are decoded.

A cell that was written a thousand times is in the queue a thousand times, and one range delete, that of its last entry,
removes all older versions. The rules decide this as well (`rules.plan`). Here it is decided by the bytes of the entries
alone, at a fraction of the cost: the encodings of two writes of one cell differ in their last byte only, the delete
flag. So an entry that is left out can be read if the one that replaces it can. What can't be decided by bytes is kept
for the rules. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sweep_tasks.queue.reader import RawEntry

_FLAGS = frozenset((b"\x00", b"\x01"))
"""The last byte of an entry that can be read: whether the write is a delete."""

Divided = Callable[[RawEntry], bool]


def without_superseded(
    entries: Collection[RawEntry], alone: Collection[int], divided: Divided | None = None
) -> list[RawEntry]:
    """Return the entries that may act. `entries` must come in the order of their starts.

    Entries whose start is in `alone` are judged one by one: their transactions were aborted. `divided` is asked about
    the last entry of each cell: if it is true, more than one entry of the cell may act.
    """
    kept: list[RawEntry] = []
    last: dict[bytes, RawEntry] = {}
    for raw in entries:
        start, _, value = raw
        if start is None or start in alone or value[-1:] not in _FLAGS:
            kept.append(raw)
        else:
            last[value[:-1]] = raw
    several = set() if divided is None else {cell for cell, raw in last.items() if divided(raw)}
    if several:
        judged_alone = set(map(id, kept))
        kept += [raw for raw in entries if raw[2][:-1] in several and id(raw) not in judged_alone]
        kept += [raw for cell, raw in last.items() if cell not in several]
    else:
        kept += last.values()
    return kept
