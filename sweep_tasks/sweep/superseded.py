"""Leaves out the entries of a batch that a later entry of the same cell makes redundant, before they are decoded.

A cell that was written a thousand times is in the queue a thousand times, and one range delete, that of its last entry,
removes all older versions. The rules decide this as well (`rules.plan`). Here it is decided by the bytes of the entries
alone, at a fraction of the cost: the encodings of two writes of one cell differ in their last byte only, the delete
flag. So an entry that is left out can be read if the one that replaces it can. What can't be decided by bytes is kept
for the rules. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sweep_tasks.errors import BadValue
from sweep_tasks.queue.encoding import table_id_of
from sweep_tasks.queue.reader import RawEntry

_FLAGS = frozenset((b"\x00", b"\x01"))
"""The last byte of an entry that can be read: whether the write is a delete."""

Divided = Callable[[RawEntry], bool]


def without_superseded(
    entries: Iterable[RawEntry], alone: Collection[int], divided: Divided | None = None
) -> list[RawEntry]:
    """Return the entries that may act. `entries` must come in the order of their starts.

    Entries whose start is in `alone` are judged one by one: their transactions were aborted. So are those for which
    `divided` is true: of their cells, more than one entry may act.
    """
    kept: list[RawEntry] = []
    last: dict[bytes, RawEntry] = {}
    for raw in entries:
        start, _, value = raw
        if start is None or start in alone or value[-1:] not in _FLAGS or (divided is not None and divided(raw)):
            kept.append(raw)
        else:
            last[value[:-1]] = raw
    kept += last.values()
    return kept


def divided_by_table(is_divided: Callable[[int], bool]) -> Divided:
    """Return a function that asks once for each table id. An entry without a readable id counts as divided."""
    known: dict[int, bool] = {}

    def divided(raw: RawEntry) -> bool:
        try:
            table_id = table_id_of(raw.value)
        except BadValue:
            return True
        if table_id is None:
            return True
        found = known.get(table_id)
        if found is None:
            found = known[table_id] = is_divided(table_id)
        return found

    return divided
