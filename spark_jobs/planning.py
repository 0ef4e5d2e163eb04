"""Plans what many entries remove at once, where the rules treat them alike.

Most entries of a batch are committed, old enough, in no protection and not truncated. The rules let each of them remove
the same range of versions relative to its start. So the rules are asked about one of them (`rules.removal_for`), and
the others follow its pattern. Every other entry is judged one by one (`rules.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.batches import Views
from spark_jobs.blocks import last_of_each
from spark_jobs.decoding import Flags, Ints
from sweep_tasks.model import Cell, SweepStrategy, TableRef, VersionRange
from sweep_tasks.sweep.rules import Entry, Plan, TableView, is_truncated, removal_for
from sweep_tasks.tables.activity import NONE, WriteCounts


def plan_many(
    plan: Callable[[Iterable[Entry]], Plan], entries: pa.RecordBatch, strategy: SweepStrategy, views: Views
) -> Plan:
    """Return what `plan` decides for the entries that act: the newest of each cell and segment. It is asked only about
    those that are not treated alike."""
    alike, others = planned_alike(entries, strategy, views)
    decided = plan(entries_of(others))
    for table, cells in alike.sentinels.items():
        decided.sentinels.setdefault(table, []).extend(cells)
    for table, ranges in alike.ranges.items():
        decided.ranges.setdefault(table, []).extend(ranges)
    return decided


def planned_alike(entries: pa.RecordBatch, strategy: SweepStrategy, views: Views) -> tuple[Plan, pa.RecordBatch]:
    """Return the sentinels and ranges of the entries that are treated alike, and the other entries."""
    result = Plan()
    others = np.ones(len(entries), np.bool_)
    undivided, starts = _undivided(entries), entries["start"].to_numpy()
    for (table, _), members in _groups(entries):
        view = views.get(table)
        if view is None or view.strategy is SweepStrategy.NOTHING or view.paused or view.check_first:
            continue
        alike = members & undivided
        alike[alike] = ~_truncated(starts[alike], view)
        if alike.any() and _add(result, entries.filter(pa.array(alike)), table, strategy, view):
            others &= ~alike
    return result, entries.filter(pa.array(others))


def entries_of(batch: pa.RecordBatch) -> Iterator[Entry]:
    """Yield the entries of a batch one by one."""
    names = ("table", "table_id", "row", "column", "start", "commit", "delete")
    columns = [batch[name].to_pylist() for name in names]
    tables = {name: TableRef.stored(name) for name in set(columns[0])}
    for table, table_id, row, column, start, commit, delete in zip(*columns, strict=True):
        yield Entry(tables[table], table_id, Cell(row, column), start, commit, delete)


def writes_by_table(entries: pa.RecordBatch) -> dict[TableRef, WriteCounts]:
    """Count the cells that were written or deleted, by table: each cell once, as its latest entry left it."""
    order = pa.array(np.argsort(entries["start"].to_numpy(), kind="stable"))
    by_start = entries.take(order)
    latest = by_start.take(pa.array(last_of_each(by_start, ("table", "row", "column"))))
    counted: dict[TableRef, WriteCounts] = {}
    for (table, delete), members in _groups(latest):
        count = int(members.sum())
        more = WriteCounts(deletes=count) if delete else WriteCounts(writes=count)
        counted[table] = counted.get(table, NONE).plus(more)
    return counted


def _groups(entries: pa.RecordBatch) -> Iterator[tuple[tuple[TableRef, bool], Flags]]:
    """Yield the entries of each table, writes and deletes apart."""
    delete = entries["delete"].to_numpy(zero_copy_only=False)
    names = entries["table"].dictionary_encode()
    numbers = names.indices.to_numpy()
    for number, name in enumerate(names.dictionary.to_pylist()):
        of_table = numbers == number
        for flag in (False, True):
            members = of_table & (delete == flag)
            if members.any():
                yield (TableRef.stored(name), flag), members


def _undivided(entries: pa.RecordBatch) -> Flags:
    """Return which entries have no segment of their own: they are committed, old enough and in no protection."""
    undivided: Flags = pc.equal(entries["segment"], "").to_numpy(zero_copy_only=False)
    return undivided


def _truncated(starts: Ints, view: TableView) -> Flags:
    """Return which entries are truncated: those below a start timestamp, so the rule is asked about the least first."""
    if not len(starts) or not is_truncated(int(starts.min()), view):
        return np.zeros(len(starts), np.bool_)
    return np.fromiter(map(is_truncated, starts.tolist(), repeat(view)), np.bool_, len(starts))


def _add(result: Plan, alike: pa.RecordBatch, table: TableRef, strategy: SweepStrategy, view: TableView) -> bool:
    """Add what the entries remove, by the pattern of the first. Return False if they must be judged one by one."""
    first = next(entries_of(alike.slice(0, 1)))
    removal = removal_for(first, None, strategy, view)
    if removal is None or removal.truncated or removal.marker:
        return False
    cells = list(map(Cell, alike["row"].to_pylist(), alike["column"].to_pylist()))
    ends: Iterable[int] = (alike["start"].to_numpy() + (removal.range.end - first.start)).tolist()
    result.ranges.setdefault(table, []).extend(map(VersionRange, cells, repeat(removal.range.first), ends))
    if removal.sentinel:
        result.sentinels.setdefault(table, []).extend(cells)
    return True
