"""The state of one shard's sweep, and the steps that both engines share.

Publishing, cleaning, quarantining and advancing are implemented once, so that the engines can't differ in them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property

from sweep_tasks.clock import Clock
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.queue.parking import Parking, Quarantine, Quarantined
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.reader import Batch, QueueReader
from sweep_tasks.queue.writer import QueueCleaner
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.order import Spending, SweepOptions
from sweep_tasks.sweep.summary import Reached, Summary, SweepCounts
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.deletions import Deletions
from sweep_tasks.transactions.outcomes import CommitTable

LATE_PARTITIONS = 200
_LATE_ENTRIES = 1_000


class ShardWork:
    view: SweepView
    """Set by `publish`, as is the judge."""
    judge: Judge

    def __init__(
        self,
        store: Store,
        strategy: SweepStrategy,
        shard: int,
        horizon: Horizon,
        clock: Clock,
        options: SweepOptions,
        counted: SweepCounts,
    ) -> None:
        self.store = store
        self.strategy = strategy
        self.shard = shard
        self.horizon = horizon
        self.clock = clock
        self.options = options
        self.counted = counted
        self.commits = CommitTable(store)
        self.reader = QueueReader(store, strategy, shard)
        self.spending = Spending(options.budget, clock)
        self.summary = Summary(strategy, shard, horizon.sweep_ts, options.dry_run)
        self.phase = ""
        self.kept_ms = clock.now_ms()
        timestamps = TimestampService(store)
        self._progress = Progress(store)
        self._parking = Parking(store, timestamps, strategy, shard)
        self._quarantine = Quarantine(store, timestamps)
        self._cleaner = QueueCleaner(store, strategy, shard)

    # --- before judging -------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Raise the published threshold, then read the tables. A dry run publishes nothing.

        The job of an Airflow task does so as well, although the task has published before. That costs one serial read,
        since a threshold that stands high enough is not written again. It keeps the order (publish, then read
        protections) within one process: it does not depend on what a document says about another one.
        """
        if not self.options.dry_run:
            Thresholds(self.store).raise_strategy(self.strategy, self.horizon.sweep_ts)
        self.view = SweepView.publish(self.store, self.horizon, self.options.dry_run)
        self.judge = Judge(
            self.store, self.strategy, self.view, self._parking, self.clock, self.options.grace_s, self.summary,
            self.counted,
        )  # fmt: skip

    def read_protections(self) -> Protections:
        """Return the protections for entries of the queue. Must run after `publish`. Parked entries are judged by
        records that are read after them."""
        return ProtectionCatalog(self.store).protections()

    def read_progress(self) -> int:
        begin = self._progress.of(self.strategy, self.shard)
        self.summary.progress_before = self.summary.progress = begin
        return begin

    # --- after judging a batch ------------------------------------------------------------------------------------

    def quarantine(self, unreadable: Collection[Quarantined]) -> None:
        self.summary.quarantined += len(unreadable)
        if not self.options.dry_run:
            self._quarantine.add(unreadable)

    def clean(self, batch: Batch, progress: int | None, stop_at: int | None) -> None:
        """Remove applied entries from the queue: rows of starts below `stop_at`, partitions that the progress
        passes."""
        dedicated = [row for start, row in batch.dedicated if stop_at is None or start < stop_at]
        passed = -1 if progress is None else progress
        partitions = [partition for partition in batch.partitions if (partition + 1) * FINE - 1 <= passed]
        if not self.options.dry_run:
            self._cleaner.clean(dedicated, partitions)
        self.summary.cleaned_partitions += len(partitions)

    def advance(self, ts: int) -> None:
        """Advance the progress. It never goes down, even if the sweep timestamp is below an earlier one."""
        if ts > self.summary.progress:
            self.summary.progress = (
                ts if self.options.dry_run else self._progress.advance(self.strategy, self.shard, ts)
            )

    def keep_deleted(self) -> None:
        """Store the deletes since the last call, as statistics of the ring for compactions."""
        deleted = self.counted.deleted.take()
        for table, counts in deleted:
            written = self.summary.tombstones
            written[str(table)] = written.get(str(table), 0) + counts.tombstones
        Deletions(self.store).add(deleted, self.clock.now_ms())
        self.kept_ms = self.clock.now_ms()

    # --- late entries ---------------------------------------------------------------------------------------------

    @cached_property
    def late_since(self) -> int:
        """Return the timestamp one grace period before the progress. Counted back from now it would lie above the
        progress, which is an hour old, or older with a retention: then no late entry would ever be found."""
        clock_history = ClockHistory(self.store)
        passed_ms = clock_history.moment_of(self.summary.progress_before)
        return 0 if passed_ms is None else clock_history.timestamp_at(passed_ms - self.options.grace_s * 1000) or 0

    def late_partitions(self, progress: int) -> list[int]:
        """Return the partitions below the progress that are not empty, without reading them."""
        return self.reader.late_partitions(self.late_since, progress, LATE_PARTITIONS)

    def some_came_late(self, progress: int) -> bool:
        """Return whether an undecided entry exists below the progress in the current partition."""
        most = None if self.ends_in_current_partition(progress) else _LATE_ENTRIES
        starts = self.starts_passed(progress, self.checked_from(progress), most)
        return starts != set(self.commits.outcomes(starts))

    def starts_passed(self, progress: int, first: int, most: int | None = None) -> set[int]:
        """Return the start timestamps in the current partition up to the progress, of the first `most` entries."""
        if progress < first:
            return set()
        found = self.reader.shared(fine(progress + 1), first - 1, progress + 1, most=most)
        return {each.start for each in found if each.start is not None}

    def checked_from(self, progress: int) -> int:
        """Return where the check for late entries in the current partition starts. Otherwise an hourly sweep would read
        again what all earlier sweeps have read there. When the partition is about to be completed, all of it is
        checked, since no later sweep will check it."""
        first = fine(progress + 1) * FINE
        return first if self.ends_in_current_partition(progress) else max(first, self.late_since)

    def ends_in_current_partition(self, progress: int) -> bool:
        return (fine(progress + 1) + 1) * FINE <= self.horizon.sweep_ts

    # --- reporting ------------------------------------------------------------------------------------------------

    def report(self, phase: str) -> None:
        done = self.summary
        self.options.listener(
            Reached(
                self.strategy, self.shard, phase, done.progress_before, done.progress, self.horizon.sweep_ts,
                done.entries, done.batches,
            )
        )  # fmt: skip

    @contextmanager
    def time_phase(self, phase: str, *, within: bool = False) -> Iterator[None]:
        """Add up the seconds of a phase, or of a part `within` the current phase."""
        if not within:
            self.phase = phase
        self.report(phase)
        began = time.perf_counter()
        yield
        self.summary.seconds[phase] = self.summary.seconds.get(phase, 0.0) + time.perf_counter() - began
