"""What measured files come to."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.compaction.node_files import WORST, FileCounts
from sweep_tasks.sstables.statistics import FileThresholds, ThresholdsByTable
from sweep_tasks.sstables.tombstones import FileSummary


@pytest.fixture
def summary() -> FileCounts:
    created = FileCounts("one", 1_000, ThresholdsByTable(FileThresholds(), {}), Fraction(1, 2))
    for table in ("ks.t", "ks.u"):
        created.table(table, 60)
    return created


def file_summary(table: str = "ks.t", **more: Any) -> FileSummary:
    reported = {"file": "f", "table": table, "bytes": 10, "droppable": 1, "waiting": 0, "droppable_from_s": None}
    return FileSummary(**{**reported, "runs": [], **more})


def test_counts_add_up_by_table_and_in_all(summary: FileCounts) -> None:
    for each in (
        file_summary(),
        file_summary(waiting=4, droppable_from_s=70),
        file_summary("ks.u", waiting=5, droppable_from_s=60),
    ):
        summary.add(each)
    found = summary.measurement(Path("/lines"))
    assert (found.files, found.bytes, found.droppable, found.waiting) == (3, 30, 3, 9)
    assert (found.droppable_from_s, found.statistics, found.longest_runs) == (70, "/lines", ())
    assert found.tables["ks.u"].document() == {
        "files": 1, "bytes": 10, "droppable": 1, "waiting": 5, "droppable_from_s": 60, "gc_grace_s": 60
    }  # fmt: skip


def test_files_left_out_are_named_by_kind(summary: FileCounts) -> None:
    summary.leave_out("gone", "a is gone", "/a", None)
    summary.leave_out("unreadable", "b is damaged", "/b", "incomplete")
    found = summary.measurement(Path("/lines"))
    assert (found.gone, found.unreadable, found.files) == (("a is gone",), ("b is damaged",), 0)
    assert [each.document() for each in found.left_out] == [
        {"kind": "gone", "file": "/a", "reason": None}, {"kind": "unreadable", "file": "/b", "reason": "incomplete"}
    ]  # fmt: skip


def test_of_runs_that_fail_no_read_only_the_longest_are_reported_longest_first(summary: FileCounts) -> None:
    for length in (*range(1_000, 1_000 + 2 * WORST), 999):
        summary.add(file_summary(runs=[(length, length, 0)]))
    found = [each.longest_run for each in summary.measurement(Path("/lines")).longest_runs]
    assert found == list(range(999 + 2 * WORST, 999 + WORST, -1))


@pytest.mark.parametrize(
    ("run", "held", "near"), [(50_000, 50_000, True), (49_999, 49_999, False), (90_000, 49_999, False)]
)
def test_a_run_is_near_failing_as_far_as_gc_grace_holds_it(
    summary: FileCounts, run: int, held: int, near: bool
) -> None:
    summary.add(file_summary(runs=[(7, run, held)]))
    found = summary.measurement(Path("/lines"))
    assert (found.longest_runs[0].near_failing, found.near_failing) == (near, int(near))


def test_ten_files_each_of_them_harmless_may_fail_a_read_together(summary: FileCounts) -> None:
    for number in range(10):
        summary.add(file_summary(file=f"f{number}", runs=[(7, 15_000, 15_000), (100 + number, 900, 900)]))
    summary.add(file_summary("ks.u", runs=[(7, 15_000, 15_000)]))
    (found, *_) = runs = summary.measurement(Path("/lines")).longest_runs
    assert (found.table, found.token, found.longest_run, found.files) == ("ks.t", 7, 150_000, 10)
    assert (found.reads, found.near_failing) == ("failing", True)
    assert [each.table for each in runs[1:]] == ["ks.u"], "another table's partition of that token is another one"


def test_runs_nearest_to_failing_are_first_even_if_others_are_longer() -> None:
    own = replace(FileThresholds(), run_fail=2_000)
    summary = FileCounts("one", 1_000, ThresholdsByTable(FileThresholds(), {"ks.u": own}), Fraction(1, 2))
    for table in ("ks.t", "ks.u"):
        summary.table(table, 60)
    for token in range(3 * WORST):
        summary.add(file_summary(runs=[(token, 40_000, 40_000)]))
        summary.add(file_summary(runs=[(-token - 1, 90_000, 0)]))
    summary.add(file_summary("ks.u", runs=[(5, 1_500, 1_500)]))
    found = summary.measurement(Path("/lines"))
    (near,) = [each for each in found.longest_runs if each.near_failing]
    assert near == found.longest_runs[0]
    assert (near.table, near.fails_at, found.near_failing) == ("ks.u", 2_000, 1)


def test_where_a_server_never_fails_nothing_is_near_it() -> None:
    summary = FileCounts("one", 1_000, ThresholdsByTable(replace(FileThresholds(), run_fail=0), {}), Fraction(1, 2))
    summary.table("ks.t", 60)
    summary.add(file_summary(runs=[(7, 200_000, 200_000)]))
    assert not summary.measurement(Path("/lines")).longest_runs[0].near_failing
