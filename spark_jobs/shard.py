"""One shard's sweep on Spark: the steps and their order are those of the in-process sweep, the work is done by many.

The driver publishes, reads tables and protections, decides where a batch ends, cleans the queue and moves the progress.
It sees counts, timestamps and row keys of the queue, never a cell: entries go from the workers that read them, through
Spark, to the workers that judge them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import frames, workers
from spark_jobs.frames import ENTRIES, RESULTS
from spark_jobs.store_settings import store_settings
from spark_jobs.windows import Cut, Windows, cuts, stretches
from spark_jobs.workers import Brief, DedicatedRow, Part, SharedPart, Worker
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.reader import Batch, Reference
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Written
from sweep_tasks.sweep.engine import Judged, ShardSweep, SweepOptions
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.tally import Tally

PHASE, STEP = "sweepflow.phase", "sweepflow.step"
"""Properties of every job of Spark, for those who read its event log."""
_ENTRIES_PER_TASK = 50_000
READING, DELETING = "reading", "deleting"
_WITHIN_PHASES = (READING, DELETING)
_MANY = 2_000
"""Worth a second task."""


@dataclass(slots=True)
class Window:
    """What was read at once: entries that stay on disk until they are dealt with, and what the driver knows of them."""

    partitions: list[int]
    frame: DataFrame
    parts: list[DataFrame]
    first: int | None = None
    entries: int = 0
    unreadable: int = 0
    blocked: int | None = None
    over_cap: int | None = None
    references: tuple[Reference, ...] = ()

    def forget(self) -> None:
        for part in self.parts:
            part.unpersist()


@dataclass(slots=True)
class WindowBatch(Batch):
    window: Window = field(kw_only=True)
    cut: Cut = field(kw_only=True)


class TouchedCells:
    """Counts distinct cells over batches, and over shards if it is given to several sweeps."""

    def __init__(self) -> None:
        self._results: list[DataFrame] = []

    def __bool__(self) -> bool:
        return bool(self._results)

    def add(self, results: DataFrame) -> None:
        self._results.append(results)

    def count(self) -> frames.Touched:
        return frames.touched(self._results) if self._results else frames.Touched(0, 0)

    def forget(self) -> None:
        for results in self._results:
            results.unpersist()
        self._results = []


class SparkShardSweep(ShardSweep):
    def __init__(
        self,
        spark: Callable[[], SparkSession],
        store: Store,
        settings: Settings,
        strategy: SweepStrategy,
        shard: int,
        horizon: Horizon,
        clock: Clock,
        options: SweepOptions,
        touched: TouchedCells | None = None,
    ) -> None:
        super().__init__(store, strategy, shard, horizon, clock, options)
        self._start_spark = spark
        self._store_settings = store_settings(settings)
        self._counts_alone = touched is None
        self._touched = TouchedCells() if touched is None else touched
        self._protections = Protections([])  # of the queue's entries; who rejudges parked ones reads them anew
        self._workers: set[str] = set()
        self._spent: list[DataFrame] = []
        self._first_start: int | None = None
        self._read_so_far = 0
        self._phase = ""

    @property
    def _spark(self) -> SparkSession:
        return self._start_spark()

    @property
    def _cores(self) -> int:
        return max(2, self._spark.sparkContext.defaultParallelism)

    def _tell(self, phase: str) -> None:
        super()._tell(phase)
        if phase not in _WITHIN_PHASES:
            self._phase = phase

    def _describe(self, step: str, doing: str) -> None:
        """What Spark's own page says of the jobs that come now, and their properties in its event log."""
        who = f"{self._strategy} shard {self._shard}"
        done = f"{self._summary.batches} batches with {self._summary.entries} entries done"
        self._spark.sparkContext.setJobGroup(f"sweep {who}", f"{who}, {self._phase}: {doing}; {done}")
        for name, value in ((PHASE, self._phase), (STEP, step)):
            self._spark.sparkContext.setLocalProperty(name, value)

    # --- what was parked before -----------------------------------------------------------------------------------

    def _sweep_parked(self) -> None:
        """Each hold that is due, by stretches of start timestamps, so that one large hold keeps everybody busy."""
        sweep_ts = self._horizon.sweep_ts
        spans = []
        for first in self._judge.due_holds():
            step = max(1, -(-(max(sweep_ts, first.start + 1) - first.start) // self._cores))
            edges = range(first.start, max(sweep_ts, first.start + 1), step)
            spans += [Parking.started(first.hold, edge, edge + step) for edge in edges]
        if spans:
            at_most = self._options.budget.parked
            work = self._numbered(len(spans))
            self._do(work, lambda brief: workers.rejudging(brief, spans, at_most), several=True)

    # --- below the progress ---------------------------------------------------------------------------------------

    def _sweep_late(self, progress: int) -> None:
        late = self._late_partitions(progress)
        parts: list[Part] = [SharedPart(each, each * FINE - 1, (each + 1) * FINE) for each in late]
        if self._some_came_late(progress):
            first = self._looked_at_from(progress)
            parts.append(SharedPart(fine(progress + 1), first - 1, progress + 1, only_undecided=True))
        if not parts:
            return
        window = self._read(late, parts, -1)
        blocked = self._partitions_blocked(window) if window.blocked is not None else set()
        entries, count = window.frame, window.entries
        for partition in blocked:
            entries = entries.where(f"start IS NULL OR start DIV {FINE} != {partition}")
            count = frames.entries_only(entries).count()
        passed = [partition for partition in late if partition not in blocked]
        self._summary.entries += self._judge_entries(window, entries, count, several=True)
        self._clean(
            Batch(
                dedicated=self._rows_of(each for each in window.references if fine(each.start) in passed),
                partitions=passed,
            ),
            progress,
            None,
        )
        window.forget()

    def _delete_aborted(self, progress: int, aborted: set[int]) -> None:
        work = self._numbered(1)
        self._do(work, lambda brief: workers.deleting_aborted(brief, progress, aborted), several=True)

    def _partitions_blocked(self, window: Window) -> set[int]:
        found = window.frame.where(f"commit >= {self._horizon.sweep_ts}").selectExpr(f"start DIV {FINE} AS partition")
        return {row.partition for row in found.distinct().collect()}

    # --- the queue ------------------------------------------------------------------------------------------------

    def _batches(self, begin: int) -> Iterator[Batch]:
        partitions = self._reader.partitions(begin, self._horizon.sweep_ts)
        if not partitions:
            return
        size = self._spending.batch_size(self._options.batch)
        self._windows = Windows(partitions, size, first=2 * self._cores)
        for partitions in self._windows:
            window = self._read(partitions, self._shared_parts(partitions, begin), begin)
            self._windows.held(window.entries)
            window.over_cap = self._over_cap(window)
            try:
                yield from self._cut(window, size)
            finally:
                window.forget()

    def _shared_parts(self, partitions: list[int], begin: int) -> list[Part]:
        """At least a part for each core, so that a single partition does not keep all but one waiting."""
        columns = stretches(-(-self._cores // len(partitions)))
        sweep_ts = self._horizon.sweep_ts
        return [SharedPart(each, begin, sweep_ts, stretch) for each in partitions for stretch in columns]

    def _read(self, partitions: list[int], parts: list[Part], begin: int) -> Window:
        """Shared rows, then the dedicated rows that they lead to, for as long as they were not dealt with before."""
        brief = self._brief()
        frame, totals = self._entries(workers.reading(brief, parts), len(parts))
        window = Window(partitions, frame, [frame])
        self._add(window, totals)
        if sum(row.references for row in totals):
            found = [Reference(*row) for row in frames.references(frame).collect()]
            window.references = tuple(sorted(found))
            rows: list[Part] = [
                DedicatedRow(*each) for each in self._rows_of(each for each in found if each.start > begin)
            ]
            if rows:
                more, totals = self._entries(workers.reading(brief, rows), len(rows))
                window.parts.append(more)
                window.frame = frame.unionByName(more)
                self._add(window, totals)
        return window

    def _rows_of(self, references: Iterable[Reference]) -> list[tuple[int, bytes]]:
        return [(each.start, row) for each in references for row in self._reader.dedicated_rows(each)]

    def _add(self, window: Window, totals: list[Any]) -> None:
        window.entries += sum(row.entries for row in totals)
        window.unreadable += sum(row.unreadable for row in totals)
        window.blocked = _least(window.blocked, *(row.blocked for row in totals))
        window.first = _least(window.first, *(row.first for row in totals))

    def _cut(self, window: Window, size: int) -> Iterator[WindowBatch]:
        by_start: Iterator[tuple[int, int]] = iter([(window.first or 0, window.entries)])
        if window.entries > size:
            rows = frames.entries_by_start(frames.entries_only(window.frame)).collect()
            by_start = ((row.start, row["count"]) for row in rows)
        for cut in cuts(by_start, size, window.partitions, self._horizon.sweep_ts):
            yield WindowBatch(
                through=cut.through,
                dedicated=self._rows_of(each for each in window.references if cut.covers(each.start)),
                partitions=[each for each in cut.partitions if (each + 1) * FINE <= self._horizon.sweep_ts],
                window=window,
                cut=cut,
            )

    def _entries_left(self, batches: Iterator[Batch]) -> int:  # noqa: ARG002
        """What the window holds behind the blocked start is counted with the window."""
        partitions = self._windows.left
        if not partitions:
            return 0
        brief = self._brief()
        parts = self._shared_parts(partitions, self._summary.progress)
        frame, totals = self._entries(workers.counting(brief, parts), len(parts))
        count: int = sum(row.entries for row in totals)
        if sum(row.references for row in totals):
            found = [Reference(*row) for row in frames.references(frame).collect()]
            rows: list[Part] = [DedicatedRow(*each) for each in self._rows_of(found)]
            count += sum(row.entries for row in self._entries(workers.counting(brief, rows), len(rows))[1])
        return count

    # --- judging --------------------------------------------------------------------------------------------------

    def _judge_batch(self, batch: Batch) -> Judged:
        assert isinstance(batch, WindowBatch)  # noqa: S101
        window, cut = batch.window, batch.cut
        several = not cut.is_whole or bool(self._windows.left)
        entries = frames.between(window.frame, cut.after, None if cut.last is None else cut.last + 1)
        stop_at, why = self._stop_within(window, cut)
        if stop_at is None:
            return Judged(self._judge_entries(window, entries, cut.entries, several))
        if why == "blocked":
            self._summary.blocked += frames.entries_only(window.frame).where(f"start >= {stop_at}").count()
        entries = frames.between(entries, None, stop_at)
        count = frames.entries_only(entries).count()
        return Judged(self._judge_entries(window, entries, count, several), stop_at, why)

    def _stop_within(self, window: Window, cut: Cut) -> tuple[int | None, str | None]:
        """The least start of this batch that can't be dealt with in this run, and why."""
        if window.over_cap is not None and cut.covers(window.over_cap):
            return window.over_cap, "tombstones"
        if window.blocked is not None and cut.covers(window.blocked):
            return window.blocked, "blocked"
        return None, None

    def _over_cap(self, window: Window) -> int | None:
        """The first start that would put too many tombstones into one row. As long as a run has read fewer entries than
        a row may get, no row has too many."""
        cap = self._options.budget.tombstones_per_partition
        self._read_so_far += window.entries
        if self._first_start is None:
            self._first_start = window.first
        if not cap or (self._read_so_far <= cap and not self._windows.left):
            return None
        cells = frames.readable(frames.between(window.frame, None, window.blocked))
        here = frames.entries_by_row(cells).persist(StorageLevel.DISK_ONLY)
        before, self._spent = self._spent, [*self._spent, here]
        if not frames.rows_over(cap, self._spent).take(1):
            return None
        found = frames.first_start_over(cap, cells, before, self._first_start).first()
        return found.start if found else None

    def _judge_entries(self, window: Window, entries: DataFrame, count: int, several: bool) -> int:
        """How many were judged: those that could be read."""
        if window.unreadable:
            aside, count = frames.unreadable(entries), frames.readable(entries).count()
            unreadable = aside.count()
            self._summary.quarantined += unreadable
            if unreadable:
                self._do(aside, workers.setting_aside, several)
        if count:
            tasks = -(-count // _ENTRIES_PER_TASK) if count > _ENTRIES_PER_TASK else 1 + (count >= _MANY)
            self._do(frames.newest_by_segment(frames.readable(entries), tasks), workers.judging, several)
        return count

    # --- Spark ----------------------------------------------------------------------------------------------------

    def _do(self, work: DataFrame, doing: Callable[[Brief], Worker], several: bool) -> None:
        """The one place where something is done to the store, and counted. Which cells were touched is told only where
        others may touch the same: telling takes workers as long as deciding."""
        several = several or bool(self._touched) or not self._counts_alone
        results = work.mapInArrow(doing(replace(self._brief(), tells_cells=several)), frames.ddl(RESULTS))
        if several:
            results = results.persist(StorageLevel.DISK_ONLY)
            self._touched.add(results)
        self._describe(DELETING, "judging and deleting")
        with self._timed(DELETING):
            totals = frames.totals(results).collect()
        for row in totals:
            self._workers.add(row.worker)
            if row.table is not None:
                self._counted.add_written({TableRef.stored(row.table): Written(row.writes, row.deletes)})
                continue
            self._summary.aborted_deletes += row.aborted_deletes
            self._summary.parked += row.parked
            self._summary.unparked += row.unparked
            if row.deleted:
                self._counted.deleted.merge(Tally.of(json.loads(row.deleted)))
            if not several:
                self._summary.range_deletes += row.range_deletes
                self._summary.sentinels += row.sentinels

    def _count_cells(self) -> None:
        """A cell that several batches touched counts once."""
        if self._counts_alone and self._touched:
            self._summary.range_deletes, self._summary.sentinels = self._touched.count()
            self._touched.forget()
        self._summary.workers = len(self._workers)
        for frame in self._spent:
            frame.unpersist()

    def _entries(self, worker: Worker, parts: int) -> tuple[DataFrame, list[Any]]:
        """Kept on disk: who judges them must not depend on their being read again."""
        frame = self._numbered(parts).mapInArrow(worker, frames.ddl(ENTRIES)).persist(StorageLevel.DISK_ONLY)
        self._describe(READING, f"reading {parts} parts of the queue")
        with self._timed(READING):
            totals = frames.totals(frame).collect()
        self._workers.update(row.worker for row in totals)
        return frame, totals

    def _numbered(self, parts: int) -> DataFrame:
        """A row for each thing to be done. Few large tasks: each costs a tenth of a second whatever it does."""
        return self._spark.range(0, parts, 1, min(parts, 2 * self._cores))

    def _brief(self) -> Brief:
        return Brief(
            self._store_settings,
            self._strategy,
            self._shard,
            self._horizon,
            self._view.tables,
            self._clock.now_ms(),
            self._options.grace_s,
            self._options.dry_run,
            self._protections,
        )


def _least(*starts: int | None) -> int | None:
    return min((start for start in starts if start is not None), default=None)
