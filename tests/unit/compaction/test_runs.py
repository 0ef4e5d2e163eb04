"""Runs of dead cells, measured in pieces."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.compaction.runs import PartitionRun, Piece, Reads, dead, joined, live, reads_over, worst
from sweep_tasks.compaction.thresholds import Thresholds

cells = st.lists(st.booleans(), max_size=30)
runs = st.lists(st.builds(PartitionRun, st.integers(-9, 9), st.integers(0, 9)))


def piece(those_dead: list[bool]) -> Piece:
    return joined(dead() if each else live() for each in those_dead)


def test_a_run_goes_on_from_one_piece_into_the_next() -> None:
    assert joined([live(3), dead(400), dead(300), dead(299), live()]).longest == 999
    assert joined([live(3), dead(400), live(), dead(300), dead(299), live()]).longest == 599


def test_a_partition_without_cells_has_no_run() -> None:
    assert joined([]) == joined([dead(0), live(0)]) == Piece()


@given(cells)
def test_the_longest_run_is_that_of_the_cells_in_a_row(those_dead: list[bool]) -> None:
    in_a_row = [len(list(same)) for is_dead, same in groupby(those_dead) if is_dead]
    assert piece(those_dead).longest == max(in_a_row, default=0)


@given(cells, cells, cells)
def test_it_makes_no_difference_where_a_partition_is_cut(a: list[bool], b: list[bool], c: list[bool]) -> None:
    whole = piece(a + b + c)
    assert piece(a).then(piece(b)).then(piece(c)) == whole
    assert piece(a).then(piece(b).then(piece(c))) == whole


@given(runs, st.integers(0, 12))
def test_the_worst_partitions_come_first_and_ties_go_by_token(partitions: list[PartitionRun], most: int) -> None:
    in_order = sorted(partitions, key=lambda each: (-each.longest, each.token))
    assert worst(iter(partitions), most) == in_order[:most]


def test_a_server_that_never_warns_may_still_fail() -> None:
    thresholds = replace(Thresholds(), run_warn=0)
    assert [reads_over(longest, thresholds) for longest in (0, 99_999, 100_000)] == [
        Reads.FINE, Reads.FINE, Reads.FAILING,
    ]  # fmt: skip
    assert reads_over(0, Thresholds()) is Reads.FINE
