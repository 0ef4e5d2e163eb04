"""Runs of dead cells: the longest of a file, and their sums over the files of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.sstables.statistics import (
    FileThresholds,
    HeldRun,
    Longest,
    PartitionRun,
    PartitionRuns,
    Reads,
    reads_over,
)

runs = st.lists(st.builds(PartitionRun, st.integers(1, 9), st.integers(-9, 9), st.integers(0, 9)))
of_files = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5), st.integers(1, 50)), max_size=30)


@given(runs, st.integers(1, 12))
def test_the_longest_runs_of_a_file_are_kept_longest_first(given_runs: list[PartitionRun], most: int) -> None:
    longest = Longest(most)
    for run in given_runs:
        longest.add(run)
    in_order = sorted(given_runs, key=lambda run: (-run.longest, run.token, -run.last_deleted_s))
    assert longest.found() == in_order[:most]


@given(of_files)
def test_a_partition_has_the_runs_of_all_its_files_in_any_order(
    reported: list[tuple[str, int, int]],
) -> None:
    whole = PartitionRuns()
    for file, token, longest in reported:
        whole.add(file, [HeldRun(token, longest, longest - 1)])
    by_token: Counter[int] = Counter()
    for _, token, longest in reported:
        by_token[token] += longest
    assert {each.token: each.longest for each in whole.found()} == dict(by_token)
    for each in whole.found():
        of_it = [(longest, file) for file, token, longest in reported if token == each.token]
        assert (each.held, each.files) == (each.longest - len(of_it), len(of_it))
        assert each.longest_of_file == max(of_it)[0]
        assert (each.longest_of_file, each.file) in of_it


def test_of_too_many_partitions_the_shortest_are_forgotten() -> None:
    whole = PartitionRuns(most=10)
    whole.add("a", [HeldRun(token, token, 0) for token in range(1, 12)])
    assert {each.token for each in whole.found()} == {7, 8, 9, 10, 11}
    whole.add("b", [HeldRun(11, 5, 0)])
    assert max(each.longest for each in whole.found()) == 16


def test_a_server_that_never_warns_may_still_fail() -> None:
    thresholds = replace(FileThresholds(), run_warn=0)
    assert [reads_over(longest, thresholds) for longest in (0, 99_999, 100_000)] == [
        Reads.FINE, Reads.FINE, Reads.FAILING,
    ]  # fmt: skip
    assert reads_over(0, FileThresholds()) is Reads.FINE
