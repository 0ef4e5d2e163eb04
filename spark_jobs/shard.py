"""The engine that carries out the reading and deleting steps of a sweep on Spark.

The steps and their order are those of the in-process sweep. The driver publishes, reads tables and protections, decides
where a batch ends, cleans the queue and advances the progress. It sees counts, timestamps, row keys of the queue, and
some cells at which a large batch is divided between tasks. Entries go from the workers that read them, through Spark,
to the workers that judge them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs import frames, workers
from spark_jobs.blocks import Starts, chosen_bounds
from spark_jobs.frames import BLOCKS, PLACES, READ, RESULTS, TRANSACTIONS, Cut, Windows, column_spans, cuts
from spark_jobs.store_settings import WorkerStoreSettings
from spark_jobs.worker_errors import Worker
from spark_jobs.workers import DedicatedRow, QueuePart, SharedPart, WorkerContext
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.reader import Batch, Reference
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.work import ShardWork
from sweep_tasks.tables.activity import WriteCounts
from sweep_tasks.tables.deletions import DeleteTally

PHASE, STEP = "sweepflow.phase", "sweepflow.step"
"""Properties of every Spark job, for readers of its event log."""
_ENTRIES_PER_TASK = 50_000
READING, DELETING = "reading", "deleting"
_MANY = 2_000
"""The number of entries that is worth a second task."""


@dataclass(slots=True)
class Window:
    """Entries that were read at once and stay on disk until they are judged, with what the driver knows about them."""

    partitions: list[int]
    frame: DataFrame
    parts: list[DataFrame]
    first: int | None = None
    entries: int = 0
    unreadable: int = 0
    blocked: int | None = None
    over_cap: int | None = None
    references: tuple[Reference, ...] = ()
    crowded: Counter[int] = field(default_factory=Counter)
    """The number of entries of each row that has many."""
    cells: list[bytes] = field(default_factory=list)
    """A sample of the cells of its entries."""

    def unpersist(self) -> None:
        for part in self.parts:
            part.unpersist()


@dataclass(slots=True)
class WindowBatch(Batch):
    """A part of a window. Its rows have the outcomes of their transactions: the workers settle them as they read."""

    window: Window = field(kw_only=True)
    chosen: Starts = field(kw_only=True)
    count: int = field(kw_only=True)
    several: bool = field(kw_only=True)
    """Other batches may touch the same cells."""
    blocked: int | None = None
    over_cap: int | None = None


class TouchedCells:
    """Counts distinct cells over batches, and over shards if several sweeps share it."""

    def __init__(self) -> None:
        self._results: list[DataFrame] = []

    def __bool__(self) -> bool:
        return bool(self._results)

    def add(self, results: DataFrame) -> None:
        self._results.append(results)

    def count(self) -> frames.Touched:
        if not self._results:
            return frames.Touched(0, 0)
        tasks = self._results[0].sparkSession.sparkContext.defaultParallelism
        cells = frames.touched_cells(self._results, tasks)
        return frames.sum_touched(cells.mapInArrow(workers.counting_cells, frames.ddl(frames.TOUCHED)))

    def unpersist(self) -> None:
        for results in self._results:
            results.unpersist()
        self._results = []


def spark_sweep(
    spark: Callable[[], SparkSession],
    store: Store,
    settings: Settings,
    strategy: SweepStrategy,
    shard: int,
    horizon: Horizon,
    clock: Clock,
    options: SweepOptions,
    touched: TouchedCells | None = None,
) -> ShardSweep:
    """Return the sweep of a shard that reads and deletes on Spark. Spark is started by the first step that needs it."""
    return ShardSweep(
        store, strategy, shard, horizon, clock, options, engine=lambda work: OnSpark(work, spark, settings, touched)
    )


class OnSpark:
    """The steps of a sweep that read and delete, carried out by Spark's Python workers."""

    def __init__(
        self, work: ShardWork, spark: Callable[[], SparkSession], settings: Settings, touched: TouchedCells | None
    ) -> None:
        self._work = work
        self._start_spark = spark
        self._store_settings = WorkerStoreSettings.of(settings)
        self._counts_alone = touched is None
        self._touched = TouchedCells() if touched is None else touched
        self._workers: set[str] = set()
        self._entries_by_row: Counter[int] = Counter()
        """Entries of the crowded rows, by their numbers."""
        self._first_start: int | None = None

    @property
    def _spark(self) -> SparkSession:
        return self._start_spark()

    @property
    def _cores(self) -> int:
        return max(2, self._spark.sparkContext.defaultParallelism)

    @property
    def _sweep_ts(self) -> int:
        return self._work.horizon.sweep_ts

    def _describe(self, step: str, doing: str) -> None:
        """Describe the next jobs on Spark's own page, and as properties in its event log."""
        work = self._work
        who = f"{work.strategy} shard {work.shard}"
        done = f"{work.summary.batches} batches with {work.summary.entries} entries done"
        self._spark.sparkContext.setJobGroup(f"sweep {who}", f"{who}, {work.phase}: {doing}; {done}")
        for name, value in ((PHASE, work.phase), (STEP, step)):
            self._spark.sparkContext.setLocalProperty(name, value)

    # --- parked entries -------------------------------------------------------------------------------------------

    def rejudge_parked(self) -> None:
        """Judge each hold that is due, by ranges of start timestamps, so that one large hold keeps all workers busy."""
        sweep_ts = self._sweep_ts
        spans = []
        for first in self._work.judge.due_holds():
            step = max(1, -(-(max(sweep_ts, first.start + 1) - first.start) // self._cores))
            edges = range(first.start, max(sweep_ts, first.start + 1), step)
            spans += [Parking.started(first.hold, edge, edge + step) for edge in edges]
        if spans:
            at_most = self._work.options.budget.parked
            work = self._numbered(len(spans))
            self._do(work, lambda context: workers.rejudging(context, spans, at_most), several=True)

    # --- late entries ---------------------------------------------------------------------------------------------

    def late(self, progress: int, protections: Protections) -> Iterator[WindowBatch]:
        """Read all late entries at once, as one batch without the partitions that have a blocked entry."""
        late = self._work.late_partitions(progress)
        parts: list[QueuePart] = [SharedPart(each, each * FINE - 1, (each + 1) * FINE) for each in late]
        if self._work.some_came_late(progress):
            first = self._work.checked_from(progress)
            parts.append(SharedPart(fine(progress + 1), first - 1, progress + 1, only_undecided=True))
        if not parts:
            return
        window = self._read(late, parts, -1, protections)
        try:
            blocked = self._partitions_blocked(window) if window.blocked is not None else set()
            starts = Starts(without=frozenset(blocked))
            passed = [partition for partition in late if partition not in blocked]
            yield WindowBatch(
                dedicated=self._rows_of(each for each in window.references if fine(each.start) in passed),
                partitions=passed,
                window=window,
                chosen=starts,
                count=self._count_entries(window, starts) if blocked else window.entries,
                several=True,
            )
        finally:
            window.unpersist()

    def delete_aborted(self, progress: int, aborted: set[int]) -> None:
        work = self._numbered(1)
        self._do(work, lambda context: workers.deleting_aborted(context, progress, aborted), several=True)

    def _partitions_blocked(self, window: Window) -> set[int]:
        found = self._transactions(window, Starts()).where(f"commit >= {self._sweep_ts}")
        return {row.partition for row in found.selectExpr(f"start DIV {FINE} AS partition").distinct().collect()}

    # --- the queue ------------------------------------------------------------------------------------------------

    def batches(self, begin: int, protections: Protections) -> Iterator[WindowBatch]:
        partitions = self._work.reader.partitions(begin, self._sweep_ts)
        if not partitions:
            return
        size = self._work.spending.batch_size(self._work.options.batch)
        self._windows = Windows(partitions, size, first=2 * self._cores)
        for partitions in self._windows:
            window = self._read(partitions, self._shared_parts(partitions, begin), begin, protections)
            self._windows.record_window(window.entries)
            window.over_cap = self._over_cap(window)
            try:
                yield from self._cut(window, size)
            finally:
                window.unpersist()

    def _shared_parts(self, partitions: list[int], begin: int) -> list[QueuePart]:
        """Return at least two parts for each core, so that all workers stay busy, also with one partition or three."""
        columns = column_spans(-(-2 * self._cores // len(partitions)))
        sweep_ts = self._sweep_ts
        return [SharedPart(each, begin, sweep_ts, span) for each in partitions for span in columns]

    def _read(self, partitions: list[int], parts: list[QueuePart], begin: int, protections: Protections) -> Window:
        """Read shared rows, then the dedicated rows that they refer to, unless those were handled before."""
        context = self._context()
        frame, totals = self._read_parts(workers.reading(context, parts, protections), len(parts))
        window = Window(partitions, frame, [frame])
        self._add(window, totals)
        if sum(row.references for row in totals):
            found = [Reference(*row) for row in frames.references(frame).collect()]
            window.references = tuple(sorted(found))
            rows: list[QueuePart] = [
                DedicatedRow(*each) for each in self._rows_of(each for each in found if each.start > begin)
            ]
            if rows:
                more, totals = self._read_parts(workers.reading(context, rows, protections), len(rows))
                window.parts.append(more)
                window.frame = frame.unionByName(more)
                self._add(window, totals)
        return window

    def _rows_of(self, references: Iterable[Reference]) -> list[tuple[int, bytes]]:
        return [(each.start, row) for each in references for row in self._work.reader.dedicated_rows(each)]

    def _add(self, window: Window, totals: list[Any]) -> None:
        window.entries += sum(row.entries for row in totals)
        window.unreadable += sum(row.unreadable for row in totals)
        window.blocked = _least(window.blocked, *(row.blocked for row in totals))
        window.first = _least(window.first, *(row.first for row in totals))
        for row in totals:
            window.crowded.update({int(number): count for number, count in json.loads(row.crowded or "{}").items()})
            window.cells += map(bytes, row.cells or ())

    def _cut(self, window: Window, size: int) -> Iterator[WindowBatch]:
        by_start: Iterator[tuple[int, int]] = iter([(window.first or 0, window.entries)])
        if window.entries > size:
            found = self._transactions(window, Starts()).where("start IS NOT NULL").toArrow()
            by_start = (pair for batch in found.to_batches() for pair in _pairs(batch))
        for cut in cuts(by_start, size, window.partitions, self._sweep_ts):
            yield WindowBatch(
                through=cut.through,
                dedicated=self._rows_of(each for each in window.references if cut.covers(each.start)),
                partitions=[each for each in cut.partitions if (each + 1) * FINE <= self._sweep_ts],
                window=window,
                chosen=Starts(cut.after, None if cut.last is None else cut.last + 1),
                count=cut.entries,
                several=not cut.is_whole or bool(self._windows.left),
                blocked=_covered(cut, window.blocked),
                over_cap=_covered(cut, window.over_cap),
            )

    def count_left(self, settled: WindowBatch, stop_at: int, batches: Iterator[WindowBatch]) -> int:  # noqa: ARG002
        """Count the entries of the window, then those of the partitions after it, without reading their batches."""
        return self._count_entries(settled.window, Starts(after=stop_at - 1)) + self._count_unread()

    def _count_entries(self, window: Window, starts: Starts) -> int:
        found = self._transactions(window, starts).agg(F.sum("entries").alias("entries")).first()
        return int(found.entries or 0) if found else 0

    def _transactions(self, window: Window, starts: Starts) -> DataFrame:
        counting = workers.counting_transactions(starts)
        found = frames.blocks(window.frame, starts).mapInArrow(counting, frames.ddl(TRANSACTIONS))
        return frames.transactions(found, frames.unreadable(window.frame, starts))

    def _count_unread(self) -> int:
        """Count the entries of the partitions after this window."""
        partitions = self._windows.left
        if not partitions:
            return 0
        context = self._context()
        parts = self._shared_parts(partitions, self._work.summary.progress)
        frame, totals = self._read_parts(workers.counting(context, parts), len(parts))
        count: int = sum(row.entries for row in totals)
        if sum(row.references for row in totals):
            found = [Reference(*row) for row in frames.references(frame).collect()]
            rows: list[QueuePart] = [DedicatedRow(*each) for each in self._rows_of(found)]
            count += sum(row.entries for row in self._read_parts(workers.counting(context, rows), len(rows))[1])
        return count

    # --- judging --------------------------------------------------------------------------------------------------

    def settle(self, batch: WindowBatch) -> WindowBatch:
        """Return the batch as it is: the workers have settled its transactions in the pass that read them, since a
        second pass over the entries would cost as much as the first."""
        return batch

    def first_over_cap(self, settled: WindowBatch) -> int | None:
        return settled.over_cap

    def _over_cap(self, window: Window) -> int | None:
        """Return the first start timestamp that would put too many tombstones into one row. The workers have counted
        the entries of crowded rows as they read, so that no other pass over the entries is needed if no row has too
        many."""
        cap = self._work.options.budget.tombstones_per_partition
        if self._first_start is None:
            self._first_start = window.first
        before = self._entries_by_row.copy()
        self._entries_by_row.update(window.crowded)
        crowded = {row: before[row] for row, entries in self._entries_by_row.items() if entries > cap}
        if not cap or not crowded:
            return None
        starts = Starts(before=window.blocked)
        placing = workers.placing(starts, set(crowded))
        places = frames.blocks(window.frame, starts).mapInArrow(placing, frames.ddl(PLACES))
        found = frames.first_start_over(cap, places, crowded, self._first_start).first()
        return found.start if found else None

    def judge_apply_park(self, settled: WindowBatch, below: int | None, protections: Protections) -> int:
        """Quarantine the unreadable entries, then judge the others: one action on all workers for each."""
        starts, count, window = settled.chosen, settled.count, settled.window
        if below is not None:
            starts = starts.below(below)
        if below is not None or window.unreadable:  # those without a start belong to no transaction that was counted
            count = self._count_entries(window, starts)
        if window.unreadable:
            aside = frames.unreadable(window.frame, starts)
            unreadable = aside.count()
            count -= unreadable
            self._work.summary.quarantined += unreadable
            if unreadable:
                self._do(aside, workers.quarantining, settled.several)
        if count:
            blocks = self._divided(window, starts, count)
            self._do(blocks, lambda context: workers.judging(context, starts, protections), settled.several)
        return count

    def _divided(self, window: Window, starts: Starts, count: int) -> DataFrame:
        """Return the blocks of a batch, divided between tasks so that no two tasks delete from the same
        neighbourhood."""
        tasks = -(-count // _ENTRIES_PER_TASK) if count > _ENTRIES_PER_TASK else 1 + (count >= _MANY)
        blocks, bounds = frames.blocks(window.frame, starts), chosen_bounds(window.cells, tasks)
        if not bounds:
            return blocks.coalesce(1)
        divided = blocks.mapInArrow(workers.dividing(bounds), frames.ddl(BLOCKS))
        return divided.repartitionById(len(bounds) + 1, divided["task"])

    # --- Spark ----------------------------------------------------------------------------------------------------

    def _do(self, work: DataFrame, doing: Callable[[WorkerContext], Worker], several: bool) -> None:
        """Run work that changes the store, and count its results: the only place that does. Workers report which cells
        they touched only if several tasks may touch the same ones: reporting takes as long as judging."""
        several = several or bool(self._touched) or not self._counts_alone
        results = work.mapInArrow(doing(replace(self._context(), reports_cells=several)), frames.ddl(RESULTS))
        if several:
            results = results.persist(StorageLevel.DISK_ONLY)
            self._touched.add(results)
        self._describe(DELETING, "judging and deleting")
        with self._work.time_phase(DELETING, within=True):
            totals = frames.totals(results).collect()
        counted, summary = self._work.counted, self._work.summary
        for row in totals:
            self._workers.add(row.worker)
            if row.table is not None:
                counted.add_written({TableRef.stored(row.table): WriteCounts(row.writes, row.deletes)})
                continue
            summary.aborted_deletes += row.aborted_deletes
            summary.parked += row.parked
            summary.unparked += row.unparked
            if row.deleted:
                counted.deleted.merge(DeleteTally.of(json.loads(row.deleted)))
            if not several:
                summary.range_deletes += row.range_deletes
                summary.sentinels += row.sentinels

    def count_cells(self) -> None:
        """Record the number of touched cells in the summary; a cell that several batches touched counts once."""
        if self._counts_alone and self._touched:
            self._work.summary.range_deletes, self._work.summary.sentinels = self._touched.count()
            self._touched.unpersist()
        self._work.summary.workers = len(self._workers)

    def _read_parts(self, worker: Worker, parts: int) -> tuple[DataFrame, list[Any]]:
        """Read entries and keep them on disk: judging must not read the queue again."""
        frame = self._numbered(parts).mapInArrow(worker, frames.ddl(READ)).persist(StorageLevel.DISK_ONLY)
        self._describe(READING, f"reading {parts} parts of the queue")
        with self._work.time_phase(READING, within=True):
            totals = frames.totals(frame).collect()
        self._workers.update(row.worker for row in totals)
        return frame, totals

    def _numbered(self, parts: int) -> DataFrame:
        """Return a frame with a row for each part of the work. Few large tasks: each costs a tenth of a second at
        least."""
        return self._spark.range(0, parts, 1, min(parts, 2 * self._cores))

    def _context(self) -> WorkerContext:
        work = self._work
        return WorkerContext(
            self._store_settings,
            work.strategy,
            work.shard,
            work.horizon,
            work.view.tables,
            work.clock.now_ms(),
            work.options.grace_s,
            work.options.dry_run,
        )


def _pairs(transactions: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Return the start and the number of entries of each transaction."""
    return zip(transactions["start"].to_pylist(), transactions["entries"].to_pylist(), strict=True)


def _covered(cut: Cut, start: int | None) -> int | None:
    return start if start is not None and cut.covers(start) else None


def _least(*starts: int | None) -> int | None:
    return min((start for start in starts if start is not None), default=None)
