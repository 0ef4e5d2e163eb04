"""Whether a compaction would drop something, and what keeps it from that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sweep_tasks.compaction.proof import Blocked, Blocker, KnownFile, Proven, TableFiles, droppable_in, prove
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.sstables.nodes import FileMetadata
from tests.unit.compaction.file_facts import known, path, table, unmeasured

A, B, C = path("a"), path("b"), path("c")
CANDIDATE = known("a", FileMetadata(100, 100), written={100: 50})
OLDER = known("b", FileMetadata(10, 90))
YOUNGER = known("b", FileMetadata(101, 200))
ENOUGH = 1_000
TWCS = {
    "class": "TimeWindowCompactionStrategy",
    "compaction_window_unit": "MINUTES",
    "timestamp_resolution": "SECONDS",
}


def proven(
    files: dict[str, KnownFile], reason: CandidateReason = CandidateReason.DENSE, budget: int = ENOUGH, **more: Any
) -> Any:
    return prove(A, reason, table(files, **more), budget)


class TestIncludedFiles:
    def test_nothing_if_nothing_else_is_there(self) -> None:
        assert proven({A: CANDIDATE}) == Proven((A,))

    def test_an_older_file_with_the_same_partition_is_compacted_together(self) -> None:
        assert proven({A: CANDIDATE, B: OLDER}) == Proven((A, B))

    def test_a_younger_file_is_not_compacted_together(self) -> None:
        assert proven({A: CANDIDATE, B: YOUNGER}) == Proven((A,))

    def test_a_file_written_at_the_same_time_keeps_tombstones_and_is_compacted_together(self) -> None:
        assert proven({A: CANDIDATE, B: known("b", FileMetadata(100, 100))}) == Proven((A, B))

    def test_an_older_file_without_the_partition_is_not_compacted_together(self) -> None:
        assert proven({A: CANDIDATE, B: known("b", FileMetadata(10, 90), partitions_at=[2])}) == Proven((A,))

    def test_an_unmeasured_file_may_hold_anything_and_is_compacted_together(self) -> None:
        assert proven({A: CANDIDATE, B: unmeasured("b", FileMetadata(10, 90))}) == Proven((A, B))

    def test_the_largest_file_stays_if_half_of_the_tombstones_can_be_dropped_without_it(self) -> None:
        candidate = known("a", FileMetadata(100, 200), written={100: 50, 200: 50})
        small, large = known("b", FileMetadata(10, 90)), known("c", FileMetadata(150, 160), size=5_000)
        assert proven({A: candidate, B: small, C: large}) == Proven((A, B))

    def test_the_largest_file_does_not_stay_if_less_than_half_can_be_dropped(self) -> None:
        candidate = known("a", FileMetadata(100, 200), written={100: 49, 200: 50})
        large = known("c", FileMetadata(150, 160), size=5_000)
        assert proven({A: candidate, C: large}) == Blocked(Blocker.OVERLAP_TOO_LARGE, (C,))


class TestBlockers:
    def test_gc_grace_blocks_until_a_known_time(self) -> None:
        young = known("a", FileMetadata(100, 100), waiting=50, until_s=2_000)
        assert proven({A: young}) == Blocked(Blocker.GC_GRACE, until_s=2_000, first_s=1_500)

    @pytest.mark.parametrize("reason", [CandidateReason.LONG_RUN, CandidateReason.READ])
    def test_a_long_run_that_mostly_waits_for_gc_grace_is_not_worth_it(self, reason: CandidateReason) -> None:
        mostly = known("a", FileMetadata(100, 100), written={100: 49}, waiting=50)
        assert proven({A: mostly}, reason).blocker is Blocker.GC_GRACE
        half = known("a", FileMetadata(100, 100), written={100: 50}, waiting=50)
        assert proven({A: half}, reason) == Proven((A,))

    def test_density_counts_droppable_tombstones_only(self) -> None:
        assert proven({A: known("a", FileMetadata(100, 100), written={100: 1}, waiting=500)}) == Proven((A,))

    def test_nothing_to_drop(self) -> None:
        assert proven({A: known("a", FileMetadata(100, 100))}).blocker is Blocker.NOTHING_DROPPABLE

    def test_not_measured(self) -> None:
        assert proven({A: unmeasured("a", FileMetadata(1, 2))}).blocker is Blocker.NOT_MEASURED

    def test_too_large_alone_or_with_the_files_that_must_be_included(self) -> None:
        assert proven({A: CANDIDATE}, budget=100) == Proven((A,))
        assert proven({A: CANDIDATE}, budget=99).blocker is Blocker.TOO_LARGE
        assert proven({A: CANDIDATE, B: OLDER}, budget=199) == Blocked(Blocker.OVERLAP_TOO_LARGE, (B,))

    def test_levels_cost_twice(self) -> None:
        leveled = {"class": "LeveledCompactionStrategy"}
        assert proven({A: CANDIDATE, B: OLDER}, budget=399, compaction=leveled).blocker is Blocker.OVERLAP_TOO_LARGE
        assert proven({A: CANDIDATE, B: OLDER}, budget=400, compaction=leveled) == Proven((A, B))

    def test_sentinels_of_the_old_scheme_block_only_if_they_cannot_be_included(self) -> None:
        old = known("b", FileMetadata(-1, 90), size=5_000)
        assert proven({A: CANDIDATE, B: old}) == Blocked(Blocker.OLD_SENTINELS, (B,))
        assert proven({A: CANDIDATE, B: old}, budget=5_100) == Proven((A, B))

    def test_a_table_that_drops_repaired_tombstones_only(self) -> None:
        only = {"only_purge_repaired_tombstones": "true"}
        assert proven({A: CANDIDATE}, compaction=only).blocker is Blocker.ONLY_PURGE_REPAIRED
        repaired = known("a", FileMetadata(100, 100, repaired=True), written={100: 50})
        assert proven({A: repaired}, compaction=only) == Proven((A,))
        assert proven({A: repaired, B: OLDER}, compaction=only) == Blocked(Blocker.APART, (B,))

    def test_a_repair_mark_on_the_file_or_on_one_that_must_be_included(self) -> None:
        marked = known("a", FileMetadata(100, 100, pending_repair=True), written={100: 50})
        assert proven({A: marked}).blocker is Blocker.REPAIR
        assert proven({A: CANDIDATE, B: known("b", FileMetadata(10, 90, pending_repair=True))}) == Blocked(
            Blocker.REPAIR, (B,)
        )

    def test_compaction_disabled_in_the_schema_or_manually_blocks(self) -> None:
        assert proven({A: CANDIDATE}, compaction={"enabled": "false"}).blocker is Blocker.COMPACTION_DISABLED
        assert proven({A: CANDIDATE}, compacting=False).blocker is Blocker.COMPACTION_DISABLED

    def test_an_unknown_strategy_blocks(self) -> None:
        assert proven({A: CANDIDATE}, compaction={"class": "com.example.Ours"}).blocker is Blocker.STRATEGY

    def test_time_windows_are_never_merged(self) -> None:
        assert proven({A: CANDIDATE, B: known("b", FileMetadata(10, 59))}, compaction=TWCS) == Blocked(
            Blocker.TIME_WINDOWS, (B,)
        )
        assert proven({A: CANDIDATE, B: known("b", FileMetadata(10, 60))}, compaction=TWCS) == Proven((A, B))

    def test_files_of_another_folder_are_not_compacted_together(self) -> None:
        elsewhere = path("b", "/data2")
        assert proven({A: CANDIDATE, elsewhere: OLDER}) == Blocked(Blocker.APART, (elsewhere,))


class TestDroppableTombstones:
    MARKED = known("b", FileMetadata(10, 90), written={60: 5})

    def facts(self) -> TableFiles:
        return table({A: CANDIDATE, B: self.MARKED, C: known("c", FileMetadata(70, 80))})

    def test_all_tombstones_are_droppable_if_no_older_file_stays_outside(self) -> None:
        assert droppable_in([A, B, C], self.facts()) == 55
        assert droppable_in([A, B], self.facts()) == 5, "c keeps the tombstones of a, not the older ones of b"
        assert droppable_in([A], self.facts()) == 0
        assert droppable_in([], self.facts()) == 0

    def test_a_proof_never_promises_what_the_files_left_outside_keep(self) -> None:
        found = prove(A, CandidateReason.DENSE, self.facts(), ENOUGH)
        assert found == Proven((A, B, C))
        without = replace(self.facts(), files={A: CANDIDATE, B: self.MARKED})
        assert prove(A, CandidateReason.DENSE, without, ENOUGH) == Proven((A, B))
