"""Which compactions a run begins, and in what order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.compaction.planning import CompactionPlan, EarlierAttempts, cause_of, planned, with_all_blocked
from sweep_tasks.compaction.proof import Blocker, KnownFile, TableFiles, droppable_in
from sweep_tasks.compaction.rules import AssessedFile, CandidateReason, Density
from sweep_tasks.sstables.nodes import FileMetadata
from tests.unit.compaction.file_facts import TABLE, known, path, table

A, B, C, OLD = path("a"), path("b"), path("c"), path("old")


def verdict(file: str, rank: int | None, reason: CandidateReason = CandidateReason.DENSE) -> AssessedFile:
    return AssessedFile(file, TABLE, Density(1, 1), reason, rank=rank)


def dense(name: str, written: int, at: int = 1, **more: Any) -> KnownFile:
    return known(
        name, FileMetadata(written, written), written={written: 5}, tombstones_at=[at], partitions_at=[at], **more
    )


def plan(
    files: dict[str, KnownFile], *verdicts: AssessedFile, budget: int = 1_000, fruitless: Any = None
) -> CompactionPlan:
    return planned(verdicts, {TABLE: table(files)}, budget, EarlierAttempts(fruitless or {}))


def blockers(found: CompactionPlan) -> dict[str, Blocker]:
    return {each.candidate: each.by.blocker for each in found.blocked}


def test_candidates_are_compacted_in_their_order_each_with_what_it_costs_and_gains() -> None:
    found = plan({A: dense("a", 100, 1), B: dense("b", 100, 2)}, verdict(B, 1), verdict(A, 2))
    assert [(each.candidate, each.rank, each.files) for each in found.compactions] == [(B, 1, (B,)), (A, 2, (A,))]
    assert [(each.bytes, each.tombstones, each.points) for each in found.compactions] == [(100, 5, 10)] * 2


def test_candidates_that_need_the_same_old_file_are_compacted_together() -> None:
    files = {A: dense("a", 100), B: dense("b", 200), OLD: known("old", FileMetadata(1, 50))}
    (found,) = plan(files, verdict(A, 1), verdict(B, 2)).compactions
    assert set(found.files) == {A, B, OLD}
    assert (found.candidate, found.rank, found.bytes, found.tombstones) == (A, 1, 300, 10)


def test_ineligible_files_are_not_examined() -> None:
    found = plan(
        {A: dense("a", 100)},
        verdict(A, None, CandidateReason.BELOW_THRESHOLD),
        verdict(A, None, CandidateReason.PENDING),
    )
    assert found == CompactionPlan((), ())


def test_a_missing_file_is_left_out() -> None:
    assert plan({A: dense("a", 100)}, verdict(B, 1)) == CompactionPlan((), ())


def test_what_does_not_fit_into_the_rest_of_the_budget_waits_and_a_smaller_one_may_follow() -> None:
    files = {A: dense("a", 1, 1, size=60), B: dense("b", 1, 2, size=50), C: dense("c", 1, 3, size=40)}
    found = plan(files, verdict(A, 1), verdict(B, 2), verdict(C, 3), budget=100)
    assert [each.candidate for each in found.compactions] == [A, C]
    assert blockers(found) == {B: Blocker.BUDGET}


def test_one_that_would_make_an_earlier_compaction_too_large_waits_for_the_next_round() -> None:
    """Alone it would fit, with the old file; but that one is already compacted with another."""
    files = {
        A: dense("a", 100, at=1),
        B: dense("b", 200, at=2, size=500),
        OLD: known("old", FileMetadata(1, 50), partitions_at=[1, 2]),
    }
    found = plan(files, verdict(A, 1), verdict(B, 2), budget=650)
    assert [set(each.files) for each in found.compactions] == [{A, OLD}]
    assert blockers(found) == {B: Blocker.NEXT_ROUND}


def test_a_candidate_justified_by_reads_only_never_enlarges_an_earlier_compaction() -> None:
    files = {A: dense("a", 100), B: dense("b", 200), OLD: known("old", FileMetadata(1, 50))}
    found = plan(files, verdict(A, 1), verdict(B, 2, CandidateReason.READ))
    assert [set(each.files) for each in found.compactions] == [{A, OLD}]
    assert blockers(found) == {B: Blocker.NEXT_ROUND}
    alone = plan({A: dense("a", 100, 1), B: dense("b", 100, 2)}, verdict(A, 1), verdict(B, 2, CandidateReason.READ))
    assert [each.candidate for each in alone.compactions] == [A, B]


def test_a_blocked_candidate_is_reported_with_what_stays_in_it() -> None:
    young = known("a", FileMetadata(1, 1), waiting=70, until_s=900)
    (found,) = plan({A: young}, verdict(A, 1, CandidateReason.LONG_RUN)).blocked
    assert (found.by.blocker, found.by.until_s, found.tombstones, found.waiting) == (Blocker.GC_GRACE, 900, 0, 70)


def test_a_blocked_file_that_is_compacted_with_a_later_one_is_not_reported_as_kept() -> None:
    files = {A: known("a", FileMetadata(50, 50), waiting=70), B: dense("b", 200)}
    found = plan(files, verdict(A, 1, CandidateReason.LONG_RUN), verdict(B, 2))
    assert ([set(each.files) for each in found.compactions], found.blocked) == ([{A, B}], ())


class TestAFileThatTheServerIsAboutToCompact:
    def pending(self, file: str, otherwise: CandidateReason) -> AssessedFile:
        return replace(verdict(file, None, CandidateReason.PENDING), if_not_pending=otherwise)

    @pytest.mark.parametrize(
        "otherwise", [CandidateReason.DENSE, CandidateReason.LONG_RUN, CandidateReason.OVERLAP, CandidateReason.READ]
    )
    def test_is_kept_by_that_whatever_makes_it_worth_it(self, otherwise: CandidateReason) -> None:
        found = plan({A: dense("a", 100)}, self.pending(A, otherwise))
        (stopped,) = found.blocked
        assert (found.compactions, stopped.by.blocker, stopped.reason) == ((), Blocker.SERVER_BUSY, otherwise)
        assert stopped.tombstones == 5

    def test_is_no_candidate_if_it_would_be_none_otherwise(self) -> None:
        for otherwise in (CandidateReason.BELOW_THRESHOLD, CandidateReason.SWITCHED_OFF, CandidateReason.EMPTY):
            assert plan({A: dense("a", 100)}, self.pending(A, otherwise)) == CompactionPlan((), ())

    def test_an_undroppable_file_is_reported_with_what_keeps_it_longer(self) -> None:
        files = {A: known("a", FileMetadata(1, 1), waiting=70)}
        assert blockers(plan(files, self.pending(A, CandidateReason.LONG_RUN))) == {A: Blocker.GC_GRACE}


def test_while_the_server_is_busy_nothing_starts_and_everything_is_reported() -> None:
    files = {A: dense("a", 100, 1), B: known("b", FileMetadata(1, 1), waiting=70, partitions_at=[2])}
    found = with_all_blocked(plan(files, verdict(A, 1), verdict(B, 2, CandidateReason.LONG_RUN)), Blocker.SERVER_BUSY)
    assert found.compactions == ()
    assert blockers(found) == {A: Blocker.SERVER_BUSY, B: Blocker.GC_GRACE}


class TestAFruitlessCompaction:
    FILES = table({A: dense("a", 100), OLD: known("old", FileMetadata(1, 50))})

    def plan(self, now: TableFiles) -> CompactionPlan:
        return planned([verdict(A, 1)], {TABLE: now}, 1_000, EarlierAttempts({A: cause_of(A, self.FILES)}))

    def test_is_not_tried_again_while_nothing_has_changed(self) -> None:
        assert blockers(self.plan(self.FILES)) == {A: Blocker.FRUITLESS}
        younger = {**self.FILES.files, B: known("b", FileMetadata(101, 102))}
        assert blockers(self.plan(replace(self.FILES, files=younger))) == {A: Blocker.FRUITLESS}, "a flush is no cause"

    @pytest.mark.parametrize(
        "changed",
        [
            replace(FILES, gc_grace_s=11),
            replace(FILES, compaction={**FILES.compaction, "only_purge_repaired_tombstones": "false"}),
            replace(FILES, files={A: FILES.files[A]}),
            replace(FILES, files={**FILES.files, B: known("b", FileMetadata(1, 5))}),
            replace(FILES, files={**FILES.files, A: dense("a", 100, size=101)}),
            replace(FILES, files={**FILES.files, A: known("a", FileMetadata(100, 100), written={100: 6})}),
        ],
        ids=["gc_grace", "options", "an old file was removed", "an old file came", "another file", "more may go"],
    )
    def test_is_tried_again_when_its_cause_has_changed(self, changed: TableFiles) -> None:
        assert [each.candidate for each in self.plan(changed).compactions] == [A]


timestamps = st.integers(-1, 20)


@st.composite
def some_files(draw: st.DrawFn) -> dict[str, KnownFile]:
    files = {}
    for number in range(draw(st.integers(1, 6))):
        first = draw(timestamps)
        written = draw(st.dictionaries(st.integers(first, 25), st.integers(1, 9), max_size=3))
        places = draw(st.sets(st.integers(0, 3), min_size=1))
        metadata = FileMetadata(first, max([first, *written]), repaired=draw(st.booleans()))
        size, waiting = draw(st.integers(1, 50)), draw(st.integers(0, 9))
        files[path(str(number))] = known(
            str(number), metadata, size=size, written=written, waiting=waiting,
            tombstones_at=places, partitions_at=places,
        )  # fmt: skip
    return files


@given(
    some_files(),
    st.integers(1, 200),
    st.sampled_from([CandidateReason.DENSE, CandidateReason.LONG_RUN, CandidateReason.READ]),
)
def test_whatever_the_files_no_plan_breaks_its_rules(
    files: dict[str, KnownFile], budget: int, reason: CandidateReason
) -> None:
    facts = table(files)
    found = planned(
        [verdict(name, rank, reason) for rank, name in enumerate(files, 1)], {TABLE: facts}, budget, EarlierAttempts()
    )
    taken = [name for each in found.compactions for name in each.files]
    assert len(taken) == len(set(taken)), "no file is in two compactions"
    assert sum(each.bytes for each in found.compactions) <= budget
    assert {each.candidate for each in found.blocked}.isdisjoint(taken), "none is both compacted and kept"
    for each in found.compactions:
        assert each.tombstones == droppable_in(each.files, facts) > 0, "each is proven to drop something"
        assert len({files[name].metadata.repaired for name in each.files}) == 1
    assert [each.rank for each in found.compactions] == sorted(each.rank for each in found.compactions)
