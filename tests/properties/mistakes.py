"""Mistakes one could make, each a small patch of the product, each losing data or leaving rubbish somewhere.

They are here to show that the machines of `sweep_machine.py` and `narrow_machines.py` notice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from sweep_tasks.model import MAX_TS, SweepStrategy, TableMetadata, VersionRange
from sweep_tasks.protection import records as protection_records
from sweep_tasks.protection.catalog import ProtectionCatalog, Verdict
from sweep_tasks.protection.records import Mode, Protection, Protections, Record, State
from sweep_tasks.queue.parking import ParkedEntry, Parking, Why
from sweep_tasks.queue.reader import Batch
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep import judging, rules, run
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.sweep.engine import ShardSweep
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commit import Committer
from sweep_tasks.transactions.commits import ABORTED, CommitTable
from sweep_tasks.transactions.snapshot import Snapshot
from sweep_tasks.transactions.writers import Writers
from tests.properties.narrow_machines import (
    Administering,
    Crashing,
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
)
from tests.properties.searching import Mistakes, Patch

MISTAKES = Mistakes()
HARD_TO_FIND = Mistakes()
"""By chance, that is: `make test-long` searches for these, and each names the test that leads straight to it."""


# --- the order of a sweep -------------------------------------------------------------------------------------------


@MISTAKES.planted(Halting, after=5)
def progress_before_clean(patch: Patch) -> None:
    clean = ShardSweep._clean

    def swapped(self: ShardSweep, batch: Batch, progress: int | None, stop_at: int | None) -> None:
        if progress is not None:
            self._advance(progress)
        clean(self, batch, progress, stop_at)

    patch.setattr(ShardSweep, "_clean", swapped)


@MISTAKES.planted(Paused, after=16)
def a_paused_table_forgets_its_entries(patch: Patch) -> None:
    decide = rules.plan

    def forgetful(*arguments: Any) -> rules.Plan:
        decided = decide(*arguments)
        decided.parked = [entry for entry in decided.parked if entry.hold.why is not Why.PAUSED]
        return decided

    patch.setattr(judging, "plan", forgetful)


@MISTAKES.planted(Paused, after=34)
def a_paused_sweep_moves_its_progress(patch: Patch) -> None:
    heed = ShardSweep._heed_pauses

    def moved(self: ShardSweep) -> bool:
        paused = heed(self)
        if paused:
            self._advance(self._horizon.sweep_ts - 1)
        return paused

    patch.setattr(ShardSweep, "_everything_is_paused", lambda self: False)
    patch.setattr(ShardSweep, "_heed_pauses", moved)


@HARD_TO_FIND.planted(Racing, after=131)
def protections_before_publish(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` leads straight to it."""
    sweep = run.Sweeper.sweep
    read = ProtectionCatalog.protections

    def early(self: run.Sweeper, *args: Any, **kwargs: Any) -> Any:
        known = read(ProtectionCatalog(self._store))
        patch.setattr("sweep_tasks.sweep.engine.ProtectionCatalog.protections", lambda _: known)
        return sweep(self, *args, **kwargs)

    patch.setattr(run.Sweeper, "sweep", early)


@MISTAKES.planted(Crashing, after=5)
def nothing_published(patch: Patch) -> None:
    patch.setattr(Thresholds, "raise_strategy", lambda self, strategy, ts: ts)


@MISTAKES.planted(Leasing, after=11)
def leases_before_fresh(patch: Patch) -> None:
    def wrong_way_round(timestamps: TimestampService, leases: Leases) -> int:
        seen = [lease.ts for lease in leases.open()]
        return min([timestamps.fresh(), *seen])

    patch.setattr("sweep_tasks.timestamps.immutable.immutable_timestamp", wrong_way_round)
    patch.setattr("sweep_tasks.sweep.horizon.immutable_timestamp", wrong_way_round)


@MISTAKES.planted(Crashing, after=11)
def leases_ignored(patch: Patch) -> None:
    patch.setattr("sweep_tasks.sweep.horizon.immutable_timestamp", lambda timestamps, leases: timestamps.fresh())


# --- judging --------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Stopping, after=6)
def commit_at_the_sweep_timestamp_is_not_blocked(patch: Patch) -> None:
    stop = ShardSweep._stop

    def lenient(self: ShardSweep, entries: Any, outcomes: dict[int, int]) -> Any:
        limit = self._horizon.sweep_ts
        return stop(self, entries, {start: commit for start, commit in outcomes.items() if commit != limit})

    patch.setattr(ShardSweep, "_stop", lenient)


@MISTAKES.planted(Stopping, after=6)
def nothing_is_ever_blocked(patch: Patch) -> None:
    patch.setattr(ShardSweep, "_stop", lambda self, entries, outcomes: (None, None))


@MISTAKES.planted(Stopping, after=4)
def progress_passes_the_blocked_entry(patch: Patch) -> None:
    stop = ShardSweep._stop

    def one_too_far(self: ShardSweep, entries: Any, outcomes: dict[int, int]) -> Any:
        at, why = stop(self, entries, outcomes)
        if why == "blocked" and at is not None:
            self._advance(at)
        return at, why

    patch.setattr(ShardSweep, "_stop", one_too_far)


@MISTAKES.planted(Crashing, after=5)
def the_entrys_own_version_goes_too(patch: Patch) -> None:
    doomed = rules.doomed

    def greedy(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
        gone = doomed(entry, held_by, strategy)
        return gone and gone._replace(end=entry.start + 1)

    patch.setattr(rules, "doomed", greedy)


@MISTAKES.planted(Stopping, after=16)
def a_delete_marker_goes_under_a_protection(patch: Patch) -> None:
    doomed = rules.doomed

    def tidy(entry: Entry, held_by: Protection | None, strategy: SweepStrategy) -> VersionRange | None:
        gone = doomed(entry, held_by, strategy)
        if gone and held_by and strategy is SweepStrategy.THOROUGH and entry.delete:
            return gone._replace(end=entry.start + 1)
        return gone

    patch.setattr(rules, "doomed", tidy)


@HARD_TO_FIND.planted(Racing, after=58)
def a_protection_at_the_commit_does_not_count(patch: Patch) -> None:
    """`tests/properties/test_protections.py` leads straight to it."""
    holding = rules.holding
    patch.setattr(
        rules, "holding", lambda protections, commit: holding([p for p in protections if p.ts < commit], commit)
    )


@HARD_TO_FIND.planted(Racing, after=58)
def protections_count_by_start_instead_of_commit(patch: Patch) -> None:
    """`tests/properties/test_protections.py` leads straight to it."""
    plan = rules.plan

    def by_start(entries: Collection[Entry], *rest: Any) -> Any:
        return plan([e if e.commit == ABORTED else e._replace(commit=e.start) for e in entries], *rest)

    patch.setattr(judging, "plan", by_start)


@MISTAKES.planted(Protecting, after=12)
def after_is_taken_for_at(patch: Patch) -> None:
    holding = rules.holding

    def flat(protections: Any, commit: int) -> Protection | None:
        return holding([p._replace(mode=Mode.AT) for p in protections], commit)

    patch.setattr(rules, "holding", flat)


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
    """`tests/unit/sweep/test_held.py` leads straight to it."""
    covering = Protections.covering
    patch.setattr(Protections, "covering", lambda self, table, row: covering(self, table, b"b"))


@HARD_TO_FIND.planted(Dying, after=40)
def aborted_writes_are_not_deleted(patch: Patch) -> None:
    """`tests/unit/sweep/test_engine.py` leads straight to it."""
    plan = rules.plan
    patch.setattr(judging, "plan", lambda entries, *rest: plan([e for e in entries if e.commit != ABORTED], *rest))


# --- parking --------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Protecting, after=7)
def parked_entries_are_forgotten_on_release(patch: Patch) -> None:
    is_due = Judge._is_due

    def forgetful(self: Judge, entry: Any, protections: Protections) -> bool:
        return entry.hold.why is not Why.PROTECTED and is_due(self, entry, protections)

    patch.setattr(Judge, "_is_due", forgetful)


@MISTAKES.planted(Protecting, after=8)
def nothing_is_parked(patch: Patch) -> None:
    patch.setattr(Parking, "park", lambda self, entries: None)


# --- missing copies -------------------------------------------------------------------------------------------------


@MISTAKES.planted(Missing, after=16)
def a_delete_marker_goes_although_a_copy_may_still_have_what_it_hides(patch: Patch) -> None:
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
def what_waits_again_is_removed_from_where_it_waits(patch: Patch) -> None:
    rejudge = Judge._rejudge

    def tidy(self: Judge, due: Collection[ParkedEntry], *rest: Any) -> list[ParkedEntry]:
        rejudge(self, due, *rest)
        return list(due)

    patch.setattr(Judge, "_rejudge", tidy)


# --- protections ------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Refused, after=5)
def a_protection_is_accepted_without_looking(patch: Patch) -> None:
    patch.setattr(ProtectionCatalog, "look", lambda self, record: Verdict(True))


@HARD_TO_FIND.planted(Racing, after=102)
def a_protection_looks_before_it_is_on_record(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` leads straight to it."""

    def hasty(self: ProtectionCatalog, record: Record) -> Verdict:
        verdict = self.look(record)
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
def readers_look_at_the_threshold_before_the_data(patch: Patch) -> None:
    """`tests/properties/test_interleavings.py` leads straight to it."""
    versions, check = Snapshot.versions, Snapshot._check_not_swept

    def early(self: Snapshot, table: Any, cells: Any) -> Any:
        check(self, table, [], False)
        return versions(self, table, cells)

    patch.setattr(Snapshot, "versions", early)
    patch.setattr(Snapshot, "_check_not_swept", lambda *_: None)


@HARD_TO_FIND.planted(Dying, after=93)
def writers_never_look(patch: Patch) -> None:
    """`tests/properties/test_snapshot_isolation.py` leads straight to it."""
    patch.setattr(Committer, "_look", lambda self, start, tables: None)


@MISTAKES.planted(Dying, after=4)
def values_before_queue_entries(patch: Patch) -> None:
    commit = Committer.commit

    def hasty(self: Committer, start: int, lease: Any, writes: Any, tables: Any) -> int:
        if lease.stamp(start):
            self.store.put(start, writes)
        return commit(self, start, lease, writes, tables)

    patch.setattr(Committer, "commit", hasty)


@HARD_TO_FIND.planted(Crashing, after=57)
def readers_pass_over_unfinished_writers(patch: Patch) -> None:
    """`tests/unit/transactions/test_commit_steps.py` leads straight to it."""

    def hasty(self: Writers, starts: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)

    patch.setattr(Writers, "settled", hasty)


@HARD_TO_FIND.planted(Dying, after=62)
def an_unknown_commit_is_taken_for_an_abort(patch: Patch) -> None:
    """`tests/unit/sweep/test_engine.py` leads straight to it."""

    def careless(self: CommitTable, starts: Collection[int]) -> dict[int, int]:
        standing = original(self, starts)
        return dict.fromkeys(standing, ABORTED)

    original = CommitTable.abort
    patch.setattr(CommitTable, "abort", careless)


# --- tables ----------------------------------------------------------------------------------------------------------


@MISTAKES.planted(Administering, after=6)
def the_own_threshold_of_a_table_is_not_raised(patch: Patch) -> None:
    patch.setattr(Thresholds, "raise_own", lambda self, table, ts: ts)


@MISTAKES.planted(Administering, after=6)
def a_tables_retention_is_ignored(patch: Patch) -> None:
    published = SweepView.published

    def careless(store: Store, horizon: Horizon, dry_run: bool, *only: Any) -> SweepView:
        view = published(store, horizon, dry_run, *only)
        view.tables = {table: known._replace(horizon=None) for table, known in view.tables.items()}
        return view

    patch.setattr(SweepView, "published", careless)


@HARD_TO_FIND.planted(Retaining, after=115)
def what_another_parked_is_judged_beyond_the_published_threshold(patch: Patch) -> None:
    """`tests/unit/sweep/test_holding.py` leads straight to it."""
    reach = Judge._reach

    def boundless(self: Judge, *asked: Any) -> int:
        self._sweep_ts = MAX_TS
        return reach(self, *asked)

    patch.setattr(Judge, "_reach", boundless)


@HARD_TO_FIND.planted(Administering, after=73)
def a_new_strategy_hides_the_old_threshold(patch: Patch) -> None:
    """`tests/unit/test_strategies.py` leads straight to it."""
    patch.setattr(TableMetadata, "with_strategy", lambda self, strategy: replace(self, strategy=strategy))


@MISTAKES.planted(Administering, after=6)
def new_shards_are_never_swept(patch: Patch) -> None:
    sweep = run.Sweeper.sweep
    patch.setattr(run.Sweeper, "sweep", lambda self, strategies, **given: sweep(self, strategies, [0], **given))


WIDER = {
    a_paused_table_forgets_its_entries: Pausing,
    a_paused_sweep_moves_its_progress: Pausing,
    commit_at_the_sweep_timestamp_is_not_blocked: Protecting,
    a_delete_marker_goes_under_a_protection: Protecting,
    nothing_is_ever_blocked: Dying,
    progress_passes_the_blocked_entry: Dying,
    progress_before_clean: Dying,
    leases_before_fresh: Crashing,
    what_waits_again_is_removed_from_where_it_waits: Lacking,
}
"""These are found by a wider machine too, after many more examples."""
