"""The state of a node that a plan is based on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep_tasks.compaction.execution import NodeState, inspect_and_plan
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.errors import BadValue
from sweep_tasks.sstables.statistics import thresholds_in
from tests.unit.compaction.scripted_node import REPAIRING, TABLE, ScriptedNode, interval


@pytest.fixture
def node(tmp_path: Path) -> ScriptedNode:
    node = ScriptedNode(tmp_path)
    node.file(1, 40, covers=[interval(0, 5)])
    return node


def look(node: ScriptedNode) -> NodeState:
    return inspect_and_plan(node.order, thresholds_in(node.settings), 10**9)


def blockers(found: NodeState) -> list[Blocker]:
    return [each.by.blocker for each in found.plan.blocked]


def test_an_unmeasured_node_must_be_measured_first(node: ScriptedNode) -> None:
    with pytest.raises(BadValue) as refused:
        look(node)
    assert refused.value.field == "statistics"
    assert str(node.order.statistics) in str(refused.value)


def test_measurements_of_a_replaced_file_do_not_count(node: ScriptedNode) -> None:
    node.measured()
    os.utime(node.files / "nb-1-big-Data.db", ns=(5, 5))
    assert blockers(look(node)) == [Blocker.NOT_MEASURED]


def test_a_file_written_later_may_keep_tombstones_because_its_content_is_unknown(node: ScriptedNode) -> None:
    node.measured()
    node.file(2, 0, written=50, key=b"another")
    (compaction,) = look(node).plan.compactions
    assert [Path(file).name for file in compaction.files] == ["nb-1-big-Data.db", "nb-2-big-Data.db"]
    node.measured()
    (compaction,) = look(node).plan.compactions
    assert len(compaction.files) == 1, "it is known by now to hold another partition"


def test_a_table_that_the_server_is_about_to_compact_is_left_to_it(node: ScriptedNode) -> None:
    node.measured()
    node.work(f"pending tasks 1\n- {TABLE}: 1\n")
    found = look(node)
    assert [each.reason for each in found.verdicts] == [CandidateReason.PENDING]
    assert (found.plan.compactions, blockers(found)) == ((), [Blocker.SERVER_BUSY])


def test_while_a_repair_runs_nothing_is_planned(node: ScriptedNode) -> None:
    node.measured()
    node.repairs(REPAIRING)
    found = look(node)
    assert (found.plan.compactions, blockers(found)) == ((), [Blocker.REPAIR])
