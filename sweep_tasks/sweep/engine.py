"""One shard's sweep, in process.

    publish → tables → parked entries → protections → queue → commit timestamps → sentinels, tombstones → parking →
    clean → progress

Publishing comes before protections are read, so that a protection either is seen here or sees how far we go.
Where everything is paused none of it begins; a pause that comes later is noticed before the next batch.
Tombstones are durable before the queue is cleaned, and the queue is cleaned before progress passes it: a crash anywhere
leaves work to repeat. Two sweeps of one shard, one of them long given up for dead, do the same work twice and no harm.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.collecting import collected_seldom
from sweep_tasks.logs import at_work
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.queue.cleaner import QueueCleaner
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.queue.parking import Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.queue.reader import DEFAULT_BATCH, Batch, QueueReader
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Written
from sweep_tasks.sweep.budget import UNLIMITED, Budget, Spending
from sweep_tasks.sweep.deletions import Deletions
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.late import delete_aborted
from sweep_tasks.sweep.pauses import Pauses
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.sweep.watching import Reached, Watcher, nobody
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED, CommitTable

_LATE_PARTITIONS = 200
_LATE_ENTRIES = 1_000
_KEEP_EVERY_MS = 60_000
"""One who is killed in the middle leaves no more than a minute of deletes uncounted."""
PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    batch: int = DEFAULT_BATCH
    grace_s: int = 3_600
    budget: Budget = UNLIMITED
    dry_run: bool = False
    watch: Watcher = nobody
    """Told how far it is, many times."""


class Judged(NamedTuple):
    """What became of a batch: how many entries were judged, and from which start on none were, and why."""

    entries: int
    stop_at: int | None = None
    why: str | None = None


class ShardSweep:
    def __init__(
        self,
        store: Store,
        strategy: SweepStrategy,
        shard: int,
        horizon: Horizon,
        clock: Clock,
        options: SweepOptions | None = None,
        counted: Counted | None = None,
    ) -> None:
        self._store = store
        self._strategy = strategy
        self._shard = shard
        self._horizon = horizon
        self._clock = clock
        self._options = options or SweepOptions()
        self._counted = counted or Counted()
        self._progress = Progress(store)
        self._pauses = Pauses(store)
        self._commits = CommitTable(store)
        timestamps = TimestampService(store)
        self._parking = Parking(store, timestamps, strategy, shard)
        self._quarantine = Quarantine(store, timestamps)
        self._reader = QueueReader(store, strategy, shard)
        self._cleaner = QueueCleaner(store, strategy, shard)
        self._spending = Spending(self._options.budget, clock)
        self._kept_ms = clock.now_ms()
        self._summary = Summary(strategy, shard, horizon.sweep_ts, self._options.dry_run)

    @property
    def written(self) -> Mapping[TableRef, Written]:
        """What the run has judged, by table."""
        return self._counted.written

    def run(self) -> Summary:
        with at_work(strategy=self._strategy.value, shard=self._shard), collected_seldom():
            return self._run()

    def _run(self) -> Summary:
        if self._everything_is_paused():
            self._note_progress()
            self._summary.stopped = PAUSED
            return self._summary
        with self._timed("publish"):
            if not self._options.dry_run:
                Thresholds(self._store).raise_strategy(self._strategy, self._horizon.sweep_ts)
            self._view = SweepView.published(self._store, self._horizon, self._options.dry_run)
        self._judge = Judge(
            self._store, self._strategy, self._view, self._parking, self._clock, self._options.grace_s, self._summary,
            self._counted,
        )  # fmt: skip
        with self._timed("parked"):
            self._sweep_parked()
        self._protections = ProtectionCatalog(self._store).protections()
        begin = self._note_progress()
        with self._timed("late"):
            self._sweep_late(begin)
        with self._timed("queue"):
            self._sweep_queue(begin)
        self._count_cells()
        self._keep_deleted()
        return self._summary

    def _keep_deleted(self) -> None:
        """As statistics of the ring, for those who compact it."""
        deleted = self._counted.deleted.taken()
        for table, counts in deleted:
            told = self._summary.tombstones
            told[str(table)] = told.get(str(table), 0) + counts.tombstones
        Deletions(self._store).add(deleted, self._clock.now_ms())
        self._kept_ms = self._clock.now_ms()

    def _note_progress(self) -> int:
        begin = self._progress.of(self._strategy, self._shard)
        self._summary.progress_before = self._summary.progress = begin
        return begin

    def _everything_is_paused(self) -> bool:
        """A dry run removes nothing and may always look."""
        return not self._options.dry_run and self._pauses.standing().everything is not None

    def _heed_pauses(self) -> bool:
        """Looked up before each batch, so that a pause takes effect within one. True if the run ends here: the batch
        stays queued. Of a table paused meanwhile what is left is parked."""
        standing = self._pauses.standing()
        self._view.heed(standing.tables)
        return standing.everything is not None and not self._options.dry_run

    def _count_cells(self) -> None:
        self._summary.range_deletes = len(self._counted.ranged)
        self._summary.sentinels = len(self._counted.sentinels)

    def _sweep_parked(self) -> None:
        self._judge.rejudge_parked(at_most=self._options.budget.parked, after_page=lambda: self._tell("parked"))

    def _sweep_queue(self, begin: int) -> None:
        sweep_ts = self._horizon.sweep_ts
        self._finish_under_way(begin)
        batches = self._batches(begin)
        for batch in batches:
            stopped = PAUSED if self._heed_pauses() else self._sweep_batch(batch)
            if stopped == "blocked":
                self._summary.blocked += self._entries_left(batches)
            if stopped:
                self._summary.stopped = stopped
                return
        self._advance(sweep_ts - 1)

    def _batches(self, begin: int) -> Iterator[Batch]:
        return self._reader.batches(begin, self._horizon.sweep_ts, self._spending.batch_size(self._options.batch))

    def _entries_left(self, batches: Iterator[Batch]) -> int:
        return sum(len(rest.entries) for rest in batches)

    def _sweep_batch(self, batch: Batch) -> str | None:
        """Why the run ends here, or None to go on."""
        judged, stop_at, why = self._judge_batch(batch)
        progress = batch.through if stop_at is None else stop_at - 1
        self._clean(batch, progress, stop_at)
        if progress is not None:
            self._advance(progress)
        self._summary.batches += 1
        self._summary.entries += judged
        self._spending.spend(judged)
        if self._clock.now_ms() - self._kept_ms >= _KEEP_EVERY_MS:
            self._keep_deleted()
        self._tell("queue")
        # A run that ends inside a dedicated row would begin that row again: it may end only where something lasts.
        lasting = batch.through is not None or batch.uses_up_a_row
        return why or (self._spending.exhausted() if lasting else None)

    def _judge_batch(self, batch: Batch) -> Judged:
        outcomes = self._commits.settled(batch.starts, self._options.dry_run)
        entries, unreadable = self._view.decoded(batch.entries, outcomes, self._strategy, self._shard)
        stop_at, why = self._stop(entries, outcomes)
        if stop_at is not None:
            if why == "blocked":
                self._summary.blocked += sum(1 for raw in batch.entries if (raw.start or 0) >= stop_at)
            entries = [entry for entry in entries if entry.start < stop_at]
            unreadable = [entry for entry in unreadable if (entry.start or 0) < stop_at]
        self._judge.judge(entries, self._protections)
        self._set_aside(unreadable)
        return Judged(len(entries), stop_at, why)

    def _sweep_late(self, progress: int) -> None:
        """What landed below the progress belongs to transactions that looked too late and can't commit.

        Marks lead to some; the rows of the grace period's partitions are asked for as well, since a writer marks a
        partition once. Whoever comes later than that is for a table scan to find. In the partition under way, what a
        sweep has read is decided; what is not decided came late.
        """
        for batch in self._reader.late(self._late_since, progress, _LATE_PARTITIONS):
            self._judge_late(batch, progress)
        if self._some_came_late(progress):
            self._judge_late(self._undecided(progress), progress)

    def _judge_late(self, batch: Batch, progress: int) -> None:
        outcomes = self._commits.settled(batch.starts, self._options.dry_run)
        if any(commit >= self._horizon.sweep_ts for commit in outcomes.values()):
            return
        entries, unreadable = self._view.decoded(batch.entries, outcomes, self._strategy, self._shard)
        self._judge.judge(entries, self._protections)
        self._set_aside(unreadable)
        self._clean(batch, progress, None)
        self._summary.entries += len(entries)

    def _undecided(self, progress: int) -> Batch:
        """Of what was passed in the partition under way. Its rows stay until it is used up."""
        found = self._reader.all_of(fine(progress + 1), self._looked_at_from(progress), progress + 1)
        decided = self._commits.outcomes(found.starts)
        return Batch([raw for raw in found.entries if raw.start is not None and raw.start not in decided])

    @cached_property
    def _late_since(self) -> int:
        """A grace period before the progress. Counted back from now it would end above the progress, which a sweep has
        left an hour ago, and further back where there is a retention: then nobody would ever look at anything."""
        puncher = Puncher(self._store)
        passed_ms = puncher.moment_of(self._summary.progress_before)
        return 0 if passed_ms is None else puncher.timestamp_at(passed_ms - self._options.grace_s * 1000) or 0

    def _late_partitions(self, progress: int) -> list[int]:
        """Where a look below the progress finds something, without reading it."""
        return self._reader.late_partitions(self._late_since, progress, _LATE_PARTITIONS)

    def _some_came_late(self, progress: int) -> bool:
        """Whether something undecided stands below the progress in the partition under way."""
        most = None if self._ends_under_way(progress) else _LATE_ENTRIES
        starts = self._starts_passed(progress, self._looked_at_from(progress), most)
        return starts != set(self._commits.outcomes(starts))

    def _starts_passed(self, progress: int, first: int, most: int | None = None) -> set[int]:
        """Of the partition under way, up to the progress; of its first so many entries."""
        if progress < first:
            return set()
        found = self._reader.shared(fine(progress + 1), first - 1, progress + 1, most=most)
        return {each.start for each in found if each.start is not None}

    def _looked_at_from(self, progress: int) -> int:
        """Where the look at what was passed of the partition under way begins. An hourly sweep would otherwise read
        again what all sweeps before it have read there. When the partition is about to be used up, all of it is looked
        at, since nobody will do so afterwards: soon, where so much is written that a look does not get to its end."""
        first = fine(progress + 1) * FINE
        return first if self._ends_under_way(progress) else max(first, self._late_since)

    def _ends_under_way(self, progress: int) -> bool:
        return (fine(progress + 1) + 1) * FINE <= self._horizon.sweep_ts

    def _finish_under_way(self, progress: int) -> None:
        """If the partition under way is about to be used up, what was aborted in it goes once more."""
        if self._options.dry_run or not self._ends_under_way(progress):
            return
        outcomes = self._commits.outcomes(self._starts_passed(progress, fine(progress + 1) * FINE))
        aborted = {start for start, commit in outcomes.items() if commit == ABORTED}
        if aborted:
            self._delete_aborted(progress, aborted)

    def _delete_aborted(self, progress: int, aborted: set[int]) -> None:
        self._counted.deleted.merge(
            delete_aborted(self._store, self._view, self._strategy, self._shard, progress, aborted)
        )

    def _stop(self, entries: Sequence[Entry], outcomes: dict[int, int]) -> tuple[int | None, str | None]:
        """The least start that can't be dealt with in this run, and why."""
        blocked = min((start for start, commit in outcomes.items() if commit >= self._horizon.sweep_ts), default=None)
        over = self._spending.first_over_cap(entry for entry in entries if blocked is None or entry.start < blocked)
        if over is not None:
            return over, "tombstones"
        return blocked, None if blocked is None else "blocked"

    def _set_aside(self, unreadable: Collection[Quarantined]) -> None:
        self._summary.quarantined += len(unreadable)
        if not self._options.dry_run:
            self._quarantine.add(unreadable)

    def _clean(self, batch: Batch, progress: int | None, stop_at: int | None) -> None:
        dedicated = [row for start, row in batch.dedicated if stop_at is None or start < stop_at]
        passed = -1 if progress is None else progress
        partitions = [partition for partition in batch.partitions if (partition + 1) * FINE - 1 <= passed]
        if not self._options.dry_run:
            self._cleaner.clean(dedicated, partitions)
        self._summary.cleaned_partitions += len(partitions)

    def _advance(self, ts: int) -> None:
        """Never down: a sweep timestamp below an earlier one has nothing to do here."""
        if ts > self._summary.progress:
            self._summary.progress = (
                ts if self._options.dry_run else self._progress.advance(self._strategy, self._shard, ts)
            )

    def _tell(self, phase: str) -> None:
        done = self._summary
        self._options.watch(
            Reached(
                self._strategy, self._shard, phase, done.progress_before, done.progress, self._horizon.sweep_ts,
                done.entries, done.batches,
            )
        )  # fmt: skip

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self._tell(phase)
        began = time.perf_counter()
        yield
        self._summary.seconds[phase] = self._summary.seconds.get(phase, 0.0) + time.perf_counter() - began
