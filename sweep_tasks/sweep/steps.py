"""The sweep of one shard as one list of steps, whichever engine carries them out.

    publish → rejudge parked entries → protections → late entries → for each batch of the queue:
    settle, judge, apply, park → clean → advance

The threshold is published before protections are read: a protection is either seen here, or sees the threshold. If all
sweeping is paused, no step is done; a pause that comes later is noticed before the next batch. Tombstones are durable
before the queue is cleaned, and the queue is cleaned before the progress passes it: a crash at any point only leaves
work to repeat. Two sweeps of one shard at once do the same work twice and no harm.

The steps that read and delete are carried out by an `Engine`: in this process (`engine.py`), or on Spark
(`spark_jobs/shard.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from sweep_tasks.clock import Clock
from sweep_tasks.logs import at_work
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.processes import collected_seldom
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.queue.reader import Batch
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.engine import InProcess
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.summary import Counted, Summary
from sweep_tasks.sweep.work import Judged, ShardWork
from sweep_tasks.tables.activity import Written
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.outcomes import ABORTED

_KEEP_EVERY_MS = 60_000
"""A sweep that is killed leaves at most a minute of deletes uncounted."""
PAUSED = "paused"


class Engine(Protocol):
    """The steps that read and delete."""

    def rejudge_parked(self) -> None:
        """Judge parked entries that are due again."""

    def sweep_late(self, progress: int, protections: Protections) -> None:
        """Judge and clean late entries below the progress. Their transactions checked too late and can't commit. Marks
        lead to some; the rows of the grace period's partitions are read as well, since a writer marks a partition once.
        Later entries are found by a table scan only. In the current partition, entries that a sweep has read are
        decided, so an undecided one is late."""

    def delete_aborted(self, progress: int, aborted: set[int]) -> None:
        """Delete again what these aborted transactions may have written late into the current partition."""

    def batches(self, begin: int, protections: Protections) -> Iterator[Batch]:
        """Read the queue above `begin`, up to the sweep timestamp. An engine may use the protections to sort what it
        reads."""
        ...

    def judge_batch(self, batch: Batch, protections: Protections) -> Judged:
        """Settle the transactions of a batch, judge its entries, apply the decisions, park and quarantine."""
        ...

    def count_left(self, batches: Iterator[Batch]) -> int:
        """Count the entries after the batch that was blocked."""
        ...

    def count_cells(self) -> None:
        """Record the number of distinct touched cells in the summary."""


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
        engine: Callable[[ShardWork], Engine] = InProcess,
    ) -> None:
        self._work = ShardWork(store, strategy, shard, horizon, clock, options or SweepOptions(), counted or Counted())
        self._engine = engine(self._work)
        self._pauses = Pauses(store)

    @property
    def written(self) -> Mapping[TableRef, Written]:
        """Return the writes that the run has judged, by table."""
        return self._work.counted.written

    def run(self) -> Summary:
        work, engine = self._work, self._engine
        with at_work(strategy=work.strategy.value, shard=work.shard), collected_seldom():
            if self._everything_is_paused():
                return self._paused()
            with work.timed("publish"):
                work.publish()
            with work.timed("parked"):
                engine.rejudge_parked()
            protections = work.read_protections()
            begin = work.read_progress()
            with work.timed("late"):
                engine.sweep_late(begin, protections)
            with work.timed("queue"):
                self._sweep_queue(begin, protections)
            engine.count_cells()
            work.keep_deleted()
            return work.summary

    def run_if_idle(self) -> Summary | None:
        """Do what `run` does for a shard that has nothing to do: advance the progress, without an engine. Return None
        if there is work; then only the threshold was raised."""
        work = self._work
        with at_work(strategy=work.strategy.value, shard=work.shard):
            if self._everything_is_paused():
                return self._paused()
            with work.timed("publish"):
                work.publish()
            with work.timed("queue"):
                if self._has_work(work.read_progress()):
                    return None
                work.advance(work.horizon.sweep_ts - 1)
            return work.summary

    def _has_work(self, begin: int) -> bool:
        """Return whether a parked entry is due, a late entry exists, or an entry is queued."""
        work, sweep_ts = self._work, self._work.horizon.sweep_ts
        if any(True for _ in work.judge.due_holds()):
            return True
        if work.late_partitions(begin) or work.some_came_late(begin):
            return True
        return any(
            (partition + 1) * FINE <= sweep_ts or not work.reader.is_empty(partition, begin, sweep_ts)
            for partition in work.reader.partitions(begin, sweep_ts)
        )

    def _paused(self) -> Summary:
        self._work.read_progress()
        self._work.summary.stopped = PAUSED
        return self._work.summary

    def _everything_is_paused(self) -> bool:
        """Return whether all sweeping is paused. A dry run removes nothing and is never paused."""
        return not self._work.options.dry_run and self._pauses.standing().everything is not None

    def _apply_pauses(self) -> bool:
        """Read the pauses before each batch, so that a pause takes effect within one batch. Return True if the run ends
        here: the batch stays queued. The remaining entries of a table that was paused meanwhile are parked."""
        standing = self._pauses.standing()
        self._work.view.apply_pauses(standing.tables)
        return standing.everything is not None and not self._work.options.dry_run

    def _sweep_queue(self, begin: int, protections: Protections) -> None:
        work = self._work
        self._finish_under_way(begin)
        batches = self._engine.batches(begin, protections)
        for batch in batches:
            stopped = PAUSED if self._apply_pauses() else self._sweep_batch(batch, protections)
            if stopped == "blocked":
                work.summary.blocked += self._engine.count_left(batches)
            if stopped:
                work.summary.stopped = stopped
                return
        work.advance(work.horizon.sweep_ts - 1)

    def _sweep_batch(self, batch: Batch, protections: Protections) -> str | None:
        """Sweep a batch. Return why the run ends here, or None to continue."""
        work = self._work
        judged, stop_at, why = self._engine.judge_batch(batch, protections)
        progress = batch.through if stop_at is None else stop_at - 1
        work.clean(batch, progress, stop_at)
        if progress is not None:
            work.advance(progress)
        work.summary.batches += 1
        work.summary.entries += judged
        work.spending.spend(judged)
        if work.clock.now_ms() - work.kept_ms >= _KEEP_EVERY_MS:
            work.keep_deleted()
        work.report("queue")
        # A run that ends inside a dedicated row would read that row again: it may end only where its progress is
        # stored.
        lasting = batch.through is not None or batch.completes_a_row
        return why or (work.spending.exhausted() if lasting else None)

    def _finish_under_way(self, progress: int) -> None:
        """If the current partition is about to be completed, delete again what was aborted in it."""
        work = self._work
        if work.options.dry_run or not work.ends_under_way(progress):
            return
        outcomes = work.commits.outcomes(work.starts_passed(progress, fine(progress + 1) * FINE))
        aborted = {start for start, commit in outcomes.items() if commit == ABORTED}
        if aborted:
            self._engine.delete_aborted(progress, aborted)
