"""Which files are compacted, in what order: tables of cases, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.compaction.reports import file_verdict
from sweep_tasks.compaction.rules import AssessedFile, CandidateReason, Density, is_dense, plan
from sweep_tasks.sstables.statistics import Block, FileStatistics, FileThresholds, Reads, Spread, ThresholdsByTable

USUAL = FileThresholds()
DENSE, CLEAN = Block(100, 0, 4096), Block(0, 0, 4096)


def planned(
    *files: FileStatistics, thresholds: FileThresholds = USUAL, tables: Mapping[str, FileThresholds] | None = None
) -> list[AssessedFile]:
    return plan(files, ThresholdsByTable(thresholds, tables or {}))


def of(dense: int, blocks: int, file: str = "a", **more: Any) -> FileStatistics:
    return FileStatistics(file, [DENSE] * dense + [CLEAN] * (blocks - dense), **more)


def reason(file: FileStatistics, thresholds: FileThresholds = USUAL) -> CandidateReason:
    (verdict,) = planned(file, thresholds=thresholds)
    assert verdict.eligible == (verdict.rank == 1)
    return verdict.reason


class TestBlocks:
    @pytest.mark.parametrize(
        ("block", "dense"),
        [
            (Block(100, 0, 4096), True),
            (Block(99, 0, 4096), False),
            (Block(1, 2048, 4096), True),
            (Block(1, 2047, 4096), False),
            (Block(1, 2048, 4097), False),
            (Block(1, 2049, 4097), True),
            (Block(0, 0, 0), False),
            (Block(99, 0, 0), False),
            (Block(100, 0, 0), True),
            (Block(10**400, 0, 1), True),
            (Block(1, 10**400, 2 * 10**400), True),
            (Block(1, 10**400, 2 * 10**400 + 1), False),
        ],
    )
    def test_a_block_is_dense_from_a_hundred_tombstones_or_half_of_its_bytes(self, block: Block, dense: bool) -> None:
        assert is_dense(block, USUAL) is dense

    @pytest.mark.parametrize("off", [0, -1])
    def test_each_criterion_is_switched_off_by_itself(self, off: int) -> None:
        many, full = Block(100, 1, 4096), Block(1, 4096, 4096)
        by_bytes = replace(USUAL, dense_tombstones=off)
        by_number = replace(USUAL, dense_share=Fraction(off))
        assert (is_dense(many, by_bytes), is_dense(full, by_bytes)) == (False, True)
        assert (is_dense(many, by_number), is_dense(full, by_number)) == (True, False)


class TestFiles:
    @pytest.mark.parametrize(("dense", "blocks"), [(1, 20), (2, 40), (3, 60), (5, 100), (7, 140), (1, 1)])
    def test_five_dense_blocks_of_a_hundred_are_enough(self, dense: int, blocks: int) -> None:
        assert reason(of(dense, blocks)) is CandidateReason.DENSE

    @pytest.mark.parametrize(("dense", "blocks"), [(1, 21), (2, 41), (4, 99), (0, 1)])
    def test_less_is_not_enough(self, dense: int, blocks: int) -> None:
        assert reason(of(dense, blocks)) is CandidateReason.BELOW_THRESHOLD

    def test_blocks_that_are_only_counted_are_blocks_that_are_not_dense(self) -> None:
        assert planned(of(1, 1, clean_blocks=19)) == planned(of(1, 20))
        assert reason(of(1, 1, clean_blocks=20)) is CandidateReason.BELOW_THRESHOLD
        assert reason(of(0, 0, clean_blocks=1)) is CandidateReason.BELOW_THRESHOLD

    def test_a_file_without_blocks_is_empty(self) -> None:
        (verdict,) = planned(of(0, 0))
        assert (verdict.reason, verdict.density, verdict.rank) == (CandidateReason.EMPTY, Density(0, 0), None)

    def test_of_what_the_engine_is_about_to_compact_it_is_known_what_else_would_be_true(self) -> None:
        (found,) = planned(of(1, 1, pending=True))
        (off,) = planned(of(1, 1, pending=True), thresholds=replace(USUAL, eligible_share=Fraction(0)))
        assert (found.reason, found.if_not_pending, found.eligible, found.worth_it) == (
            CandidateReason.PENDING, CandidateReason.DENSE, False, True,
        )  # fmt: skip
        assert (off.reason, off.if_not_pending, off.worth_it) == (
            CandidateReason.PENDING,
            CandidateReason.SWITCHED_OFF,
            False,
        )
        assert set(file_verdict(found).document()) == {"file", "ratio", "eligible", "reason", "rank"}

    def test_what_the_engine_is_about_to_compact_is_left_to_it(self) -> None:
        assert reason(of(1, 1, pending=True)) is CandidateReason.PENDING
        assert reason(of(0, 1, pending=True)) is CandidateReason.PENDING
        assert reason(of(0, 0, pending=True, longest_run=10**6)) is CandidateReason.PENDING

    @pytest.mark.parametrize("off", [0, -1])
    def test_without_a_share_of_blocks_nothing_is_compacted(self, off: int) -> None:
        switched_off = replace(USUAL, eligible_share=Fraction(off))
        assert reason(of(1, 1, longest_run=10**6, spread=Spread(1, 0, 0)), switched_off) is CandidateReason.SWITCHED_OFF

    def test_if_no_block_can_be_dense_the_reason_is_not_the_file(self) -> None:
        neither = replace(USUAL, dense_tombstones=0, dense_share=Fraction(0))
        assert reason(of(1, 1), neither) is CandidateReason.SWITCHED_OFF
        assert reason(of(1, 1, longest_run=1_000), neither) is CandidateReason.LONG_RUN

    def test_a_table_has_thresholds_of_its_own(self) -> None:
        tables = {
            "shop.off": replace(USUAL, eligible_share=Fraction(0)),
            "shop.strict": replace(USUAL, eligible_share=Fraction(1, 10)),
        }
        files = [of(1, 20, table, table=table) for table in ("shop.off", "shop.strict", "shop.other")]
        verdicts = planned(*files, of(1, 20, "none"), tables=tables)
        assert {each.file: each.reason.value for each in verdicts} == {
            "none": "dense", "shop.other": "dense", "shop.off": "switched_off", "shop.strict": "below_threshold",
        }  # fmt: skip


class TestOrder:
    def test_the_densest_file_is_first_and_ties_are_ordered_by_name(self) -> None:
        verdicts = planned(of(1, 4, "d"), of(2, 8, "c"), of(1, 2, "b"), of(0, 9, "a"), of(1, 50, "e"), of(0, 0, "f"))
        assert [(each.file, each.rank) for each in verdicts] == [
            ("b", 1), ("c", 2), ("d", 3), ("e", None), ("a", None), ("f", None),
        ]  # fmt: skip

    def test_a_dense_file_that_is_not_eligible_is_ordered_after_all_eligible_ones(self) -> None:
        verdicts = planned(of(9, 9, "a", pending=True), of(1, 20, "b"))
        assert [(each.file, each.rank) for each in verdicts] == [("b", 1), ("a", None)]


class TestRuns:
    @pytest.mark.parametrize(
        ("longest", "expected", "read"),
        [
            (999, CandidateReason.BELOW_THRESHOLD, Reads.FINE),
            (1_000, CandidateReason.LONG_RUN, Reads.WARNED),
            (99_999, CandidateReason.LONG_RUN, Reads.WARNED),
            (100_000, CandidateReason.LONG_RUN, Reads.FAILING),
        ],
    )
    def test_a_run_that_the_server_warns_of_is_enough(
        self, longest: int, expected: CandidateReason, read: Reads
    ) -> None:
        (verdict,) = planned(of(0, 50, longest_run=longest))
        assert (verdict.reason, verdict.reads) == (expected, read)

    def test_a_dense_file_is_marked_as_dense_with_its_run(self) -> None:
        (verdict,) = planned(of(1, 1, longest_run=100_000))
        assert (verdict.reason, verdict.reads) == (CandidateReason.DENSE, Reads.FAILING)

    def test_runs_do_not_count_where_they_are_switched_off(self) -> None:
        off = replace(USUAL, run_warn=0, run_fail=-1)
        assert reason(of(0, 1, longest_run=10**9), off) is CandidateReason.BELOW_THRESHOLD
        assert reason(of(0, 1, longest_run=100_000), replace(USUAL, run_warn=0)) is CandidateReason.LONG_RUN

    def test_a_long_run_has_its_place_by_dense_blocks(self) -> None:
        verdicts = planned(of(0, 50, "a", longest_run=10**6), of(1, 20, "b"), of(1, 21, "c", longest_run=1_000))
        assert [(each.file, each.rank) for each in verdicts] == [("b", 1), ("c", 2), ("a", 3)]


class TestOverlaps:
    def test_tombstones_too_thin_for_a_dense_block_count_against_the_keys_around_them(self) -> None:
        thin = FileStatistics("a", [Block(25, 1_000, 16_384)] * 4, spread=Spread(200, 0, 99))
        assert reason(thin) is CandidateReason.OVERLAP
        assert reason(replace(thin, spread=Spread(201, 0, 99))) is CandidateReason.BELOW_THRESHOLD

    def test_keys_of_overlapping_files_of_the_same_table_count_too(self) -> None:
        thin = FileStatistics("a", [CLEAN], table="shop.orders", tombstones=100, spread=Spread(150, 0, 99))
        elsewhere = replace(thin, file="b", tombstones=0, spread=Spread(1_000, 100, 200))
        other_table = replace(thin, file="c", tombstones=0, table="shop.bills", spread=Spread(1_000, 0, 99))
        below = replace(thin, file="d", tombstones=0, spread=Spread(51, 99, 99))
        assert planned(thin, elsewhere, other_table)[0].overlap == Fraction(2, 3)
        assert [each.reason for each in planned(thin, elsewhere, other_table, below)] == [
            CandidateReason.BELOW_THRESHOLD
        ] * 4

    def test_nothing_is_known_where_one_file_of_the_table_does_not_say(self) -> None:
        thin = FileStatistics("a", [CLEAN], tombstones=100, spread=Spread(100, 0, 99))
        silent = FileStatistics("b", [CLEAN])
        assert planned(thin)[0].reason is CandidateReason.OVERLAP
        assert [(each.reason, each.overlap) for each in planned(thin, silent)] == [
            (CandidateReason.BELOW_THRESHOLD, None)
        ] * 2

    def test_they_do_not_count_where_they_are_switched_off(self) -> None:
        thin = FileStatistics("a", [CLEAN], tombstones=100, spread=Spread(100, 0, 99))
        assert reason(thin, replace(USUAL, overlap_share=Fraction(0))) is CandidateReason.BELOW_THRESHOLD

    def test_a_file_without_keys_or_tombstones_is_no_case(self) -> None:
        assert reason(of(0, 1, spread=Spread(0, 0, 0))) is CandidateReason.BELOW_THRESHOLD
        assert reason(of(0, 1, tombstones=10**400, spread=Spread(0, 0, 0))) is CandidateReason.BELOW_THRESHOLD


# --- what holds for every input ---------------------------------------------------------------------------------

shares = st.builds(Fraction, st.integers(-2, 20), st.sampled_from([20, 7, 100]))
numbers = st.integers(-1, 4)
limits = st.builds(FileThresholds, numbers, shares, shares, numbers, numbers, shares)
tables = st.sampled_from([None, "shop.orders", "shop.bills"])
blocks = st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 6)).map(
    lambda drawn: Block(drawn[0], min(drawn[1], drawn[2]), drawn[2])
)
spreads = st.builds(Spread, st.integers(0, 9), st.integers(-9, 0), st.integers(0, 9))
plain_files = st.builds(FileStatistics, st.text("abc", max_size=3), st.lists(blocks, max_size=24), tables)
full_files = st.builds(
    FileStatistics,
    st.text("abc", max_size=3),
    st.lists(blocks, max_size=24),
    tables,
    st.booleans(),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 5),
    st.none() | spreads,
)
full_lists = st.lists(full_files, max_size=12, unique_by=lambda file: file.file)
by_table = st.builds(ThresholdsByTable, limits, st.dictionaries(st.sampled_from(["shop.orders"]), limits))


@given(full_lists, by_table, st.randoms(use_true_random=False))
def test_the_order_of_the_files_makes_no_difference(
    files: list[FileStatistics], thresholds: ThresholdsByTable, random: Any
) -> None:
    shuffled = random.sample(files, len(files))
    assert plan(shuffled, thresholds) == plan(files, thresholds)


@given(full_lists, by_table)
def test_the_plan_has_every_file_once_and_ranks_the_eligible_from_one_on(
    files: list[FileStatistics], thresholds: ThresholdsByTable
) -> None:
    verdicts = plan(files, thresholds)
    eligible = [each for each in verdicts if each.eligible]
    assert sorted(each.file for each in verdicts) == sorted(file.file for file in files)
    assert [each.rank for each in verdicts] == [*range(1, len(eligible) + 1), *[None] * (len(files) - len(eligible))]
    for group in (eligible, verdicts[len(eligible) :]):
        for before, after in pairwise(group):
            assert (-before.density.ratio, before.file) < (-after.density.ratio, after.file)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 60), st.integers(1, 60))
def test_a_file_is_eligible_exactly_from_its_threshold_on(part: int, whole: int, dense: int, count: int) -> None:
    threshold = replace(USUAL, eligible_share=Fraction(min(part, whole), whole))
    dense = min(dense, count)
    assert (reason(of(dense, count), threshold) is CandidateReason.DENSE) == (
        Fraction(dense, count) >= threshold.eligible_share
    )


@given(st.integers(1, 10**30), st.integers(1, 10**30))
def test_half_of_the_bytes_is_exact_at_any_size(tombstone_bytes: int, total: int) -> None:
    assert is_dense(Block(1, tombstone_bytes, 2 * tombstone_bytes), USUAL)
    assert not is_dense(Block(1, tombstone_bytes, 2 * tombstone_bytes + 1), USUAL)
    assert is_dense(Block(1, min(tombstone_bytes, total), total), USUAL) == (2 * min(tombstone_bytes, total) >= total)


@given(full_files, limits)
def test_whatever_a_file_holds_it_is_left_alone_where_compaction_is_switched_off(
    file: FileStatistics, thresholds: FileThresholds
) -> None:
    off = replace(thresholds, eligible_share=Fraction(0))
    assert reason(file, off) is (CandidateReason.PENDING if file.pending else CandidateReason.SWITCHED_OFF)


@given(st.lists(plain_files, max_size=12, unique_by=lambda file: file.file), limits)
def test_blocks_alone_are_judged_by_nothing_but_blocks(files: list[FileStatistics], thresholds: FileThresholds) -> None:
    bare = replace(thresholds, run_warn=0, run_fail=0, overlap_share=Fraction(0))
    assert planned(*files, thresholds=thresholds) == planned(*files, thresholds=bare)


@given(full_lists, plain_files, limits)
def test_a_file_with_only_block_statistics_is_not_affected_by_statistics_of_other_files(
    files: list[FileStatistics], plain: FileStatistics, thresholds: FileThresholds
) -> None:
    plain = replace(plain, file="z")
    (alone,) = planned(plain, thresholds=thresholds)
    among = next(each for each in planned(*files, plain, thresholds=thresholds) if each.file == "z")
    assert replace(among, rank=None) == replace(alone, rank=None)


def test_the_ratio_of_no_blocks_is_zero() -> None:
    assert Density(0, 0).ratio == 0
    assert Density(1, 3).ratio == Fraction(1, 3)


class TestReads:
    THIN = (Block(1, 10, 4096),)

    def test_a_file_with_no_other_reason_is_ordered_last_whatever_its_share(self) -> None:
        met = of(1, 21, "met", read_tombstones=1_000)
        run = FileStatistics("run", [CLEAN], longest_run=1_000)
        assert [(each.file, each.reason, each.rank) for each in planned(met, run)] == [
            ("run", CandidateReason.LONG_RUN, 1),
            ("met", CandidateReason.READ, 2),
        ]

    def test_reads_count_from_the_threshold_on_and_only_where_there_is_a_tombstone(self) -> None:
        assert reason(FileStatistics("a", self.THIN, read_tombstones=1_000)) is CandidateReason.READ
        assert reason(FileStatistics("a", self.THIN, read_tombstones=999)) is CandidateReason.BELOW_THRESHOLD
        assert reason(FileStatistics("a", [CLEAN], read_tombstones=5_000)) is CandidateReason.BELOW_THRESHOLD

    def test_zero_switches_it_off_and_a_dense_file_is_dense(self) -> None:
        off = replace(USUAL, read_tombstones=0)
        assert reason(FileStatistics("a", self.THIN, read_tombstones=9_999), off) is CandidateReason.BELOW_THRESHOLD
        assert reason(of(1, 1, read_tombstones=9_999)) is CandidateReason.DENSE
