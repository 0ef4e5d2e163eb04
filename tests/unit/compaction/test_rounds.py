"""A round where the server is busy, or something fails half-way."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.compaction import execution
from sweep_tasks.compaction.documents import RoundPlan, RoundResult
from sweep_tasks.compaction.execution import inspect_and_plan
from sweep_tasks.compaction.rounds import compact, compact_planned_files, plan_files, tables_to_recheck
from sweep_tasks.config import Settings
from sweep_tasks.errors import NodeUnreachable
from sweep_tasks.sstables.statistics import thresholds_in
from tests.unit.compaction.scripted_node import BUSY, HASTY, IDLE, REPAIRING, ScriptedNode, interval

MUCH = 10**9


@pytest.fixture
def node(tmp_path: Path) -> ScriptedNode:
    """With two files that are compacted apart from each other, as they have no partition in common."""
    node = ScriptedNode(tmp_path)
    first = node.file(1, 40, covers=[interval(0, 5)], key=b"one")
    second = node.file(2, 30, covers=[interval(5, 9)], key=b"two")
    node.file(3, 0, covers=[interval(0, 5)], key=b"one", created=True)
    node.file(4, 0, covers=[interval(5, 9)], key=b"two", created=True)
    node.compactions(node.replaces([first], "nb-3-"), node.replaces([second], "nb-4-"))
    return node


def planned(node: ScriptedNode, budget: int = MUCH, settings: Settings | None = None) -> RoundPlan:
    return plan_files(node.measured(), settings or node.settings, budget)


def carried_out(node: ScriptedNode, plan: RoundPlan, budget: int = MUCH, **settings: Any) -> RoundResult:
    return compact_planned_files(node.order, node.with_settings(**settings), budget, plan, HASTY)


def outcomes(done: RoundResult) -> list[str]:
    return [each.outcome for each in done.compactions]


def blockers(document: RoundPlan | RoundResult) -> list[str]:
    return [each.blocker for each in document.blocked]


def test_one_after_the_other_is_compacted(node: ScriptedNode) -> None:
    done = carried_out(node, planned(node))
    assert (outcomes(done), [each.dropped for each in done.compactions]) == (["done", "done"], [40, 30])
    assert (done.stopped, done.blocked) == (None, ())


class TestABusyServer:
    def test_a_busy_server_is_reported_in_the_plan_and_checked_again(self, node: ScriptedNode) -> None:
        node.work(BUSY)
        plan = planned(node)
        assert (plan.compactions, blockers(plan)) == ((), ["server_busy"] * 2)
        node.work(IDLE)
        assert tables_to_recheck(plan, MUCH) == ["ks.t"]
        assert outcomes(carried_out(node, plan)) == ["done", "done"]

    def test_that_was_about_to_compact_the_table_itself_may_have_left_it_as_it_was(self, node: ScriptedNode) -> None:
        node.work("pending tasks 1\n- ks.t: 1\n")
        plan = planned(node)
        assert (plan.compactions, blockers(plan)) == ((), ["server_busy"] * 2)
        assert sum(each.tombstones for each in plan.blocked) == 70
        node.work(IDLE)
        assert tables_to_recheck(plan, MUCH) == ["ks.t"]
        assert outcomes(carried_out(node, plan)) == ["done", "done"]

    def test_that_is_about_to_compact_a_table_is_waited_for_though_no_block_of_it_is_dense(
        self, node: ScriptedNode
    ) -> None:
        settings = node.with_settings(compaction_dense_tombstones=0, compaction_dense_share=0, compaction_run_warn=20)
        node.work("pending tasks 1\n- ks.t: 1\n")
        plan = planned(node, settings=settings)
        assert [each.reason for each in plan.blocked] == ["long_run"] * 2
        assert tables_to_recheck(plan, MUCH) == ["ks.t"]

    def test_that_is_about_to_compact_a_table_which_is_switched_off_is_not_waited_for(self, node: ScriptedNode) -> None:
        node.work("pending tasks 1\n- ks.t: 1\n")
        plan = planned(node, settings=node.with_settings(compaction_eligible_share=Decimal(0)))
        assert (plan.blocked, tables_to_recheck(plan, MUCH)) == ((), [])

    def test_a_busy_server_is_reported_by_a_dry_run(self, node: ScriptedNode) -> None:
        node.work(BUSY)
        done = compact(node.settings, "one", planned(node), dry_run=True)
        assert (done.stopped, done.compactions, blockers(done)) == ("server_busy", (), ["server_busy"] * 2)

    def test_is_waited_for(self, node: ScriptedNode, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sweep_tasks.compaction.nodetool.CHECK_AGAIN_S", 0.01)
        plan = planned(node)
        node.work(BUSY, IDLE, BUSY, BUSY, IDLE)  # once before the flush, and again after it
        assert outcomes(carried_out(node, plan, compaction_wait_s=30)) == ["done", "done"]

    def test_that_stays_so_is_left_alone_and_nothing_is_flushed(self, node: ScriptedNode) -> None:
        plan = planned(node)
        node.work(BUSY)
        done = carried_out(node, plan)
        assert (done.stopped, blockers(done)) == ("server_busy", ["server_busy"] * 2)
        assert not {"flush", "compact"} & set(node.asked)

    def test_a_server_that_becomes_busy_ends_the_round_with_a_report(self, node: ScriptedNode) -> None:
        plan = planned(node)
        node.work(IDLE, IDLE, BUSY)  # before the flush, at the last look, between the two
        done = carried_out(node, plan)
        assert (outcomes(done), done.stopped, blockers(done)) == (["done"], "server_busy", ["server_busy"])

    def test_a_repair_that_begins_in_the_middle_ends_it_too(self, node: ScriptedNode) -> None:
        plan = planned(node)
        none = "no sessions\n"
        node.repairs(none, none, REPAIRING)
        done = carried_out(node, plan)
        assert (outcomes(done), done.stopped, blockers(done)) == (["done"], "repair", ["repair"])


def test_a_failure_is_reported_with_what_was_done_before_and_ends_the_round(node: ScriptedNode) -> None:
    first = node.files / "nb-1-big-Data.db"
    node.file(7, 20, covers=[interval(12, 15)], key=b"three")
    node.compactions(node.replaces([first], "nb-3-"), [{"fail": "no room on the disk"}])
    done = carried_out(node, planned(node))
    assert (outcomes(done), done.stopped, blockers(done)) == (["done", "failed"], "failed", ["failed"])
    assert "no room on the disk" in (done.compactions[1].problem or "")
    assert done.compactions[1].dropped == 0


class TestAFailingCompaction:
    def failing(self, node: ScriptedNode) -> None:
        second = node.files / "nb-2-big-Data.db"
        node.compactions([{"fail": "a file is damaged"}], node.replaces([second], "nb-4-"))

    def test_a_failing_table_does_not_delay_the_others_in_the_next_run(self, node: ScriptedNode) -> None:
        self.failing(node)
        assert outcomes(carried_out(node, planned(node))) == ["failed"]
        plan = planned(node)
        assert blockers(plan) == ["declined"]
        assert outcomes(carried_out(node, plan)) == ["done"]

    def test_is_asked_again_when_the_files_around_it_have_changed(self, node: ScriptedNode) -> None:
        self.failing(node)
        carried_out(node, planned(node))
        node.file(9, 0, written=50, key=b"one")
        assert blockers(planned(node)) == []

    def test_is_not_remembered_where_the_node_was_not_reached(self, node: ScriptedNode) -> None:
        plan = planned(node)
        gone = replace(node.node, nodetool_command=("/no/such/nodetool",))
        look = inspect_and_plan(node.order, thresholds_in(node.settings), MUCH)
        with pytest.raises(NodeUnreachable):
            execution.compact_files(
                replace(node.order, node=gone), look.plan.compactions[0], look.tables["ks.t"], HASTY
            )
        assert len(plan.compactions) == len(planned(node).compactions) == 2


class TestTheBudget:
    def test_of_the_run_counts_in_the_plan(self, node: ScriptedNode) -> None:
        assert blockers(planned(node, 100)) == ["too_large"] * 2
        assert len(planned(node, MUCH).compactions) == 2

    def test_a_budget_larger_than_that_of_the_plan_compacts_more(self, node: ScriptedNode) -> None:
        plan = planned(node, 100)
        assert tables_to_recheck(plan, 100) == []
        assert tables_to_recheck(plan, MUCH) == ["ks.t"]
        assert outcomes(carried_out(node, plan, MUCH)) == ["done", "done"]

    def test_a_smaller_budget_limits_a_dry_run_and_is_reported(self, node: ScriptedNode) -> None:
        plan = planned(node)
        size = plan.compactions[0].bytes
        done = compact(node.settings, "one", plan, size, dry_run=True)
        assert (outcomes(done), blockers(done)) == (["planned"], ["budget"])
        assert done.compactions[0].points_expected == 41


def test_a_table_that_is_switched_off_by_the_name_of_the_store_is_left_alone(node: ScriptedNode) -> None:
    settings = Settings(
        cache_folder=node.settings.cache_folder,
        compaction_dense_tombstones=5,
        compaction_tables={"shop.orders": {"eligible_share": 0}},  # type: ignore[dict-item]
    )
    plan = planned(node, settings=settings)
    assert (plan.compactions, plan.blocked, plan.files) == ((), (), ())
