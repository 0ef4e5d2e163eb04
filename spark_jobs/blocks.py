"""Blocks of entries: the form in which entries go from the workers that read them to those that judge them.

A block has up to a few thousand entries as one Arrow message, in the order of their cells. Spark stores and moves it as
it is. If every entry were a row of Spark instead, turning entries into rows, sorting those and turning them back would
take longer than judging.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.batches import ENTRY_SCHEMA
from spark_jobs.decoding import Ints
from sweep_tasks.queue.encoding import FINE

_BLOCK_ENTRIES = 2_500
_SAMPLED = 200
"""One cell of this many is in the sample."""
_CELL = ("table", "row", "column")


class Starts(NamedTuple):
    """The transactions of a batch: those with `after < start < before`, without some fine partitions."""

    after: int | None = None
    before: int | None = None
    without: frozenset[int] = frozenset()

    def below(self, end: int) -> Starts:
        return self._replace(before=end if self.before is None else min(end, self.before))

    @property
    def is_limited(self) -> bool:
        return self != Starts()

    def select(self, entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the entries of these transactions."""
        if not self.is_limited:
            return entries
        start = entries["start"].to_numpy()
        chosen = np.ones(len(start), np.bool_)
        if self.after is not None:
            chosen &= start > self.after
        if self.before is not None:
            chosen &= start < self.before
        if self.without:
            chosen &= ~np.isin(start // FINE, list(self.without))
        return entries if chosen.all() else entries.filter(pa.array(chosen))


def blocks_of(batches: Sequence[pa.RecordBatch]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return entries as rows of the frame of what was read: blocks with their first and last cell and start. The second
    value is a sample of the cells."""
    entries = pa.concat_batches(batches)
    cells = cell_keys(entries)
    order = pc.sort_indices(cells)
    entries, cells = entries.take(order), cells.take(order)
    sample = cells.take(pa.array(range(0, len(cells), _SAMPLED))).to_pylist()
    return [_block(entries, cells, first) for first in range(0, len(cells), _BLOCK_ENTRIES)], sample


def _block(entries: pa.RecordBatch, cells: pa.Array, first: int) -> dict[str, Any]:
    block = entries.slice(first, _BLOCK_ENTRIES)
    starts = block["start"].to_numpy()
    return {
        "block": block.serialize().to_pybytes(),
        "first_cell": cells[first].as_py(),
        "last_cell": cells[first + len(block) - 1].as_py(),
        "first_start": int(starts.min()),
        "last_start": int(starts.max()),
    }


def entries_in(block: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(block, ENTRY_SCHEMA)


def cell_keys(entries: pa.RecordBatch) -> pa.Array:
    """Return a byte string for each entry, by which entries are sorted and divided. Entries of one cell have the same,
    neighbours have similar ones, and different cells rarely have the same."""
    table, row, column = (entries[name].cast(pa.binary()) for name in _CELL)
    return pc.binary_join_element_wise(table, row, column, b"\0")


def chosen_bounds(cells: Iterable[bytes], tasks: int) -> list[bytes]:
    """Return the cells at which to divide entries between tasks, given a sample of their cells."""
    ordered = sorted(cells)
    return sorted({ordered[len(ordered) * number // tasks] for number in range(1, tasks)}) if ordered else []


def divided(block: bytes, first_cell: bytes, last_cell: bytes, bounds: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of a block, each with the number of the task that gets it."""
    task, last_task = bisect_right(bounds, first_cell), bisect_right(bounds, last_cell)
    if task == last_task:
        yield task, block
        return
    entries = entries_in(block)
    cells = cell_keys(entries).to_pylist()
    begin = 0
    for number in range(task, last_task + 1):
        end = len(cells) if number == last_task else bisect_left(cells, bounds[number], begin)
        if end > begin:
            yield number, entries.slice(begin, end - begin).serialize().to_pybytes()
        begin = end


def newest_by_segment(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the entry with the greatest start of each cell and segment, in the order of the cells: the others add
    nothing."""
    entries = pa.concat_batches(batches)
    entries = entries.take(pa.array(np.argsort(entries["start"].to_numpy(), kind="stable")))
    newest = entries.take(pa.array(np.sort(last_of_each(entries, (*_CELL, "segment")))))
    return newest.take(pc.sort_indices(cell_keys(newest)))


def last_of_each(entries: pa.RecordBatch, names: Sequence[str]) -> Ints:
    """Return the position of the last entry of each group of entries with equal values in these columns."""
    columns = [entries[name] for name in names]
    numbered = pa.Table.from_arrays([*columns, pa.array(np.arange(len(entries)))], [*names, "position"])
    found = numbered.group_by(list(names)).aggregate([("position", "max")])
    last: Ints = found["position_max"].to_numpy()
    return last
