"""Possible mistakes, each a small patch of the product, each losing data or leaving garbage.

They show that the machines of `sweep_machine.py` and `narrow_machines.py` notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sweep_tasks.coordination import clock_history
from sweep_tasks.coordination import clock_samples as clock_record
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.clock_samples import ClockRecord, Sample, SampleVerdict
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import OutcomeUnknown
from sweep_tasks.model import MAX_TS, SweepStrategy, TableMetadata, VersionRange
from sweep_tasks.protection import records as protection_records
from sweep_tasks.protection.catalog import ProtectionCatalog, ProtectionVerdict
from sweep_tasks.protection.records import Mode, Protection, Protections, Record, State
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry, Parking
from sweep_tasks.queue.reader import Batch, QueueReader
from sweep_tasks.queue.writer import QueueCleaner, QueueWriter
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep import engine, judging, rules, run
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.steps import BLOCKED, ShardSweep, Stop
from sweep_tasks.sweep.superseded import without_superseded
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.sweep.work import ShardWork
from sweep_tasks.transactions.commit import Committer
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable, Writers
from sweep_tasks.transactions.snapshot import Snapshot
from tests.interleavings.emptying_reversed import REVERSED
from tests.properties.clock_machine import Skewed
from tests.properties.narrow_machines import (
    Administering,
    Counting,
    Crashing,
    Dedicated,
    Dying,
    Halting,
    Lacking,
    Leasing,
    Missing,
    Paused,
    Pausing,
    Protecting,
    Racing,
    Refused,
    Retaining,
    Stopping,
    Tearing,
    Truncating,
)
from tests.properties.searching import Mistakes, Patch
from tests.support.simulation import InPieces

MISTAKES = Mistakes()
HARD_TO_FIND = Mistakes()
"""By chance, that is: `make test-long` searches for these, and each names the test that finds it directly."""


# --- the order of a sweep -------------------------------------------------------------------------------------------


@MISTAKES.planted(Halting, after=5)
def progress_before_clean(patch: Patch) -> None:
    clean = ShardWork.clean

    def swapped(self: ShardWork, batch: Batch, progress: int | None, stop_at: int | None) -> None:
        if progress is not None:
            self.advance(progress)
        clean(self, batch, progress, stop_at)

    patch.setattr(ShardWork, "clean", swapped)


@MISTAKES.planted(Paused, after=16)
def a_paused_table_forgets_its_entries(patch: Patch) -> None:
    decide = rules.plan

    def forgetful(*arguments: Any) -> rules.Plan:
        decided = decide(*arguments)
        decided.parked = [entry for entry in decided.parked if entry.hold.why is not HoldReason.PAUSED]
        return decided

    patch.setattr(judging, "plan", forgetful)


@MISTAKES.planted(Paused, after=34)
def a_paused_sweep_moves_its_progress(patch: Patch) -> None:
    apply = ShardSweep._apply_pauses

    def moved(self: ShardSweep) -> bool:
        paused = apply(self)
        if paused:
            self._work.advance(self._work.horizon.sweep_ts - 1)
        return paused

    patch.setattr(ShardSweep, "_everything_is_paused", lambda self: False)
    patch.setattr(ShardSweep, "_apply_pauses", moved)


@HARD_TO_FIND.planted(Racing, after=131)
def protections_before_publish(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` finds it directly."""
    sweep = run.Sweeper.sweep
    read = ProtectionCatalog.protections

    def early(self: run.Sweeper, *args: Any, **kwargs: Any) -> Any:
        known = read(ProtectionCatalog(self._store))
        patch.setattr("sweep_tasks.sweep.work.ProtectionCatalog.protections", lambda _: known)
        return sweep(self, *args, **kwargs)

    patch.setattr(run.Sweeper, "sweep", early)


@MISTAKES.planted(Crashing, after=5)
def nothing_published(patch: Patch) -> None:
    patch.setattr(Thresholds, "raise_strategy", lambda self, strategy, ts: ts)


@MISTAKES.planted(Leasing, after=11)
def leases_before_fresh(patch: Patch) -> None:
    def wrong_order(timestamps: TimestampService, leases: Leases) -> int:
        seen = [lease.ts for lease in leases.open()]
        return min([timestamps.fresh(), *seen])

    patch.setattr("sweep_tasks.coordination.leases.immutable_timestamp", wrong_order)
    patch.setattr("sweep_tasks.sweep.horizon.immutable_timestamp", wrong_order)


@MISTAKES.planted(Crashing, after=11)
def leases_ignored(patch: Patch) -> None:
    patch.setattr("sweep_tasks.sweep.horizon.immutable_timestamp", lambda timestamps, leases: timestamps.fresh())


# --- judging --------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Stopping, after=6)
def commit_at_the_sweep_timestamp_is_not_blocked(patch: Patch) -> None:
    least = engine.least_blocked

    def lenient(outcomes: Any, sweep_ts: int) -> int | None:
        return least(outcomes, sweep_ts + 1)

    patch.setattr(engine, "least_blocked", lenient)


@MISTAKES.planted(Stopping, after=6)
def nothing_is_ever_blocked(patch: Patch) -> None:
    patch.setattr(ShardSweep, "_stop", lambda self, engine, settled: None)


@MISTAKES.planted(Stopping, after=4)
def progress_passes_the_blocked_entry(patch: Patch) -> None:
    find = ShardSweep._stop

    def one_too_far(self: ShardSweep, engine: Any, settled: Any) -> Stop | None:
        stop = find(self, engine, settled)
        if stop is not None and stop.why == BLOCKED:
            self._work.advance(stop.at)
        return stop

    patch.setattr(ShardSweep, "_stop", one_too_far)


@MISTAKES.planted(Crashing, after=5)
def the_entrys_own_version_is_removed_too(patch: Patch) -> None:
    removable = rules.removable

    def greedy(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
        gone = removable(entry, held_by, strategy)
        return gone and gone._replace(end=entry.start + 1)

    patch.setattr(rules, "removable", greedy)


@MISTAKES.planted(Stopping, after=16)
def a_delete_marker_is_removed_under_a_protection(patch: Patch) -> None:
    removable = rules.removable

    def tidy(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
        gone = removable(entry, held_by, strategy)
        if gone and held_by and strategy is SweepStrategy.THOROUGH and entry.delete:
            return gone._replace(end=entry.start + 1)
        return gone

    patch.setattr(rules, "removable", tidy)


@HARD_TO_FIND.planted(Racing, after=58)
def a_protection_at_the_commit_does_not_count(patch: Patch) -> None:
    """`tests/properties/test_protections.py` finds it directly."""
    holding = Protections.holding
    patch.setattr(Protections, "holding", lambda self, table, row, commit: holding(self, table, row, commit - 1))


@HARD_TO_FIND.planted(Racing, after=58)
def protections_count_by_start_instead_of_commit(patch: Patch) -> None:
    """`tests/properties/test_protections.py` finds it directly."""
    plan = rules.plan

    def by_start(entries: Collection[Entry], *rest: Any) -> Any:
        return plan([e if e.commit == ABORTED else e._replace(commit=e.start) for e in entries], *rest)

    patch.setattr(judging, "plan", by_start)


@MISTAKES.planted(Protecting, after=12)
def after_is_treated_as_at(patch: Patch) -> None:
    def flat(self: Protections, *entry: Any) -> Protection | None:
        return max((held._replace(mode=Mode.AT) for held in self.holding_in_order(*entry)), default=None)

    patch.setattr(Protections, "holding", flat)


@MISTAKES.planted(Protecting, after=5)
def only_the_greatest_start_of_a_cell_is_parked_or_acts(patch: Patch) -> None:
    plan = rules.plan

    def one_per_cell(entries: Collection[Entry], *rest: Any) -> Any:
        greatest: dict[Any, Entry] = {}
        for entry in entries:
            if entry.commit != ABORTED:
                greatest[entry.table, entry.cell] = entry
        return plan([e for e in entries if e.commit == ABORTED or greatest[e.table, e.cell] is e][:1], *rest)

    patch.setattr(judging, "plan", one_per_cell)


@HARD_TO_FIND.planted(Protecting, after=48)
def row_ranges_are_ignored(patch: Patch) -> None:
    """`tests/unit/sweep/test_rules.py` finds it directly."""
    holding = Protections.holding
    patch.setattr(Protections, "holding", lambda self, table, row, commit: holding(self, table, b"b", commit))


@HARD_TO_FIND.planted(Dying, after=40)
def aborted_writes_are_not_deleted(patch: Patch) -> None:
    """`tests/unit/sweep/test_engine.py` finds it directly."""
    plan = rules.plan
    patch.setattr(judging, "plan", lambda entries, *rest: plan([e for e in entries if e.commit != ABORTED], *rest))


@HARD_TO_FIND.planted(Dying, after=42)
def an_aborted_entry_replaces_an_earlier_one(patch: Patch) -> None:
    """`tests/unit/sweep/test_superseded.py` finds it directly."""
    patch.setattr(
        engine, "without_superseded", lambda entries, alone, divided: without_superseded(entries, (), divided)
    )


# --- parking --------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Protecting, after=7)
def parked_entries_are_forgotten_on_release(patch: Patch) -> None:
    due_below = Judge._due_below

    def forgetful(self: Judge, hold: Hold, protections: Protections) -> int:
        return ABORTED if hold.why is HoldReason.PROTECTED else due_below(self, hold, protections)

    patch.setattr(Judge, "_due_below", forgetful)


@MISTAKES.planted(Protecting, after=8)
def nothing_is_parked(patch: Patch) -> None:
    patch.setattr(Parking, "park", lambda self, entries: None)


# --- bulk calls that do a part of their work ------------------------------------------------------------------------


@MISTAKES.planted(Tearing, after=80)
def a_delete_marker_is_removed_in_one_call_with_what_it_hides(patch: Patch) -> None:
    """That is safe as long as calls are atomic."""

    def at_once(self: Actions, table: Any, markers: Collection[rules.Marker], done: Any) -> None:
        self._delete_everywhere(table, [each for marker in markers for each in (marker.itself, marker.below)])

    patch.setattr(Actions, "_remove_markers", at_once)


@MISTAKES.planted(Tearing, after=82)
def a_put_without_an_answer_is_treated_as_done(patch: Patch) -> None:
    """That is right if only the answer was lost."""
    put = InPieces.put

    def hopeful(self: InPieces, ts: int, writes: Any) -> None:
        with suppress(OutcomeUnknown):
            put(self, ts, writes)

    patch.setattr(InPieces, "put", hopeful)


# --- dedicated rows -------------------------------------------------------------------------------------------------


@MISTAKES.planted(Dedicated, after=43)
def a_shared_row_is_removed_before_its_dedicated_rows(patch: Patch) -> None:
    clean = QueueCleaner.clean

    def swapped(self: QueueCleaner, dedicated: Collection[bytes], partitions: Collection[int]) -> None:
        clean(self, [], partitions)
        clean(self, dedicated, [])

    patch.setattr(QueueCleaner, "clean", swapped)


@HARD_TO_FIND.planted(Dedicated, after=107)
def progress_passes_a_transaction_before_its_last_page(patch: Patch) -> None:
    """`tests/unit/sweep/test_engine_steps.py` finds it directly."""
    dedicated = QueueReader._dedicated

    def complete(self: QueueReader, *reference: Any) -> Iterator[Any]:
        return (page._replace(complete=True) for page in dedicated(self, *reference))

    patch.setattr(QueueReader, "_dedicated", complete)


@MISTAKES.planted(Dedicated, after=48)
def dedicated_rows_come_before_the_reference_to_them(patch: Patch) -> None:
    enqueue = QueueWriter.enqueue

    def hasty(self: QueueWriter, start: int, writes: Any, tables: Any) -> None:
        for target, entries in self._by_target(writes, tables).items():
            self._fill_dedicated(start, target, entries, self._store.put)
        enqueue(self, start, writes, tables)

    patch.setattr(QueueWriter, "enqueue", hasty)


# --- unavailable replicas -------------------------------------------------------------------------------------------


@MISTAKES.planted(Missing, after=16)
def a_delete_marker_is_removed_although_a_replica_may_still_hold_what_it_hides(patch: Patch) -> None:
    delete = Actions._delete_everywhere

    def careless(self: Actions, table: Any, ranges: Collection[VersionRange]) -> set[VersionRange]:
        return {each for each in delete(self, table, ranges) if each.first >= 0}

    patch.setattr(Actions, "_delete_everywhere", careless)


@MISTAKES.planted(Missing, after=23)
def nothing_waits_for_replicas(patch: Patch) -> None:
    apply = Judge._apply

    def impatient(self: Judge, decided: Any) -> list[ParkedEntry]:
        apply(self, decided)
        return []

    patch.setattr(Judge, "_apply", impatient)


@MISTAKES.planted(Missing, after=23)
def an_entry_that_waits_again_is_removed_from_the_parking(patch: Patch) -> None:
    rejudge = Judge._rejudge

    def tidy(self: Judge, due: Collection[ParkedEntry], *rest: Any) -> list[ParkedEntry]:
        rejudge(self, due, *rest)
        return list(due)

    patch.setattr(Judge, "_rejudge", tidy)


# --- protections ------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Refused, after=5)
def a_protection_is_accepted_without_a_check(patch: Patch) -> None:
    patch.setattr(ProtectionCatalog, "check_thresholds", lambda self, record: ProtectionVerdict(True))


@HARD_TO_FIND.planted(Racing, after=102)
def a_protection_is_checked_before_it_is_stored(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` finds it directly."""

    def hasty(self: ProtectionCatalog, record: Record) -> ProtectionVerdict:
        verdict = self.check_thresholds(record)
        if verdict.accepted:
            self.accept(self.begin(record))
        return verdict

    patch.setattr(ProtectionCatalog, "protect", hasty)


@MISTAKES.planted(Refused, after=14)
def a_pending_record_is_shown_to_readers(patch: Patch) -> None:
    lets_read = Record.lets_read

    def trusting(self: Record, *args: Any) -> bool:
        return lets_read(replace(self, state=State.ACCEPTED), *args)

    patch.setattr(protection_records.Record, "lets_read", trusting)


# --- readers and writers ---------------------------------------------------------------------------------------------


@HARD_TO_FIND.planted(Crashing, after=111)
def readers_read_the_threshold_before_the_data(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` finds it directly."""
    versions, check = Snapshot.versions, Snapshot._check_not_swept

    def early(self: Snapshot, table: Any, cells: Any) -> Any:
        check(self, table, [], False)
        return versions(self, table, cells)

    patch.setattr(Snapshot, "versions", early)
    patch.setattr(Snapshot, "_check_not_swept", lambda *_: None)


@HARD_TO_FIND.planted(Dying, after=93)
def writers_never_check(patch: Patch) -> None:
    """`tests/properties/test_snapshot_isolation.py` finds it directly."""
    patch.setattr(Committer, "_check_tables", lambda self, start, tables: None)


@MISTAKES.planted(Dying, after=4)
def values_before_queue_entries(patch: Patch) -> None:
    commit = Committer.commit

    def hasty(self: Committer, start: int, lease: Any, writes: Any, tables: Any, protections: Any) -> int:
        if lease.stamp(start):
            self.store.put(start, writes)
        return commit(self, start, lease, writes, tables, protections)

    patch.setattr(Committer, "commit", hasty)


@HARD_TO_FIND.planted(Crashing, after=57)
def readers_pass_over_unfinished_writers(patch: Patch) -> None:
    """`tests/unit/transactions/test_commit_steps.py` finds it directly."""

    def hasty(self: Writers, starts: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)

    patch.setattr(Writers, "settle", hasty)


@HARD_TO_FIND.planted(Dying, after=62)
def an_unknown_commit_is_treated_as_an_abort(patch: Patch) -> None:
    """`tests/unit/sweep/test_engine.py` finds it directly."""

    def careless(self: CommitTable, starts: Collection[int]) -> dict[int, int]:
        existing = original(self, starts)
        return dict.fromkeys(existing, ABORTED)

    original = CommitTable.abort
    patch.setattr(CommitTable, "abort", careless)


# --- first committer wins -------------------------------------------------------------------------------------------


@MISTAKES.planted(Counting, after=16)
def other_writers_are_searched_before_the_values_are_stored(patch: Patch) -> None:
    """Two writers that check before either has put its value do not see each other."""
    commit, check_conflicts = Committer.commit, Committer._check_conflicts

    def early(self: Committer, start: int, lease: Any, writes: Any, tables: Any, *rest: Any) -> int:
        for table, values in writes.items():
            check_conflicts(self, start, table, values.keys())
        return commit(self, start, lease, writes, tables, *rest)

    patch.setattr(Committer, "commit", early)
    patch.setattr(Committer, "_check_conflicts", lambda *_: None)


# --- tables ----------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Administering, after=6)
def the_own_threshold_of_a_table_is_not_raised(patch: Patch) -> None:
    patch.setattr(Thresholds, "raise_own", lambda self, table, ts: ts)


@MISTAKES.planted(Administering, after=6)
def a_tables_retention_is_ignored(patch: Patch) -> None:
    publish = SweepView.publish

    def careless(store: Store, horizon: Horizon, dry_run: bool, *only: Any) -> SweepView:
        view = publish(store, horizon, dry_run, *only)
        view.tables = {table: known._replace(horizon=None) for table, known in view.tables.items()}
        return view

    patch.setattr(SweepView, "publish", careless)


@HARD_TO_FIND.planted(Retaining, after=115)
def what_another_parked_is_judged_beyond_the_published_threshold(patch: Patch) -> None:
    """`tests/unit/sweep/test_holding.py` finds it directly."""
    due_below = Judge._due_below

    def boundless(self: Judge, *asked: Any) -> int:
        self._sweep_ts = MAX_TS
        return due_below(self, *asked)

    patch.setattr(Judge, "_due_below", boundless)


@HARD_TO_FIND.planted(Administering, after=73)
def a_new_strategy_hides_the_old_threshold(patch: Patch) -> None:
    """`tests/unit/tables/test_strategies.py` finds it directly."""
    patch.setattr(TableMetadata, "with_strategy", lambda self, strategy: replace(self, strategy=strategy))


@MISTAKES.planted(Administering, after=6)
def new_shards_are_never_swept(patch: Patch) -> None:
    sweep = run.Sweeper.sweep
    patch.setattr(run.Sweeper, "sweep", lambda self, strategies, **given: sweep(self, strategies, [0], **given))


@MISTAKES.planted(Truncating, after=11)
def a_reader_sees_what_started_below_the_mark(patch: Patch) -> None:
    """A replica that was unavailable during a truncation brings back what the others removed."""
    REVERSED["a_reader_sees_what_started_below_the_mark"].plant(patch)


@HARD_TO_FIND.planted(Truncating, after=61)
def a_truncation_removes_everything(patch: Patch) -> None:
    """Also what was committed after it was decided. `tests/unit/store/test_contract.py` finds it directly."""
    truncate = Store.truncate
    patch.setattr(Store, "truncate", lambda self, table, before: truncate(self, table, MAX_TS))


@MISTAKES.planted(Truncating, after=8)
def a_table_created_again_has_no_mark(patch: Patch) -> None:
    REVERSED["a_table_created_again_has_no_mark"].plant(patch)


# --- clocks ---------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Skewed, after=10)
def every_clock_is_recorded(patch: Patch) -> None:
    patch.setattr(clock_history, "offer", lambda record, sample, step_ms: clock_record.offer(record, sample, 0))


@HARD_TO_FIND.planted(Skewed, after=114)
def a_clock_that_is_behind_is_recorded(patch: Patch) -> None:
    """`tests/unit/coordination/test_clock_record.py` finds it directly."""
    offer = clock_record.offer

    def lenient(record: ClockRecord | None, sample: Sample, step_ms: int) -> tuple[SampleVerdict, ClockRecord]:
        answer, kept = offer(record, sample, step_ms)
        if answer is not SampleVerdict.NOT_ABOVE:
            return answer, kept
        return SampleVerdict.ACCEPTED, kept.with_sample(sample.wall_ms, sample.ts, sample.uptime)

    patch.setattr(clock_history, "offer", lenient)


@MISTAKES.planted(Skewed, after=10)
def a_sweep_uses_its_own_clock(patch: Patch) -> None:
    patch.setattr(ClockHistory, "believed_ms", lambda self, clock, step_max_s: clock.now_ms())
    a_sweep_uses_samples_that_were_discarded(patch)


@HARD_TO_FIND.planted(Skewed, after=480)
def a_sweep_uses_samples_that_were_discarded(patch: Patch) -> None:
    """`tests/unit/sweep/test_clocks.py` finds it directly."""
    patch.setattr(ClockHistory, "timestamp_before", lambda self, wall_ms, back_ms: self.timestamp_at(wall_ms - back_ms))


WIDER = {
    a_paused_table_forgets_its_entries: Pausing,
    a_paused_sweep_moves_its_progress: Pausing,
    commit_at_the_sweep_timestamp_is_not_blocked: Protecting,
    a_delete_marker_is_removed_under_a_protection: Protecting,
    nothing_is_ever_blocked: Dying,
    progress_passes_the_blocked_entry: Dying,
    progress_before_clean: Dying,
    leases_before_fresh: Crashing,
    an_entry_that_waits_again_is_removed_from_the_parking: Lacking,
}
"""A wider machine finds these too, after many more examples."""
