"""Decodes entries of the queue many at a time, with NumPy.

An entry is a column (its start within the partition, and an index) and a value (table, cell, delete flag). Encoded
integers below 128 take one byte, and table ids, lengths and indexes nearly always are. What has this usual form is
decoded here by arithmetic on whole arrays. `queue/encoding.py` decodes everything else, entry by entry; it is the
definition, and for the usual form both return the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sweep_tasks.model import Cell, Version
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.reader import RawEntry, Reference, place

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PADDING = bytes(3 + 2 * 256)
"""A length that is read from garbage points at most this far behind the end."""


class Positions(NamedTuple):
    """The starts of entries within their partition. A start is meaningful only where the column has the usual form."""

    usual: Flags
    modulus: Ints


class DecodedWrites(NamedTuple):
    """Decoded values, meaningful only where a value has the usual form."""

    usual: Flags
    table_id: Ints
    delete: Flags
    data: npt.NDArray[np.uint8]
    rows: tuple[Ints, Ints]
    """Where each row begins in the data, and its length."""
    columns: tuple[Ints, Ints]


def read_positions(columns: Sequence[bytes]) -> Positions:
    data, first, end = _joined(columns)
    size = end - first
    one, two, three, last = (data[at].astype(np.int64) for at in (first, first + 1, first + 2, end - 1))
    forms = [(size == 2) & (one < 0x80), (size == 3) & (one >> 6 == 0b10), (size == 4) & (one >> 5 == 0b110)]
    modulus = np.select(forms, [one, (one & 0x3F) << 8 | two, (one & 0x1F) << 16 | two << 8 | three], -1)
    return Positions((modulus >= 0) & (modulus < FINE) & (last >> 6 == 0b10), modulus)


def read_writes(values: Sequence[bytes]) -> DecodedWrites:
    data, first, end = _joined(values)
    form, table_id, row_size = (data[at].astype(np.int64) for at in (first, first + 1, first + 2))
    row_end = first + 3 + row_size
    column_size = data[np.minimum(row_end, len(data) - 1)].astype(np.int64)
    flag_at = row_end + 1 + column_size
    flag = data[np.minimum(flag_at, len(data) - 1)]
    small = (table_id < 0x80) & (row_size < 0x80) & (column_size < 0x80)
    usual = (end - first > 4) & (form == 1) & small & (flag_at == end - 1) & (flag < 2)
    return DecodedWrites(usual, table_id, flag == 1, data, (first + 3, row_size), (row_end + 1, column_size))


def slices(data: npt.NDArray[np.uint8], places: tuple[Ints, Ints], chosen: Ints) -> pa.Array:
    """Return the chosen parts of the data as an Arrow array of byte strings."""
    first, size = places[0][chosen], places[1][chosen]
    offsets = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=offsets[1:])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], size)
    taken = data[np.repeat(first, size) + within]
    return pa.Array.from_buffers(pa.binary(), len(size), [None, pa.py_buffer(offsets), pa.py_buffer(taken)])


def _joined(items: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """Return the bytes of all items in one array, and where each begins and ends."""
    end = np.cumsum(np.fromiter(map(len, items), np.int64, len(items)))
    first = np.concatenate((np.zeros(1, np.int64), end[:-1])) if len(items) else end
    return np.frombuffer(b"".join(items) + _PADDING, np.uint8), first, end


# ---------------------------------------------------------------------------------------------------------------------
# Pages of the queue.
# ---------------------------------------------------------------------------------------------------------------------

Item = tuple[Cell, Version]


@dataclass(slots=True)
class QueuePage:
    """A page of a row of the queue: the entries in the usual form as arrays, everything else one by one."""

    items: Sequence[Item]
    chosen: Ints
    """Which items are entries in the usual form. The next three arrays have one element for each of them."""
    start: Ints
    table_id: Ints
    delete: Flags
    writes: DecodedWrites | None
    raw: list[RawEntry]
    references: list[Reference]

    @property
    def starts(self) -> set[int]:
        return {*np.unique(self.start).tolist(), *(each.start for each in self.raw if each.start is not None)}

    @property
    def entries(self) -> int:
        return len(self.chosen) + len(self.raw)

    def leave_to_scalar(self, table_ids: Collection[int]) -> None:
        """Move the entries of some tables to those that are decoded one by one."""
        moved = np.isin(self.table_id, list(table_ids))
        for number, start in zip(self.chosen[moved].tolist(), self.start[moved].tolist(), strict=True):
            cell, version = self.items[number]
            self.raw.append(RawEntry(start, cell, version.value))
        self._keep(~moved)

    def cells(self) -> tuple[pa.Array, pa.Array]:
        """Return the rows and the columns of the entries in the usual form."""
        if self.writes is None:
            return pa.array([], pa.binary()), pa.array([], pa.binary())
        data, rows, columns = self.writes.data, self.writes.rows, self.writes.columns
        return slices(data, rows, self.chosen), slices(data, columns, self.chosen)

    def _keep(self, which: Flags) -> None:
        self.chosen, self.start = self.chosen[which], self.start[which]
        self.table_id, self.delete = self.table_id[which], self.delete[which]


def shared_page(items: Sequence[Item], base: int, after: int) -> QueuePage:
    """Decode a page of a shared row whose first start is `base`; entries up to `after` are left out."""
    positions = read_positions([cell.column for cell, _ in items])
    writes = read_writes([version.value for _, version in items])
    start = base + positions.modulus
    usual = positions.usual & writes.usual
    page = _page(items, usual & (start > after), start, writes)
    for number in np.flatnonzero(~usual).tolist():
        cell, version = items[number]
        found = place(base, after, cell, version.value)
        if isinstance(found, RawEntry):
            page.raw.append(found)
        elif found is not None:
            page.references.append(found)
    return page


def dedicated_page(items: Sequence[Item], start: int) -> QueuePage:
    """Decode a page of a dedicated row, which has entries of one start only."""
    writes = read_writes([version.value for _, version in items])
    page = _page(items, writes.usual, np.full(len(items), start, np.int64), writes)
    for number in np.flatnonzero(~writes.usual).tolist():
        cell, version = items[number]
        page.raw.append(RawEntry(start, cell, version.value))
    return page


def scalar_page(raw: list[RawEntry], references: list[Reference]) -> QueuePage:
    """Return a page of which everything is decoded one by one."""
    none = np.zeros(0, np.int64)
    return QueuePage((), none, none, none, none.astype(np.bool_), None, raw, references)


def _page(items: Sequence[Item], usual: Flags, start: Ints, writes: DecodedWrites) -> QueuePage:
    chosen = np.flatnonzero(usual)
    return QueuePage(items, chosen, start[chosen], writes.table_id[chosen], writes.delete[chosen], writes, [], [])
