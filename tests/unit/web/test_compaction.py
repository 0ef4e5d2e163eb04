"""Compaction reports by node, from documents as the steps of a round create them."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from fastapi import Request

from sweep_tasks.compaction import rounds, rules
from sweep_tasks.compaction.documents import Measurement, RoundPlan
from sweep_tasks.compaction.node_files import FileCounts
from sweep_tasks.compaction.nodetool import ServerActivity, Work
from sweep_tasks.compaction.reports import node_file_verdict, server_state
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.config import Settings
from sweep_tasks.orchestration.compacting import MEASURE, MEASURE_AGAIN, PLAN, REPORT
from sweep_tasks.sstables.statistics import Block, FileStatistics, FileThresholds, HeldRun, ThresholdsByTable
from sweep_tasks.sstables.tombstones import FileSummary
from sweep_tasks.web.compaction import NodeTombstones, by_node, parse_round
from sweep_tasks.web.rendering import rendered
from tests.support.html import Element

THRESHOLDS = ThresholdsByTable(FileThresholds(), {})


def measured(node: str, at_s: int, longest_run: int = 0, **droppable: int) -> dict[str, Any]:
    """As a measurement ends: one file of each table."""
    summary = FileCounts(node, at_s, THRESHOLDS, Fraction(1, 2))
    for name, number in droppable.items():
        summary.table(f"shop.{name}", 60)
        summary.add(
            FileSummary(
                file=f"{name}-Data.db",
                table=f"shop.{name}",
                bytes=99,
                droppable=number,
                waiting=max(2, longest_run),
                droppable_from_s=at_s,
                runs=(HeldRun(7, longest_run, longest_run),) if longest_run else (),
            )
        )
    return summary.measurement(Path("/statistics")).document()


def planned(node: str, dense: int, blocks: int) -> dict[str, Any]:
    """The verdict on a file of shop.orders in which this many blocks are dense."""
    dead, live = Block(500, 900, 1_000), Block(0, 0, 1_000)
    file = FileStatistics("orders-Data.db", [dead] * dense + [live] * (blocks - dense), "shop.orders")
    verdicts = [node_file_verdict(each).document() for each in rules.plan([file], THRESHOLDS)]
    created = {
        "node": node,
        "at_s": 15,
        "budget_bytes": 1_000,
        "server": server_state(ServerActivity(Work(), repairing=False)).document(),
    }
    return created | {"files": verdicts, "compactions": [], "blocked": []}


def round_on(node: str, longest_run: int = 0) -> dict[str, Any]:
    """Everything that a dry run on a node leaves behind, by step."""
    before, plan = measured(node, 10, orders=7), planned(node, 3, 4)
    done = rounds.compact(Settings(), node, RoundPlan.model_validate(plan), dry_run=True)
    after = measured(node, 20, longest_run, orders=1, carts=5)
    report = rounds.report(
        Measurement.model_validate(before), RoundPlan.model_validate(plan), done, Measurement.model_validate(after)
    )
    return {MEASURE: before, PLAN: plan, MEASURE_AGAIN: after, REPORT: report.document()}


def nodes(*rounds: dict[str, Any]) -> dict[str, NodeTombstones]:
    return by_node(parse_round(each) for each in rounds)


def shown(*rounds: dict[str, Any], **around: Any) -> Element:
    request = Request({"type": "http", "root_path": "/sweepflow", "path": "/sweepflow/compaction", "headers": []})
    values = {"run": None, "left_out": 0, "dag": "compaction", "airflow": ""} | around
    body = rendered(request, "compaction.html", values | {"nodes": nodes(*rounds)}).body
    return Element.of(bytes(body).decode())


def test_the_last_measurement_of_each_node_counts() -> None:
    rounds = [round_on("b"), {MEASURE: measured("a", 5)}]
    found = nodes(*rounds)
    assert list(found) == ["a", "b"]
    lines = [(line.table, line.droppable, line.waiting) for line in found["b"].tables]
    assert lines == [("shop.carts", 5, 2), ("shop.orders", 1, 2)]
    report = shown(*rounds).one("data-report", "b")
    assert report["data-dry-run"] == "true"
    assert report.all("data-dropped") == []
    assert [(each["data-kept"], each.text) for each in report.all("data-kept")] == [
        ("not_dense", "6"),
        ("gc_grace", "4"),
    ]


def test_the_density_of_a_table_on_a_node_is_read_from_the_plan() -> None:
    carts, orders = nodes(round_on("b"))["b"].tables
    assert (orders.dense_files, orders.densest) == (1, 0.75)
    assert (carts.dense_files, carts.densest) == (0, None)
    densest = [row.one("data-densest").text for row in shown(round_on("b")).all("data-table")]
    assert [re.findall(r"\d+", text) for text in densest] == [[], ["75"]]
    waiting = planned("b", 3, 4)
    waiting["files"][0]["reason"] = CandidateReason.PENDING.value
    (left_to_the_server,) = nodes({MEASURE: measured("b", 10, orders=7), PLAN: waiting})["b"].tables
    assert left_to_the_server.dense_files == 0
    (alone,) = nodes({MEASURE: measured("b", 10, orders=7)})["b"].tables
    assert (alone.dense_files, alone.densest) == (None, None), "there is no plan yet"


def test_reads_near_failing_are_shown_first_although_the_run_failed() -> None:
    fails_at = FileThresholds().run_fail
    page = shown(round_on("b", longest_run=fails_at - 1), run={"dag_run_id": "scheduled__1", "state": "failed"})
    assert page.one("id", "reported")["data-state"] == "failed"
    first, *_ = near = page.all("data-near-failing", "b")
    assert {(each["data-table"], each["data-token"]) for each in near} == {("shop.carts", "7"), ("shop.orders", "7")}
    assert page.inside.index(page.one("id", "near-failing")) < page.inside.index(page.one("role", "region"))
    assert str(fails_at - 1) in first.text
    without_a_report = round_on("b", longest_run=fails_at - 1)
    del without_a_report[REPORT]
    assert shown(without_a_report).all("data-near-failing") == near
    assert shown(round_on("b")).all("data-near-failing") == []


def test_tables_without_data_on_a_node_are_not_shown() -> None:
    empty = {"files": 0, "bytes": 0, "droppable": 0, "waiting": 0, "droppable_from_s": None, "gc_grace_s": 60}
    document = measured("b", 10, orders=7)
    document["tables"]["shop.leases"] = empty
    assert [line.table for line in nodes({MEASURE: document})["b"].tables] == ["shop.orders"]
    node = shown({MEASURE: document | {"tables": {"shop.leases": empty}}}).one("data-node", "b")
    assert [row["data-empty"] for row in node.all("data-empty")] == ["no_files"]


def test_unreadable_files_are_shown_instead_of_no_tombstones() -> None:
    nothing = measured("b", 10, orders=0) | {"unreadable": ["one-Data.db isn't <readable>", "another"]}
    unread = shown({MEASURE: nothing}).one("data-unread", "b")
    assert unread["data-files"] == "2"
    assert "one-Data.db isn't <readable>" in unread.text
    assert shown(round_on("b")).all("data-unread") == []


def test_nodes_that_are_not_shown_are_counted() -> None:
    run = {"dag_run_id": "scheduled__1", "state": "success"}
    assert shown(round_on("b"), run=run, left_out=3).one("data-left-out").text == "3"
    assert shown(round_on("b"), run=run).all("data-left-out") == []


def test_a_page_without_reports_states_it() -> None:
    assert nodes() == nodes({}) == {}
    assert shown().one("id", "not-reported").text
    assert shown(round_on("b")).all("id", "not-reported") == []


def test_a_document_that_is_not_valid_hides_no_other() -> None:
    changed = round_on("b") | {REPORT: ["something else"], PLAN: {"node": "b"}}
    found = nodes(changed)["b"]
    assert found.report is None
    assert [line.dense_files for line in found.tables] == [None, None]
    assert nodes({REPORT: "something else"}) == {}
