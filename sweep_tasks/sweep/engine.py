"""The engine that carries out the reading and deleting steps of a sweep in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import fine
from sweep_tasks.queue.reader import Batch
from sweep_tasks.sweep.actions import delete_aborted
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.work import LATE_PARTITIONS, Judged, ShardWork


class InProcess:
    def __init__(self, work: ShardWork) -> None:
        self._work = work

    def rejudge_parked(self) -> None:
        work = self._work
        work.judge.rejudge_parked(at_most=work.options.budget.parked, after_page=lambda: work.report("parked"))

    def sweep_late(self, progress: int, protections: Protections) -> None:
        for batch in self._work.reader.late(self._work.late_since, progress, LATE_PARTITIONS):
            self._judge_late(batch, progress, protections)
        if self._work.some_came_late(progress):
            self._judge_late(self._undecided(progress), progress, protections)

    def _judge_late(self, batch: Batch, progress: int, protections: Protections) -> None:
        work = self._work
        outcomes = work.commits.abort_unfinished(batch.starts, work.options.dry_run)
        if any(commit >= work.horizon.sweep_ts for commit in outcomes.values()):
            return
        entries, unreadable = work.view.decoded(batch.entries, outcomes, work.strategy, work.shard)
        work.judge.judge(entries, protections)
        work.quarantine(unreadable)
        work.clean(batch, progress, None)
        work.summary.entries += len(entries)

    def _undecided(self, progress: int) -> Batch:
        """Return the undecided entries below the progress in the current partition. Its rows stay until it is
        complete."""
        work = self._work
        found = work.reader.all_of(fine(progress + 1), work.checked_from(progress), progress + 1)
        decided = work.commits.outcomes(found.starts)
        return Batch([raw for raw in found.entries if raw.start is not None and raw.start not in decided])

    def delete_aborted(self, progress: int, aborted: set[int]) -> None:
        work = self._work
        work.counted.deleted.merge(delete_aborted(work.store, work.view, work.strategy, work.shard, progress, aborted))

    def batches(self, begin: int, protections: Protections) -> Iterator[Batch]:  # noqa: ARG002
        work = self._work
        return work.reader.batches(begin, work.horizon.sweep_ts, work.spending.batch_size(work.options.batch))

    def judge_batch(self, batch: Batch, protections: Protections) -> Judged:
        work = self._work
        outcomes = work.commits.abort_unfinished(batch.starts, work.options.dry_run)
        entries, unreadable = work.view.decoded(batch.entries, outcomes, work.strategy, work.shard)
        stop_at, why = self._stop(entries, outcomes)
        if stop_at is not None:
            if why == "blocked":
                work.summary.blocked += sum(1 for raw in batch.entries if (raw.start or 0) >= stop_at)
            entries = [entry for entry in entries if entry.start < stop_at]
            unreadable = [entry for entry in unreadable if (entry.start or 0) < stop_at]
        work.judge.judge(entries, protections)
        work.quarantine(unreadable)
        return Judged(len(entries), stop_at, why)

    def _stop(self, entries: Sequence[Entry], outcomes: dict[int, int]) -> tuple[int | None, str | None]:
        """Return the least start timestamp that this run can't handle, and why."""
        sweep_ts = self._work.horizon.sweep_ts
        blocked = min((start for start, commit in outcomes.items() if commit >= sweep_ts), default=None)
        below = (entry for entry in entries if blocked is None or entry.start < blocked)
        over = self._work.spending.first_over_cap(below)
        if over is not None:
            return over, "tombstones"
        return blocked, None if blocked is None else "blocked"

    def count_left(self, batches: Iterator[Batch]) -> int:
        return sum(len(rest.entries) for rest in batches)

    def count_cells(self) -> None:
        self._work.summary.range_deletes = len(self._work.counted.ranged)
        self._work.summary.sentinels = len(self._work.counted.sentinels)
