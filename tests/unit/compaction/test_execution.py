"""What becomes of a compaction, also where the server does something else meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.compaction.documents import CompactionOutcome
from sweep_tasks.compaction.execution import ExecutedCompaction, compact_files, inspect_and_plan
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.sstables.statistics import thresholds_in
from tests.unit.compaction.scripted_node import HASTY, NOW_S, ScriptedNode, interval


@pytest.fixture
def node(tmp_path: Path) -> ScriptedNode:
    return ScriptedNode(tmp_path)


@pytest.fixture
def files(node: ScriptedNode) -> list[Path]:
    """Values, and what deletes them."""
    return [
        node.file(1, 0, written=50, covers=[interval(0, 5)]),
        node.file(2, 40, written=100, covers=[interval(5, 9)]),
    ]


def done(node: ScriptedNode, now_s: int = NOW_S, change: bool = False) -> ExecutedCompaction:
    node.measured()
    order = node.order_at(now_s)
    look = inspect_and_plan(order, thresholds_in(node.settings), 10**9)
    (compaction,) = look.plan.compactions
    if change:
        Path(compaction.candidate).write_bytes(b"another one")
    return compact_files(order, compaction, look.tables[compaction.table], HASTY)


def blockers(node: ScriptedNode, now_s: int = NOW_S) -> list[Blocker]:
    node.measured()
    return [
        each.by.blocker
        for each in inspect_and_plan(node.order_at(now_s), thresholds_in(node.settings), 10**9).plan.blocked
    ]


def test_dropped_tombstones_are_those_missing_in_the_new_file(node: ScriptedNode, files: list[Path]) -> None:
    node.file(3, 3, written=100, covers=[interval(0, 9)], created=True)
    node.compactions(node.replaces(files, "nb-3-"))
    found = done(node)
    assert (found.outcome, found.dropped, [Path(name).name for name in found.made]) == (
        CompactionOutcome.DONE, 37, ["nb-3-big-Data.db"],
    )  # fmt: skip
    assert found.document().points_expected == 41 + 1


def test_a_concurrent_flush_is_not_counted(node: ScriptedNode, files: list[Path]) -> None:
    """It has tombstones of its own; counted in, they would make the compaction a fruitless one."""
    node.file(3, 0, covers=[interval(0, 9)], created=True)
    node.file(4, 500, written=200, covers=[interval(9, 12)], created=True)
    node.compactions(node.replaces(files, "nb-3-", "nb-4-"))
    found = done(node)
    assert (found.outcome, found.dropped, len(found.made)) == (CompactionOutcome.DONE, 40, 1)


def test_a_file_that_was_compacted_again_at_once_is_not_counted_as_dropped(
    node: ScriptedNode, files: list[Path]
) -> None:
    node.file(5, 540, written=200, covers=[interval(0, 12)], created=True)
    node.compactions(node.replaces(files, "nb-5-"))
    found = done(node)
    assert (found.outcome, found.dropped) == (CompactionOutcome.UNKNOWN, None)
    assert found.document().bytes_read > 0, "it was rewritten nevertheless"
    assert Blocker.FRUITLESS not in blockers(node)


def test_files_replaced_meanwhile_are_not_compacted(node: ScriptedNode, files: list[Path]) -> None:
    found = done(node, change=True)
    assert (found.outcome, found.dropped, found.document().bytes_read) == (CompactionOutcome.GONE, 0, 0)
    assert "compact" not in node.asked


def test_a_declined_compaction_is_not_requested_again_for_a_while(node: ScriptedNode, files: list[Path]) -> None:
    found = done(node)
    assert (found.outcome, found.dropped, found.document().bytes_read) == (CompactionOutcome.DECLINED, 0, 0)
    assert blockers(node) == [Blocker.DECLINED]
    assert blockers(node, NOW_S + 7 * 86_400) == [], "it may have been something that left no trace"
    node.file(6, 0, written=10, covers=[interval(20, 21)])
    assert blockers(node) == [], "an older file is there now, which is compacted together"


@pytest.mark.parametrize(
    ("left", "outcome"),
    [(37, CompactionOutcome.FRUITLESS), (36, CompactionOutcome.DONE), (40, CompactionOutcome.FRUITLESS)],
)
def test_a_compaction_that_drops_almost_nothing_is_fruitless_and_not_repeated(
    node: ScriptedNode, files: list[Path], left: int, outcome: CompactionOutcome
) -> None:
    node.file(3, left, written=100, covers=[interval(0, 9)], created=True)
    node.compactions(node.replaces(files, "nb-3-"))
    found = done(node)
    assert (found.outcome, found.dropped) == (outcome, 40 - left)
    assert blockers(node) == ([Blocker.FRUITLESS] if outcome is CompactionOutcome.FRUITLESS else [])


def test_an_uncertain_result_is_never_recorded_as_fruitless(node: ScriptedNode) -> None:
    """Files that came from another node cover nothing, and another one of those may have come meanwhile."""
    came = [node.file(1, 0, written=100), node.file(2, 40, written=100)]
    node.file(3, 40, written=100, created=True)
    node.compactions(node.replaces(came, "nb-3-"))
    assert done(node).outcome is CompactionOutcome.DONE
