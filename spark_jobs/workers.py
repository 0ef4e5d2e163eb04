"""What runs in Spark's Python workers: reading the queue, judging, deleting. Many at once, on any machine.

A worker is told everything that must be the same for all of them in a brief: how far the sweep goes, the tables and
protections as the driver read them in the right order, and the time. It opens the store itself.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mmh3
import pyarrow as pa

from spark_jobs.frames import ENTRIES, RESULTS
from sweep_tasks.clock import StandingClock
from sweep_tasks.collecting import collected_seldom
from sweep_tasks.config import load_settings
from sweep_tasks.encoding import sized
from sweep_tasks.model import EVERYTHING, Cell, Span, SweepStrategy, TableRef
from sweep_tasks.opening import borrowed_store
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.queue.reader import QueueReader, RawEntry, Reference
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.late import delete_aborted
from sweep_tasks.sweep.rules import Entry, TableView, segment
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import CommitTable

_PAGE = 10_000
_KINDS = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_()}


def schema(columns: dict[str, str]) -> pa.Schema:
    return pa.schema([(name, _KINDS[kind]) for name, kind in columns.items()])


_ENTRIES, _RESULTS = schema(ENTRIES), schema(RESULTS)

_TOTALS = {"entries": 0, "unreadable": 0, "references": 0}

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Brief:
    store: dict[str, Any]
    """The settings that open it."""
    strategy: SweepStrategy
    shard: int
    horizon: Horizon
    tables: dict[TableRef, TableView]
    now_ms: int
    grace_s: int
    dry_run: bool
    protections: Protections = field(default_factory=lambda: Protections([]))
    tells_cells: bool = True
    """Which cells were touched, not only how many."""

    @contextmanager
    def opened(self) -> Iterator[Desk]:
        with collected_seldom(), borrowed_store(load_settings(**self.store)) as store:
            yield Desk(self, store)


class SharedPart(NamedTuple):
    """A shared row of the queue, or a stretch of its columns."""

    partition: int
    after: int
    before: int
    columns: Span = EVERYTHING
    only_undecided: bool = False
    """Of a partition under way only what came too late: what a sweep has read before is decided."""


class DedicatedRow(NamedTuple):
    start: int
    row: bytes


Part = SharedPart | DedicatedRow


class Desk:
    """A worker at work on one task."""

    def __init__(self, brief: Brief, store: Store) -> None:
        self._brief = brief
        self._store = store
        self._commits = CommitTable(store)
        self._reader = QueueReader(store, brief.strategy, brief.shard)
        self._view = SweepView(store, brief.tables, brief.dry_run)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The entries of a part, a page at a time, every one of them decided; then the totals."""
        totals: Counter[str] = Counter()
        blocked: set[int] = set()
        seen: set[int] = set()
        for raw, references in _pages(self._found(part)):
            if isinstance(part, SharedPart) and part.only_undecided:
                raw, references = self._undecided(raw, references)
            starts = {each.start for each in raw if each.start is not None}
            outcomes = self._commits.settled(starts, self._brief.dry_run)
            entries, unreadable = self._view.decoded(raw, outcomes, self._brief.strategy, self._brief.shard)
            blocked |= {start for start, commit in outcomes.items() if commit >= self._brief.horizon.sweep_ts}
            seen.update([min(starts)] if starts else [])
            totals.update(entries=len(raw), unreadable=len(unreadable), references=len(references))
            yield self._entries(entries)
            if unreadable:
                yield rows_of(_ENTRIES, [_unreadable_row(each) for each in unreadable])
            if references:
                yield rows_of(_ENTRIES, [{"start": each.start, "dedicated_rows": each.rows} for each in references])
        first, least_blocked = min(seen, default=None), min(blocked, default=None)
        yield rows_of(_ENTRIES, [{"worker": me(), "first": first, "blocked": least_blocked, **_TOTALS, **totals}])

    def count(self, part: Part) -> Iterator[pa.RecordBatch]:
        """How many entries there are, and nothing else: of those behind a blocked one, nobody asks the outcome."""
        entries = references = 0
        found: list[pa.RecordBatch] = []
        for raw, referred in _pages(self._found(part)):
            entries += len(raw)
            references += len(referred)
            if referred:
                found.append(
                    rows_of(_ENTRIES, [{"start": each.start, "dedicated_rows": each.rows} for each in referred])
                )
        yield from found
        yield rows_of(_ENTRIES, [{"worker": me(), **_TOTALS, "entries": entries, "references": references}])

    def _found(self, part: Part) -> Iterator[RawEntry | Reference]:
        if isinstance(part, DedicatedRow):
            return self._reader.dedicated(part.start, part.row)
        return self._reader.shared(part.partition, part.after, part.before, part.columns)

    def _undecided(self, raw: list[RawEntry], references: list[Reference]) -> tuple[list[RawEntry], list[Reference]]:
        starts = {each.start for each in raw if each.start is not None} | {each.start for each in references}
        decided = self._commits.outcomes(starts)
        return (
            [each for each in raw if each.start is not None and each.start not in decided],
            [each for each in references if each.start not in decided],
        )

    def _entries(self, entries: list[Entry]) -> pa.RecordBatch:
        views, protections = self._brief.tables, self._brief.protections
        names = {table: str(table) for table in {entry.table for entry in entries}}
        absent = pa.nulls(len(entries))
        columns = [
            pa.array([entry.start for entry in entries], pa.int64()),
            pa.array([entry.commit for entry in entries], pa.int64()),
            pa.array([names[entry.table] for entry in entries], pa.string()),
            pa.array([entry.table_id for entry in entries], pa.int64()),
            pa.array([entry.cell.row for entry in entries], pa.binary()),
            pa.array([entry.cell.column for entry in entries], pa.binary()),
            pa.array([entry.delete for entry in entries], pa.bool_()),
            pa.array([segment(entry, views.get(entry.table), protections) for entry in entries], pa.string()),
        ]
        rest = [absent.cast(each.type) for each in list(_ENTRIES)[len(columns) :]]
        return pa.RecordBatch.from_arrays([*columns, *rest], schema=_ENTRIES)

    # --- judging --------------------------------------------------------------------------------------------------

    def judge(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """All entries of a Spark partition at once: sentinels, tombstones, then parking."""
        entries = [entry for batch in batches for entry in _decoded_entries(batch)]
        judge, summary, counted = self._judge()
        judge.judge(entries, self._brief.protections)
        yield from self._results(summary, counted)

    def rejudge(self, part: tuple[Span, int]) -> Iterator[pa.RecordBatch]:
        """Parked entries within a stretch of columns, and how many of them at most."""
        judge, summary, counted = self._judge()
        judge.rejudge_parked(*part)
        yield from self._results(summary, counted)

    def delete_aborted(self, found: tuple[int, set[int]]) -> Iterator[pa.RecordBatch]:
        brief = self._brief
        deleted = delete_aborted(self._store, self._view, brief.strategy, brief.shard, *found)
        yield _totals(Summary(brief.strategy, brief.shard, 0), Counted(deleted=deleted))

    def set_aside(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        quarantine = Quarantine(self._store, TimestampService(self._store))
        for batch in batches:
            found = [
                Quarantined(
                    self._brief.strategy, self._brief.shard, each["start"], Cell(each["row"], each["column"]),
                    each["value"], each["reason"],
                )
                for each in batch.to_pylist()
            ]  # fmt: skip
            if not self._brief.dry_run:
                quarantine.add(found)
        yield _totals(Summary(self._brief.strategy, self._brief.shard, 0), Counted())

    def _results(self, summary: Summary, counted: Counted) -> Iterator[pa.RecordBatch]:
        if self._brief.tells_cells and (counted.ranged or counted.sentinels):
            yield _cells(counted)
        yield _totals(summary, counted)
        if counted.written:
            tables = [(str(table), found) for table, found in counted.written.items()]
            yield rows_of(_RESULTS, [{"worker": me(), "table": name, **found._asdict()} for name, found in tables])

    def _judge(self) -> tuple[Judge, Summary, Counted]:
        brief = self._brief
        summary = Summary(brief.strategy, brief.shard, brief.horizon.sweep_ts, brief.dry_run)
        counted = Counted()
        parking = Parking(self._store, TimestampService(self._store), brief.strategy, brief.shard)
        clock = StandingClock(brief.now_ms)
        judge = Judge(self._store, brief.strategy, self._view, parking, clock, brief.grace_s, summary, counted)
        return judge, summary, counted


# --- the functions that Spark calls ---------------------------------------------------------------------------------

Worker = Callable[[Batches], Iterator[pa.RecordBatch]]


def reading(brief: Brief, parts: list[Part]) -> Worker:
    """Takes a frame of numbers, each standing for a part."""
    return _one_by_one(brief, parts, Desk.read)


def counting(brief: Brief, parts: list[Part]) -> Worker:
    return _one_by_one(brief, parts, Desk.count)


def rejudging(brief: Brief, stretches: list[Span], at_most: int) -> Worker:
    """`at_most` is for all of them, 0 is no limit."""
    share = -(-at_most // len(stretches))
    return _one_by_one(brief, [(stretch, share) for stretch in stretches], Desk.rejudge)


def deleting_aborted(brief: Brief, progress: int, aborted: set[int]) -> Worker:
    return _one_by_one(brief, [(progress, aborted)], Desk.delete_aborted)


def judging(brief: Brief) -> Worker:
    def judged(batches: Batches) -> Iterator[pa.RecordBatch]:
        with brief.opened() as desk:
            yield from desk.judge(batches)

    return judged


def setting_aside(brief: Brief) -> Worker:
    def set_aside(batches: Batches) -> Iterator[pa.RecordBatch]:
        with brief.opened() as desk:
            yield from desk.set_aside(batches)

    return set_aside


def _one_by_one(brief: Brief, work: list[Any], do: Callable[[Desk, Any], Iterator[pa.RecordBatch]]) -> Worker:
    def done(batches: Batches) -> Iterator[pa.RecordBatch]:
        with brief.opened() as desk:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield from do(desk, work[number])

    return done


# --- rows -----------------------------------------------------------------------------------------------------------


def _pages(found: Iterable[RawEntry | Reference]) -> Iterator[tuple[list[RawEntry], list[Reference]]]:
    raw: list[RawEntry] = []
    references: list[Reference] = []
    for each in found:
        if isinstance(each, RawEntry):
            raw.append(each)
        else:
            references.append(each)
        if len(raw) + len(references) >= _PAGE:
            yield raw, references
            raw, references = [], []
    if raw or references:
        yield raw, references


def _decoded_entries(batch: pa.RecordBatch) -> Iterator[Entry]:
    tables: dict[str, TableRef] = {}
    names = ("table", "table_id", "row", "column", "start", "commit", "delete")
    for table, table_id, row, column, start, commit, delete in zip(
        *(batch.column(name).to_pylist() for name in names), strict=True
    ):
        if table not in tables:
            tables[table] = TableRef.stored(table)
        yield Entry(tables[table], table_id, Cell(row, column), start, commit, delete)


def _cells(counted: Counted) -> pa.RecordBatch:
    ranged, sentinels = set(counted.ranged), set(counted.sentinels)
    cells = list(ranged | sentinels)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_number_of(*cell) for cell in cells], pa.int64()),
            pa.array([cell in ranged for cell in cells], pa.bool_()),
            pa.array([cell in sentinels for cell in cells], pa.bool_()),
            *(pa.nulls(len(cells)).cast(each.type) for each in list(_RESULTS)[3:]),
        ],
        schema=_RESULTS,
    )


def _totals(summary: Summary, counted: Counted) -> pa.RecordBatch:
    totals = {
        "worker": me(),
        "range_deletes": len(counted.ranged),
        "sentinels": len(counted.sentinels),
        "aborted_deletes": summary.aborted_deletes,
        "parked": summary.parked,
        "unparked": summary.unparked,
        "deleted": json.dumps(counted.deleted.document()) if counted.deleted else None,
    }
    return rows_of(_RESULTS, [totals])


def _unreadable_row(entry: Quarantined) -> dict[str, Any]:
    row, column = entry.place
    return {"start": entry.start, "row": row, "column": column, "value": entry.value, "reason": entry.reason}


def _number_of(table: TableRef, cell: Cell) -> int:
    """Stands for a cell where cells are only counted."""
    return mmh3.hash64(str(table).encode() + b"\0" + sized(cell.row) + cell.column)[0]


def rows_of(kind: pa.Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=kind)


def me() -> str:
    return f"{socket.gethostname()} {os.getpid()}"
