"""The sweep of one shard as one list of steps, whichever engine carries them out.

    publish → rejudge parked entries → read protections → late entries: settle, judge, apply, park, clean
    → for each batch of the queue: settle, judge, apply, park, clean → advance

The threshold is published before protections are read: a protection is either seen here, or sees the threshold. If all
sweeping is paused, no step is done; a pause that comes later is noticed before the next batch. Tombstones are durable
before the queue is cleaned, and the queue is cleaned before the progress passes it: a crash at any point only leaves
work to repeat. Two sweeps of one shard at once do the same work twice and no harm.

The steps that read and delete are carried out by an `Engine` (`engine.py`). What both engines share, such as cleaning
and advancing, is in `work.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.logs import bind_log_names
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.processes import collect_garbage_seldom
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import FINE, fine
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.engine import B, Engine, InProcess, S
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.summary import Summary, SweepCounts
from sweep_tasks.sweep.work import ShardWork
from sweep_tasks.tables.activity import WriteCounts
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.outcomes import ABORTED

_KEEP_EVERY_MS = 60_000
"""A sweep that is killed leaves at most a minute of deletes uncounted."""
PAUSED, BLOCKED, TOMBSTONES = "paused", "blocked", "tombstones"
"""Why a run ends before everything is swept; a limit of its budget is another reason."""


class Stop(NamedTuple):
    """The start timestamp within a batch where the run must end, and why."""

    at: int
    why: str


class ShardSweep:
    def __init__(
        self,
        store: Store,
        strategy: SweepStrategy,
        shard: int,
        horizon: Horizon,
        clock: Clock,
        options: SweepOptions | None = None,
        counted: SweepCounts | None = None,
        engine: Callable[[ShardWork], Engine[Any, Any]] = InProcess,
    ) -> None:
        self._work = ShardWork(
            store, strategy, shard, horizon, clock, options or SweepOptions(), counted or SweepCounts()
        )
        self._engine: Engine[Any, Any] = engine(self._work)
        self._pauses = Pauses(store)

    @property
    def written(self) -> Mapping[TableRef, WriteCounts]:
        """Return the writes that the run has judged, by table."""
        return self._work.counted.written

    def run(self) -> Summary:
        with bind_log_names(strategy=self._work.strategy.value, shard=self._work.shard), collect_garbage_seldom():
            return self._paused() if self._everything_is_paused() else self._sweep(self._engine)

    def _sweep(self, engine: Engine[B, S]) -> Summary:
        work = self._work
        with work.time_phase("publish"):
            work.publish()
        with work.time_phase("parked"):
            engine.rejudge_parked()
        protections = work.read_protections()
        begin = work.read_progress()
        with work.time_phase("late"):
            for late in engine.late(begin, protections):
                self._sweep_late(engine, late, begin, protections)
        with work.time_phase("queue"):
            self._finish_current_partition(engine, begin)
            batches = engine.batches(begin, protections)
            for batch in batches:
                work.summary.stopped = (
                    PAUSED if self._apply_pauses() else self._sweep_batch(engine, batch, batches, protections)
                )
                if work.summary.stopped:
                    break
            else:
                work.advance(work.horizon.sweep_ts - 1)
        engine.count_cells()
        work.keep_deleted()
        return work.summary

    def _sweep_late(self, engine: Engine[B, S], batch: B, progress: int, protections: Protections) -> None:
        settled = engine.settle(batch)
        if settled.blocked is not None:  # it committed after all: left in the queue
            return
        judged = engine.judge_apply_park(settled, None, protections)
        self._work.clean(batch, progress, None)
        self._work.summary.entries += judged

    def _sweep_batch(self, engine: Engine[B, S], batch: B, rest: Iterator[B], protections: Protections) -> str | None:
        """Sweep a batch. Return why the run ends here, or None to continue."""
        work = self._work
        settled = engine.settle(batch)
        stop = self._stop(engine, settled)
        stop_at = None if stop is None else stop.at
        progress = batch.through if stop is None else stop.at - 1
        judged = engine.judge_apply_park(settled, stop_at, protections)
        work.clean(batch, progress, stop_at)
        if progress is not None:
            work.advance(progress)
        self._count(judged)
        if stop is not None:
            if stop.why == BLOCKED:
                work.summary.blocked += engine.count_left(settled, stop.at, rest)
            return stop.why
        # A run that ends inside a dedicated row would read that row again: it may end only where its progress is
        # stored.
        lasting = batch.through is not None or batch.completes_a_row
        return work.spending.exhausted() if lasting else None

    def _stop(self, engine: Engine[B, S], settled: S) -> Stop | None:
        """Return the least start timestamp of a batch that this run can't handle, or None."""
        over_cap = engine.first_over_cap(settled)
        if over_cap is not None:
            return Stop(over_cap, TOMBSTONES)
        return None if settled.blocked is None else Stop(settled.blocked, BLOCKED)

    def _count(self, judged: int) -> None:
        """Count a batch that is done, and store and report the figures so far."""
        work = self._work
        work.summary.batches += 1
        work.summary.entries += judged
        work.spending.spend(judged)
        if work.clock.now_ms() - work.kept_ms >= _KEEP_EVERY_MS:
            work.keep_deleted()
        work.report("queue")

    def run_if_idle(self) -> Summary | None:
        """Do what `run` does for a shard that has nothing to do: advance the progress, without an engine. Return None
        if there is work; then only the threshold was raised."""
        work = self._work
        with bind_log_names(strategy=work.strategy.value, shard=work.shard):
            if self._everything_is_paused():
                return self._paused()
            with work.time_phase("publish"):
                work.publish()
            with work.time_phase("queue"):
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
        return not self._work.options.dry_run and self._pauses.current().everything is not None

    def _apply_pauses(self) -> bool:
        """Read the pauses before each batch, so that a pause takes effect within one batch. Return True if the run ends
        here: the batch stays queued. The remaining entries of a table that was paused meanwhile are parked."""
        existing = self._pauses.current()
        self._work.view.apply_pauses(existing.tables)
        return existing.everything is not None and not self._work.options.dry_run

    def _finish_current_partition(self, engine: Engine[B, S], progress: int) -> None:
        """If the current partition is about to be completed, delete again what was aborted in it."""
        work = self._work
        if work.options.dry_run or not work.ends_in_current_partition(progress):
            return
        outcomes = work.commits.outcomes(work.starts_passed(progress, fine(progress + 1) * FINE))
        aborted = {start for start, commit in outcomes.items() if commit == ABORTED}
        if aborted:
            engine.delete_aborted(progress, aborted)
