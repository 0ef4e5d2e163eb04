"""What runs in Spark's Python workers: reading the queue, judging and deleting. Many at once, on any machine.

The driver sends every worker the same `WorkerContext`: the horizon, the tables and the time. What reads or judges
entries of the queue also gets the protections, as the driver read them after it had published. A worker opens the store
itself.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs import frames
from spark_jobs.batches import crowded_rows, entry_batches, row_number, rows_of
from spark_jobs.blocks import Starts, blocks_of, divided, entries_in, newest_by_segment
from spark_jobs.decoding import QueuePage, dedicated_page, scalar_page, shared_page
from spark_jobs.planning import plan_many, writes_by_table
from spark_jobs.store_settings import WorkerStoreSettings
from spark_jobs.worker_errors import Batches, Worker, report_errors
from sweep_tasks.clock import StandingClock
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import sized
from sweep_tasks.errors import BadValue
from sweep_tasks.model import EVERYTHING, Cell, Span, SweepStrategy, TableRef
from sweep_tasks.processes import collect_garbage_seldom
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.parking import Parking, Quarantine, Quarantined
from sweep_tasks.queue.reader import QueueReader, RawEntry, Reference
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.actions import delete_aborted
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.rules import TableView
from sweep_tasks.sweep.summary import Summary, SweepCounts
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.transactions.outcomes import CommitTable

_READ, _RESULTS = frames.arrow_schema(frames.READ), frames.arrow_schema(frames.RESULTS)
_BLOCKS, _PLACES = frames.arrow_schema(frames.BLOCKS), frames.arrow_schema(frames.PLACES)
_TRANSACTIONS, _TOUCHED = frames.arrow_schema(frames.TRANSACTIONS), frames.arrow_schema(frames.TOUCHED)

_TOTALS = {"entries": 0, "unreadable": 0, "references": 0}
_GROUPS = 64
"""Touched cells are counted in this many groups, so that no task needs to know all of them."""
_GATHERED_ENTRIES, _GATHERED_BYTES = 50_000, 8_000_000
"""Entries are sorted into blocks when there are this many, or this many bytes of them."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    store: WorkerStoreSettings
    strategy: SweepStrategy
    shard: int
    horizon: Horizon
    tables: dict[TableRef, TableView]
    now_ms: int
    grace_s: int
    dry_run: bool
    reports_cells: bool = True
    """Report which cells were touched, not only how many."""

    @contextmanager
    def open_task(self) -> Iterator[WorkerTask]:
        with collect_garbage_seldom(), self.store.borrow_store() as store:
            yield WorkerTask(self, store)


class SharedPart(NamedTuple):
    """A shared row of the queue, or a range of its columns."""

    partition: int
    after: int
    before: int
    columns: Span = EVERYTHING
    only_undecided: bool = False
    """Read only late entries of a partition that is partly swept: what earlier sweeps have read is decided."""


class DedicatedRow(NamedTuple):
    start: int
    row: bytes


QueuePart = SharedPart | DedicatedRow


class WorkerTask:
    """One task of a worker, with the store open."""

    def __init__(self, context: WorkerContext, store: Store) -> None:
        self._context = context
        self._store = store
        self._commits = CommitTable(store)
        self._reader = QueueReader(store, context.strategy, context.shard)
        self._view = SweepView(store, context.tables, context.dry_run)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, part: QueuePart, protections: Protections) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a part as blocks, each entry with the outcome of its transaction; then the totals."""
        totals: Counter[str] = Counter()
        blocked: set[int] = set()
        seen: set[int] = set()
        crowded: Counter[int] = Counter()
        gathered = _Gathered()
        for page in self._pages(part):
            outcomes = self._commits.abort_unfinished(page.starts, self._context.dry_run)
            batches, unreadable = entries_of_page(
                page, self._view, outcomes, self._context.strategy, self._context.shard, protections
            )
            blocked |= {start for start, commit in outcomes.items() if commit >= self._context.horizon.sweep_ts}
            seen.update([min(page.starts)] if page.starts else [])
            totals.update(entries=page.entries, unreadable=len(unreadable), references=len(page.references))
            for batch in batches:
                crowded.update(crowded_rows(batch))
                gathered.add(batch)
            if gathered.is_full:
                yield gathered.take()
            if unreadable:
                yield rows_of(_READ, [_unreadable_row(each) for each in unreadable])
            if page.references:
                yield _references(page.references)
        yield gathered.take()
        first, least_blocked = min(seen, default=None), min(blocked, default=None)
        found = {"first": first, "blocked": least_blocked, "crowded": json.dumps(crowded) if crowded else None}
        yield rows_of(_READ, [{"worker": worker_name(), **found, **_TOTALS, **totals, "cells": gathered.sample}])

    def count(self, part: QueuePart) -> Iterator[pa.RecordBatch]:
        """Yield only the number of entries: the outcomes of entries after a blocked one are not needed."""
        entries = references = 0
        found: list[pa.RecordBatch] = []
        for page in self._pages(part):
            entries += page.entries
            references += len(page.references)
            if page.references:
                found.append(_references(page.references))
        yield from found
        yield rows_of(_READ, [{"worker": worker_name(), **_TOTALS, "entries": entries, "references": references}])

    def _pages(self, part: QueuePart) -> Iterator[QueuePage]:
        if isinstance(part, DedicatedRow):
            return (dedicated_page(items, part.start) for items in self._reader.dedicated_pages(part.row))
        base = part.partition * FINE
        if part.only_undecided:
            return self._undecided(part)
        pages = self._reader.shared_pages(part.partition, part.after, part.before, part.columns)
        return (shared_page(items, base, part.after) for items in pages)

    def _undecided(self, part: SharedPart) -> Iterator[QueuePage]:
        """Yield the late entries of a partition, which are few."""
        existing = list(self._reader.shared(part.partition, part.after, part.before, part.columns))
        decided = self._commits.outcomes({each.start for each in existing if each.start is not None})
        late = [each for each in existing if each.start is not None and each.start not in decided]
        yield scalar_page(
            [each for each in late if isinstance(each, RawEntry)],
            [each for each in late if isinstance(each, Reference)],
        )

    # --- judging --------------------------------------------------------------------------------------------------

    def judge(self, batches: Batches, starts: Starts, protections: Protections) -> Iterator[pa.RecordBatch]:
        """Judge all entries of a Spark partition at once: write sentinels, then tombstones, then park."""
        judge, summary, counted = self._judge()
        chosen = [entries for entries in _selected(batches, starts) if len(entries)]
        if chosen:
            entries = newest_by_segment(chosen)
            plan = partial(judge.plan, protections=protections)
            judge.carry_out(plan_many(plan, entries, self._context.strategy, self._context.tables))
            counted.add_written(writes_by_table(entries))
        yield from self._results(summary, counted)

    def rejudge(self, part: tuple[Span, int]) -> Iterator[pa.RecordBatch]:
        """Judge parked entries again: those within a range of columns, up to a maximum number."""
        judge, summary, counted = self._judge()
        judge.rejudge_parked(*part)
        yield from self._results(summary, counted)

    def delete_aborted(self, found: tuple[int, set[int]]) -> Iterator[pa.RecordBatch]:
        context = self._context
        deleted = delete_aborted(self._store, self._view, context.strategy, context.shard, *found)
        yield _totals(Summary(context.strategy, context.shard, 0), SweepCounts(deleted=deleted))

    def quarantine(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        quarantine = Quarantine(self._store, TimestampService(self._store))
        for batch in batches:
            found = [
                Quarantined(
                    self._context.strategy, self._context.shard, each["start"], Cell(each["row"], each["column"]),
                    each["value"], each["reason"],
                )
                for each in batch.to_pylist()
            ]  # fmt: skip
            if not self._context.dry_run:
                quarantine.add(found)
        yield _totals(Summary(self._context.strategy, self._context.shard, 0), SweepCounts())

    def _results(self, summary: Summary, counted: SweepCounts) -> Iterator[pa.RecordBatch]:
        if self._context.reports_cells and (counted.ranged or counted.sentinels):
            yield _cells(counted)
        yield _totals(summary, counted)
        if counted.written:
            tables = [(str(table), found) for table, found in counted.written.items()]
            yield rows_of(
                _RESULTS, [{"worker": worker_name(), "table": name, **found._asdict()} for name, found in tables]
            )

    def _judge(self) -> tuple[Judge, Summary, SweepCounts]:
        context = self._context
        summary = Summary(context.strategy, context.shard, context.horizon.sweep_ts, context.dry_run)
        counted = SweepCounts()
        parking = Parking(self._store, TimestampService(self._store), context.strategy, context.shard)
        clock = StandingClock(context.now_ms)
        judge = Judge(self._store, context.strategy, self._view, parking, clock, context.grace_s, summary, counted)
        return judge, summary, counted


# --- the functions that Spark calls ---------------------------------------------------------------------------------


def reading(context: WorkerContext, parts: list[QueuePart], protections: Protections) -> Worker:
    """Return a worker for a frame of numbers, each the index of a part."""
    return _one_by_one(context, parts, lambda task, part: task.read(part, protections))


def counting(context: WorkerContext, parts: list[QueuePart]) -> Worker:
    return _one_by_one(context, parts, WorkerTask.count)


def rejudging(context: WorkerContext, spans: list[Span], at_most: int) -> Worker:
    """Return a worker that judges parked entries again; `at_most` is the limit for all ranges together, 0 is no
    limit."""
    share = -(-at_most // len(spans))
    return _one_by_one(context, [(span, share) for span in spans], WorkerTask.rejudge)


def deleting_aborted(context: WorkerContext, progress: int, aborted: set[int]) -> Worker:
    return _one_by_one(context, [(progress, aborted)], WorkerTask.delete_aborted)


def dividing(bounds: list[bytes]) -> Worker:
    """Return a worker that divides blocks between tasks, at these cells."""

    def divide(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = zip(*(batch[name].to_pylist() for name in ("block", "first_cell", "last_cell")), strict=True)
            parts = [part for block, first, last in found for part in divided(block, first, last, bounds)]
            yield rows_of(_BLOCKS, [{"task": task, "block": block} for task, block in parts])

    return divide


def judging(context: WorkerContext, starts: Starts, protections: Protections) -> Worker:
    @report_errors
    def judge(batches: Batches) -> Iterator[pa.RecordBatch]:
        with context.open_task() as task:
            yield from task.judge(batches, starts, protections)

    return judge


def counting_transactions(starts: Starts) -> Worker:
    """Return a worker that counts the entries of each transaction in blocks."""

    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        for entries in _selected(batches, starts):
            found = pa.Table.from_batches([entries]).group_by(["start", "commit"]).aggregate([([], "count_all")])
            yield from found.rename_columns(_TRANSACTIONS.names).cast(_TRANSACTIONS).to_batches()

    return count


def placing(starts: Starts, rows: Collection[int]) -> Worker:
    """Return a worker that finds the entries in some rows, given by their numbers."""

    def place(batches: Batches) -> Iterator[pa.RecordBatch]:
        for entries in _selected(batches, starts):
            values = zip(*(entries[name].to_pylist() for name in ("table", "row", "start", "column")), strict=True)
            found = [(row_number(table, row), start, column) for table, row, start, column in values]
            places = [(row, start, mmh3.hash64(column)[0]) for row, start, column in found if row in rows]
            yield rows_of(_PLACES, [dict(zip(_PLACES.names, each, strict=True)) for each in places])

    return place


def quarantining(context: WorkerContext) -> Worker:
    @report_errors
    def quarantine(batches: Batches) -> Iterator[pa.RecordBatch]:
        with context.open_task() as task:
            yield from task.quarantine(batches)

    return quarantine


def _one_by_one(
    context: WorkerContext, work: list[Any], do: Callable[[WorkerTask, Any], Iterator[pa.RecordBatch]]
) -> Worker:
    @report_errors
    def work_through(batches: Batches) -> Iterator[pa.RecordBatch]:
        with context.open_task() as task:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield from do(task, work[number])

    return work_through


# --- rows -----------------------------------------------------------------------------------------------------------


def entries_of_page(
    page: QueuePage,
    view: SweepView,
    outcomes: Mapping[int, int],
    strategy: SweepStrategy,
    shard: int,
    protections: Protections,
) -> tuple[list[pa.RecordBatch], list[Quarantined]]:
    """Return the entries of a page, with outcomes and segments, and those that can't be read."""
    known: dict[int, TableRef] = {}
    unknown: list[int] = []
    for table_id in np.unique(page.table_id).tolist():
        try:
            known[table_id], _ = view.table_of(table_id)
        except BadValue:
            unknown.append(table_id)
    if unknown:
        page.leave_to_scalar(unknown)
    entries, unreadable = view.decoded(page.raw, outcomes, strategy, shard)
    return list(entry_batches(page, known, entries, outcomes, view.tables, protections)), unreadable


class _Gathered:
    """Entries that are going to be sorted into blocks together."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.sample: list[bytes] = []
        """A sample of the cells of all blocks so far."""

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    @property
    def is_full(self) -> bool:
        entries, size = sum(map(len, self._batches)), sum(batch.nbytes for batch in self._batches)
        return entries >= _GATHERED_ENTRIES or size >= _GATHERED_BYTES

    def take(self) -> pa.RecordBatch:
        """Return the blocks of what was gathered since the last call."""
        blocks, sample = blocks_of(self._batches) if self._batches else ([], [])
        self._batches = []
        self.sample += sample
        return rows_of(_READ, blocks)


def _selected(batches: Batches, starts: Starts) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for block in batch["block"]:
            yield starts.select(entries_in(block.as_buffer()))


def _references(references: list[Reference]) -> pa.RecordBatch:
    return rows_of(_READ, [{"start": each.start, "dedicated_rows": each.rows} for each in references])


def _unreadable_row(entry: Quarantined) -> dict[str, Any]:
    row, column = entry.place
    return {"start": entry.start, "row": row, "column": column, "value": entry.value, "reason": entry.reason}


def _cells(counted: SweepCounts) -> pa.RecordBatch:
    """Return the cells that were touched, in groups that can be counted independently."""
    numbers = [_numbers_of(cells) for cells in (counted.ranged, counted.sentinels)]
    groups = [each.view(np.uint64) % _GROUPS for each in numbers]
    rows: list[dict[str, Any]] = []
    for group in np.unique(np.concatenate(groups)).tolist():
        ranged, sentinel = (each[of == group].tobytes() for each, of in zip(numbers, groups, strict=True))
        rows.append({"group": group, "ranged": ranged, "sentinel": sentinel})
    return rows_of(_RESULTS, rows)


def counting_cells(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Count the distinct cells of each group; a task has all rows of its groups."""
    seen: dict[tuple[int, str], list[bytes]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            for name in ("ranged", "sentinel"):
                seen.setdefault((row["group"], name), []).append(row[name])
    counts = dict.fromkeys(("ranged", "sentinel"), 0)
    for (_, name), numbers in seen.items():
        counts[name] += len(np.unique(np.frombuffer(b"".join(numbers), np.int64)))
    yield rows_of(_TOUCHED, [dict(zip(frames.TOUCHED, counts.values(), strict=True))])


def _totals(summary: Summary, counted: SweepCounts) -> pa.RecordBatch:
    totals = {
        "worker": worker_name(),
        "range_deletes": len(counted.ranged),
        "sentinels": len(counted.sentinels),
        "aborted_deletes": summary.aborted_deletes,
        "parked": summary.parked,
        "unparked": summary.unparked,
        "deleted": json.dumps(counted.deleted.document()) if counted.deleted else None,
    }
    return rows_of(_RESULTS, [totals])


def _numbers_of(cells: Iterable[tuple[TableRef, Cell]]) -> npt.NDArray[np.int64]:
    """Return hashes that stand for cells where cells are only counted."""
    hashes = (mmh3.hash64(str(table).encode() + b"\0" + sized(row) + column)[0] for table, (row, column) in cells)
    return np.fromiter(hashes, np.int64)


def worker_name() -> str:
    return f"{socket.gethostname()} {os.getpid()}"
