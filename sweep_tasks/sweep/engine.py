"""The steps of a sweep that read and delete: the interface that `steps.py` calls, and its implementation in this
process. The other implementation is on Spark (`spark_jobs/shard.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.encoding import fine
from sweep_tasks.queue.reader import Batch, RawEntry
from sweep_tasks.sweep.actions import delete_aborted
from sweep_tasks.sweep.superseded import without_superseded
from sweep_tasks.sweep.work import LATE_PARTITIONS, ShardWork
from sweep_tasks.transactions.outcomes import ABORTED


class Settled(Protocol):
    """A batch whose transactions are all decided."""

    @property
    def blocked(self) -> int | None:
        """The least start timestamp of a transaction that committed at or above the sweep timestamp."""


B = TypeVar("B", bound=Batch)
S = TypeVar("S", bound=Settled)


class Engine(Protocol[B, S]):
    """Reads batches of type `B` from the queue, and turns them into settled ones of type `S`."""

    def rejudge_parked(self) -> None:
        """Judge parked entries that are due again."""

    def late(self, progress: int, protections: Protections) -> Iterator[B]:
        """Read late entries below the progress. Their transactions checked too late and can't commit.

        Marks lead to some; the rows of the grace period's partitions are read as well, since a writer marks a partition
        once. Later entries are found by a table scan only. In the current partition, entries that a sweep has read are
        decided, so an undecided one is late.
        """
        ...

    def delete_aborted(self, progress: int, aborted: set[int]) -> None:
        """Delete again what these aborted transactions may have written late into the current partition."""

    def batches(self, begin: int, protections: Protections) -> Iterator[B]:
        """Read the queue above `begin`, up to the sweep timestamp. An engine may use the protections to sort what it
        reads."""
        ...

    def settle(self, batch: B) -> S:
        """Look up the outcomes of the transactions of a batch, after aborting the unfinished ones."""
        ...

    def first_over_cap(self, settled: S) -> int | None:
        """Return the start timestamp, below the blocked one, that would put too many tombstones into one row."""
        ...

    def judge_apply_park(self, settled: S, below: int | None, protections: Protections) -> int:
        """Judge the entries of a batch that started before `below`, apply the decisions, park what must wait, and
        quarantine what can't be read. When this returns, all of it is durable. Return the number of judged entries.

        One step, because a plan exists only where it is applied: each Spark worker judges, applies and parks the
        entries of its partition in one task. Plans that left the workers would take a second pass over the entries, and
        would bring cells to the driver. The order within the step is in `Judge.judge`, for both engines.
        """
        ...

    def count_left(self, settled: S, stop_at: int, batches: Iterator[B]) -> int:
        """Count the entries of a batch from a start timestamp on, and those of the batches after it."""
        ...

    def count_cells(self) -> None:
        """Record the number of distinct touched cells in the summary."""


@dataclass(frozen=True, slots=True)
class SettledBatch:
    """A batch in this process, with the outcomes of its transactions."""

    batch: Batch
    outcomes: Mapping[int, int]
    blocked: int | None


class InProcess:
    """The steps carried out in this process."""

    def __init__(self, work: ShardWork) -> None:
        self._work = work

    def rejudge_parked(self) -> None:
        work = self._work
        work.judge.rejudge_parked(at_most=work.options.budget.parked, after_page=lambda: work.report("parked"))

    def late(self, progress: int, protections: Protections) -> Iterator[Batch]:  # noqa: ARG002
        work = self._work
        yield from work.reader.late(work.late_since, progress, LATE_PARTITIONS)
        if work.some_came_late(progress):
            yield self._undecided(progress)

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

    def settle(self, batch: Batch) -> SettledBatch:
        work = self._work
        outcomes = work.commits.abort_unfinished(batch.starts, work.options.dry_run)
        return SettledBatch(batch, outcomes, least_blocked(outcomes, work.horizon.sweep_ts))

    def first_over_cap(self, settled: SettledBatch) -> int | None:
        return self._work.spending.first_over_cap(_below(settled.batch.entries, settled.blocked))

    def judge_apply_park(self, settled: SettledBatch, below: int | None, protections: Protections) -> int:
        """Only entries that may act are decoded and judged."""
        work = self._work
        found = _below(settled.batch.entries, below)
        aborted = {start for start, outcome in settled.outcomes.items() if outcome == ABORTED}
        acting = without_superseded(found, aborted, work.view.divided(settled.outcomes, protections))
        entries, unreadable = work.view.decoded(acting, settled.outcomes, work.strategy, work.shard)
        if unreadable:  # so may be what was left out, and all of it must be quarantined
            entries, unreadable = work.view.decoded(found, settled.outcomes, work.strategy, work.shard)
        work.judge.judge(entries, protections)
        work.quarantine(unreadable)
        return len(found) - len(unreadable)

    def count_left(self, settled: SettledBatch, stop_at: int, batches: Iterator[Batch]) -> int:
        here = sum(1 for raw in settled.batch.entries if (raw.start or 0) >= stop_at)
        return here + sum(len(rest.entries) for rest in batches)

    def count_cells(self) -> None:
        self._work.summary.range_deletes = len(self._work.counted.ranged)
        self._work.summary.sentinels = len(self._work.counted.sentinels)


def _below(entries: list[RawEntry], end: int | None) -> list[RawEntry]:
    """Return the entries that started before `end`. One without a start can only be quarantined, and comes first."""
    return entries if end is None else [raw for raw in entries if (raw.start or 0) < end]


def least_blocked(outcomes: Mapping[int, int], sweep_ts: int) -> int | None:
    """Return the least start of a transaction that committed at or above the sweep timestamp, or None."""
    return min((start for start, commit in outcomes.items() if commit >= sweep_ts), default=None)
