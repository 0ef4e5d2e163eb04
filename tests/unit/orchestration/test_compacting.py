"""The messages of the DAG if there is nothing to compact, and if reads are about to fail."""

from __future__ import annotations

from typing import Any, cast

import pytest
from airflow.sdk.exceptions import ParamValidationError

from sweep_tasks.compaction.documents import Measurement
from sweep_tasks.compaction.nodetool import ServerActivity, Work
from sweep_tasks.compaction.reports import server_state
from sweep_tasks.config import Settings
from sweep_tasks.errors import NeedsAttention
from sweep_tasks.orchestration.compacting import (
    SHOW_RANGES,
    CheckReads,
    CompactNode,
    PlanNode,
    PrepareCompaction,
    about_failed,
    about_unread,
    compaction_form,
    left_by_sweeps,
    measured_by_spark,
    measured_line,
    nothing_to_compact,
    task_of,
)
from tests.support.errors import having
from tests.support.lines import values_in, words_in

NODES = {"one": {"data": "/var/lib/cassandra/data"}, "10.0.0.2": {"data": "/var/lib/cassandra/data"}}
CASSANDRA = "cassandra://nowhere:9042/shop"
RUN = {
    "table": "shop.orders", "token": -42, "longest_run": 59_800, "held": 59_800, "files": 1, "file": "f",
    "reads": "warned", "fails_at": 100_000, "near_failing": True,
}  # fmt: skip


class Instance:
    """The part of a task instance that the check uses."""

    def __init__(self, reports: dict[str, Any]) -> None:
        self._reports = reports

    def xcom_pull(self, task_ids: list[str]) -> list[Any]:
        return [self._reports.get(task) for task in task_ids]


class Plan:
    """The part of a task instance that a compaction uses: the results of the steps before it."""

    def __init__(self, planned: dict[str, Any]) -> None:
        self._planned = planned

    def xcom_pull(self, task_ids: str) -> dict[str, Any]:
        assert task_ids == task_of("one", "plan")
        return self._planned


def check(reports: dict[str, Any]) -> None:
    CheckReads(task_id="check", nodes=list(NODES)).execute(cast(Any, {"ti": Instance(reports)}))


def measured(**found: Any) -> dict[str, Any]:
    return {"node": "one", "at_s": 7, **found}


def report(node: str, *near: dict[str, Any]) -> dict[str, Any]:
    return {task_of(node, "report"): {"node": node, "near_failing": list(near), "failed": []}}


@pytest.mark.parametrize(("store", "kind"), [("sqlite:////nowhere/at/all.db", "sqlite"), ("memory:", "memory")])
def test_a_store_without_tombstones_says_so_and_nothing_else_is_done(
    monkeypatch: pytest.MonkeyPatch, store: str, kind: str
) -> None:
    output = nothing_to_compact(Settings(store=store, compaction_nodes=NODES))  # type: ignore[arg-type]
    assert output is not None
    assert output.code == "no_tombstones"
    assert kind in words_in(output.sentence)
    monkeypatch.setenv("SWEEPFLOW_STORE", store)
    prepare = PrepareCompaction(task_id="prepare", nodes=list(NODES))
    assert prepare.choose_branch(cast(Any, {"triggering_asset_events": {}})) == []


def test_where_no_node_is_named_the_counts_of_the_sweeps_are_pointed_to() -> None:
    output = nothing_to_compact(Settings(store=CASSANDRA))
    assert output is not None
    assert output.code == "no_nodes"
    assert all(name in output.sentence for name in ("compaction_nodes", SHOW_RANGES))
    assert nothing_to_compact(Settings(store=CASSANDRA, compaction_nodes=NODES)) is None  # type: ignore[arg-type]


def test_a_store_that_cannot_be_asked_what_sweeps_have_left_is_no_failure_of_a_run_without_nodes() -> None:
    (output,) = left_by_sweeps(Settings(store="cassandra://127.0.0.1:1/shop", cassandra_timeout_s=0.5))
    assert output.code == "unavailable"
    assert left_by_sweeps(Settings(store="memory:")) == []


def test_while_no_read_is_near_failing_the_check_is_green_though_a_node_was_not_reached() -> None:
    check(report("one"))
    check({})


def test_a_partition_near_failing_is_named_with_node_table_and_number() -> None:
    with pytest.raises(NeedsAttention, check=having(reason="reads_near_failing")) as error:
        check(report("one") | report("10.0.0.2", RUN, RUN | {"token": 7}))
    assert values_in(str(error.value))[:3] == ["10.0.0.2", "-42", "59800"]
    assert "shop.orders" in str(error.value)
    assert error.value.about == tuple(f"node 10.0.0.2, table shop.orders, token {token}" for token in (-42, 7))


def test_a_round_that_did_not_get_to_its_report_is_judged_by_its_last_measurement() -> None:
    near, fine = measured(longest_runs=[RUN]), measured(longest_runs=[RUN | {"near_failing": False}])
    for found in (
        {task_of("one", "measure"): near},
        {task_of("one", "measure"): fine, task_of("one", "measure_again"): near},
    ):
        with pytest.raises(NeedsAttention, check=having(reason="reads_near_failing")) as error:
            check(found)
        assert error.value.about == ("node one, table shop.orders, token -42",)
        assert {"one", "shop.orders"} <= set(words_in(str(error.value)))
    check({task_of("one", "measure"): near, task_of("one", "measure_again"): fine})
    check({task_of("one", "measure"): near} | report("one"))


def test_a_failed_compaction_is_reported_although_the_round_continued() -> None:
    reported = report("one")
    reported[task_of("one", "report")]["failed"] = ["node: nodetool compact failed: no room"]
    with pytest.raises(NeedsAttention, check=having(reason="compaction_failed")) as error:
        check(reported)
    assert str(error.value).endswith("node: nodetool compact failed: no room")
    assert "one" in words_in(str(error.value))
    assert error.value.about == (about_failed("one"),)


class TestFilesThatCouldNotBeRead:
    PROBLEM = "file: nb-7-big-Data.db: exit code 127"

    def test_unreadable_files_do_not_count_as_files_without_tombstones(self) -> None:
        reported = report("one")
        reported[task_of("one", "report")]["unreadable"] = [self.PROBLEM, "file: b"]
        with pytest.raises(NeedsAttention, check=having(reason="files_unreadable")) as error:
            check(reported)
        assert "one" in words_in(str(error.value))
        assert values_in(str(error.value)) == ["2", "nb-7-big-Data.db", "127"]
        assert all(name in str(error.value) for name in (self.PROBLEM, "compaction_nodes"))
        assert error.value.about == (about_unread("one"),)

    def test_count_though_the_round_did_not_get_to_its_report(self) -> None:
        with pytest.raises(NeedsAttention, check=having(reason="files_unreadable")) as error:
            check({task_of("one", "measure"): measured(unreadable=[self.PROBLEM])})
        assert error.value.about == (about_unread("one"),)
        assert self.PROBLEM in str(error.value)
        assert "one" in words_in(str(error.value))

    def test_unreadable_files_are_reported_beside_worse_problems(self) -> None:
        reported = report("one", RUN)
        reported[task_of("one", "report")]["unreadable"] = [self.PROBLEM]
        with pytest.raises(NeedsAttention, check=having(reason="reads_near_failing")) as error:
            check(reported)
        assert error.value.about == ("node one, table shop.orders, token -42", about_unread("one"))
        near, unread = str(error.value).split(" | ")
        assert "-42" in near
        assert self.PROBLEM in unread

    def test_are_counted_in_the_log(self) -> None:
        found = Measurement(node="one", at_s=7, files=3, bytes=4, droppable=5, waiting=6)
        output = measured_line(found.model_copy(update={"unreadable": ("a", "b"), "gone": ("c",)}))
        assert values_in(output) == ["3", "4", "5", "6", "2", "1"]
        assert values_in(measured_line(found)) == ["3", "4", "5", "6"]


def test_a_node_is_measured_by_spark_where_its_files_can_be_read_directly() -> None:
    there = {"data": "/d", "prefix": "ssh there", "remote_shell": True}
    described = {"here": {"data": "/d"}, "there": there, "nowhere": {"data": []}}
    nodes = Settings(compaction_nodes=described).compaction_nodes  # type: ignore[arg-type]
    assert {name: measured_by_spark(node) for name, node in nodes.items()} == {
        "here": True, "there": False, "nowhere": False,
    }  # fmt: skip


class TestBytesAtMost:
    """As the form asks for them, and as the setting allows."""

    MOST = 1_000

    @pytest.mark.parametrize("asked", [0, 1, MOST])
    def test_the_form_takes_what_the_setting_allows(self, asked: int) -> None:
        assert compaction_form(self.MOST)["budget_bytes"].resolve(asked) == asked

    @pytest.mark.parametrize(("asked", "validator"), [(MOST + 1, "maximum"), (-1, "minimum")])
    def test_the_form_takes_no_more(self, asked: int, validator: str) -> None:
        with pytest.raises(ParamValidationError) as refused:
            compaction_form(self.MOST)["budget_bytes"].resolve(asked)
        assert refused.value.args[0].validator == validator

    @pytest.mark.parametrize(("asked", "taken"), [(0, MOST), (1, 1), (MOST, MOST), (MOST + 1, MOST), (10**30, MOST)])
    def test_a_run_takes_no_more_whatever_its_form_was(self, asked: int, taken: int) -> None:
        """The setting may be lower than it was when the form was checked."""
        settings = Settings(compaction_budget_bytes=self.MOST)
        for step in (PlanNode(task_id="plan", node="one"), CompactNode(task_id="compact", node="one")):
            assert step.budget(settings, cast(Any, {"params": {"budget_bytes": asked}})) == taken

    def test_a_run_takes_no_more_if_its_plan_requests_more(self) -> None:
        """A user who may edit the DAG may change what one task passes to the next."""
        work = {"files": ["a"], "table": "shop.orders", "candidate": "a", "bytes": 600, "reason": "dense"}
        work |= {"rank": 1, "tombstones": 9, "points": 0, "flush": False}
        planned = {
            "node": "one",
            "at_s": 7,
            "budget_bytes": 10**9,
            "compactions": [work, work | {"candidate": "b"}],
            "blocked": [],
        }
        planned |= {"server": server_state(ServerActivity(Work(), repairing=False)).document()}
        step = CompactNode(task_id="compact", node="one")
        context = {"ti": Plan(planned), "params": {"budget_bytes": 0, "dry_run": True}}
        done = step.step(Settings(compaction_budget_bytes=self.MOST), cast(Any, context))
        assert (len(done.compactions), [each.blocker for each in done.blocked]) == (1, ["budget"])


def test_a_problem_keeps_its_key_while_the_run_of_dead_cells_grows() -> None:
    abouts = []
    for length in (59_800, 70_000):
        with pytest.raises(NeedsAttention, check=having(reason="reads_near_failing")) as error:
            check(report("one", RUN | {"longest_run": length}))
        abouts.append(error.value.about)
    assert abouts[0] == abouts[1]
