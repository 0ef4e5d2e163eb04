"""What measured files come to."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.compaction.summary import WORST, Summary
from sweep_tasks.compaction.thresholds import Thresholds, ThresholdsByTable


@pytest.fixture
def summary() -> Summary:
    made = Summary("one", 1_000, ThresholdsByTable(Thresholds(), {}), Fraction(1, 2))
    for table in ("ks.t", "ks.u"):
        made.table(table, 60)
    return made


def brief(table: str = "ks.t", **more: Any) -> dict[str, Any]:
    told = {"file": "f", "table": table, "bytes": 10, "droppable": 1, "waiting": 0, "droppable_from_s": None}
    return {**told, "longest_run": 0, "token": 7, **more}


def test_counts_add_up_by_table_and_in_all(summary: Summary) -> None:
    for each in (brief(), brief(waiting=4, droppable_from_s=70), brief("ks.u", waiting=5, droppable_from_s=60)):
        summary.add(each)
    found = summary.document(Path("/lines"))
    assert (found["files"], found["bytes"], found["droppable"], found["waiting"]) == (3, 30, 3, 9)
    assert (found["droppable_from_s"], found["statistics"], found["longest_runs"]) == (70, "/lines", [])
    assert found["tables"]["ks.u"] == {
        "files": 1, "bytes": 10, "droppable": 1, "waiting": 5, "droppable_from_s": 60, "gc_grace_s": 60
    }  # fmt: skip


def test_files_left_out_are_named_by_kind(summary: Summary) -> None:
    summary.leave_out("gone", "a is gone")
    found = summary.document(Path("/lines"))
    assert (found["gone"], found["unreadable"], found["files"]) == (["a is gone"], [], 0)


def test_only_the_worst_runs_are_kept_the_longest_first(summary: Summary) -> None:
    for length in (*range(1_000, 1_000 + 2 * WORST), 999):
        summary.add(brief(longest_run=length))
    found = [each["longest_run"] for each in summary.document(Path("/lines"))["longest_runs"]]
    assert found == list(range(999 + 2 * WORST, 999 + WORST, -1))


@pytest.mark.parametrize(
    ("run", "waiting", "near"), [(50_000, 50_000, True), (49_999, 90_000, False), (90_000, 49_999, False)]
)
def test_a_run_is_near_failing_as_far_as_gc_grace_holds_it(
    summary: Summary, run: int, waiting: int, near: bool
) -> None:
    summary.add(brief(longest_run=run, waiting=waiting))
    assert summary.document(Path("/lines"))["longest_runs"][0]["near_failing"] is near
