"""Tombstones by node and table, as the last compaction run measured them, and what became of them.

The tasks of a run leave their documents as XComs, which are read with the rights of the user. A failed run counts as
well: a run fails exactly when reads are about to fail, and then its reports matter most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from sweep_tasks.compaction.documents import Document, Measurement, RoundPlan, RoundReport, TableFigures
from sweep_tasks.compaction.reports import near_failing, near_failing_runs, unread
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.compacting import MEASURE, MEASURE_AGAIN, PLAN, REPORT
from sweep_tasks.orchestration.names import COMPACTION, airflow_path
from sweep_tasks.web.as_user import Airflow, AsUser, segment
from sweep_tasks.web.rendering import rendered
from sweep_tasks.web.runs import DagRun, dag_runs

router = APIRouter(prefix="/compaction", tags=["compaction"])

MOST_NODES = 20
_RUNS = 10
_PAGE = 100
_RESULT = "return_value"
_STEPS = (MEASURE, PLAN, MEASURE_AGAIN, REPORT)

D = TypeVar("D", bound=Document)


class TableLine(NamedTuple):
    """A table on a node."""

    table: str
    files: int
    bytes: int
    droppable: int
    waiting: int
    dense_files: int | None = None
    """None if there is no plan."""
    densest: float | None = None
    """The greatest share of dense blocks in a file."""


class NearFailing(NamedTuple):
    """A partition of which reads are about to fail."""

    table: str
    token: int
    sentence: str


class Unread(NamedTuple):
    """Files that could not be read."""

    files: int
    sentence: str


@dataclass(frozen=True, slots=True)
class NodeTombstones:
    """The last measurement on a node, and the report of the round if there is one."""

    at_s: int = -1
    tables: tuple[TableLine, ...] = ()
    """Those with the most tombstones first."""
    near_failing: tuple[NearFailing, ...] = ()
    unread: Unread | None = None
    report: RoundReport | None = None


class NodeRound(NamedTuple):
    """The documents of the steps on one node; None for a step without one."""

    measured: Measurement | None = None
    plan: RoundPlan | None = None
    measured_again: Measurement | None = None
    report: RoundReport | None = None


class ReportedRun(NamedTuple):
    """The run, the round on each of its nodes, and how many nodes are left out."""

    run: DagRun | None
    rounds: list[NodeRound]
    left_out: int = 0


@router.get("")
async def report(request: Request, airflow: Airflow) -> Response:
    found = await _last_reported(airflow)
    values = {
        "nodes": by_node(found.rounds),
        "run": found.run,
        "left_out": found.left_out,
        "dag": COMPACTION,
        "airflow": airflow_path(),
    }
    return rendered(request, "compaction.html", values)


# --- documents of the steps -------------------------------------------------------------------------------------------


def parse_round(results: Mapping[str, Any]) -> NodeRound:
    """Parse the results of the steps on a node, by the name of the step."""
    return NodeRound(
        _parse(Measurement, results.get(MEASURE)),
        _parse(RoundPlan, results.get(PLAN)),
        _parse(Measurement, results.get(MEASURE_AGAIN)),
        _parse(RoundReport, results.get(REPORT)),
    )


def _parse(model: type[D], result: Any) -> D | None:
    """Return None for a document that is not valid: a user who may edit the DAG can change an XCom, and the other nodes
    are shown all the same."""
    try:
        return None if result is None else model.model_validate(result)
    except ValidationError:
        return None


def by_node(rounds: Iterable[NodeRound]) -> dict[str, NodeTombstones]:
    """Return the last measurement and the report of each node.

    Partitions near failing and unreadable files come from the measurement: a run that failed early has no report.
    """
    nodes = {}
    for each in rounds:
        known = next((document for document in each if document is not None), None)
        if known is not None:
            nodes[known.node] = _tombstones(each)
    return dict(sorted(nodes.items()))


def _tombstones(found: NodeRound) -> NodeTombstones:
    measured = found.measured_again or found.measured
    if measured is None:
        return NodeTombstones(report=found.report)
    near = (NearFailing(each.table, each.token, near_failing(each)) for each in near_failing_runs(measured))
    return NodeTombstones(
        measured.at_s,
        _with_densities(_lines(measured.tables), found.plan),
        tuple(near),
        Unread(len(measured.unreadable), unread(measured.unreadable)) if measured.unreadable else None,
        found.report,
    )


def _lines(tables: Mapping[str, TableFigures]) -> tuple[TableLine, ...]:
    """Leave out tables that have nothing on the node: a store has many system tables that are mostly empty."""
    lines = [
        TableLine(name, each.files, each.bytes, each.droppable, each.waiting)
        for name, each in tables.items()
        if each.files or each.droppable or each.waiting
    ]
    return tuple(sorted(lines, key=lambda line: -(line.droppable + line.waiting)))


def _with_densities(lines: tuple[TableLine, ...], plan: RoundPlan | None) -> tuple[TableLine, ...]:
    """Add the share of dense blocks of each dense file in the plan."""
    if plan is None:
        return lines
    dense: dict[str | None, list[float]] = {}
    for each in plan.files:  # some qualify for another reason, or are being compacted by the server
        if each.reason is CandidateReason.DENSE:
            dense.setdefault(each.table, []).append(each.ratio)
    return tuple(
        line._replace(dense_files=len(dense.get(line.table, ())), densest=max(dense.get(line.table, ()), default=None))
        for line in lines
    )


# --- reading the XComs of a run ---------------------------------------------------------------------------------------


class XComEntry(NamedTuple):
    """The result of a task: tasks of one node share a task group, and the step is the name within the group."""

    task_id: str
    map_index: int

    @property
    def group(self) -> str:
        return self.task_id.rpartition(".")[0]

    @property
    def step(self) -> str:
        return self.task_id.rpartition(".")[2]


async def _last_reported(airflow: AsUser) -> ReportedRun:
    """Return the newest run with a report; if there is none, the newest that has measured."""
    measured: tuple[DagRun, list[XComEntry]] | None = None
    for run in await dag_runs(airflow, COMPACTION, (), _RUNS):
        entries = await _entries(airflow, run)
        if any(entry.step == REPORT for entry in entries):
            return await _read(airflow, run, entries)
        if entries and measured is None:
            measured = run, entries
    return await _read(airflow, *measured) if measured else ReportedRun(None, [])


async def _entries(airflow: AsUser, run: DagRun) -> list[XComEntry]:
    """Return the results of a run; none if the run was deleted meanwhile."""
    found: list[XComEntry] = []
    while True:
        try:
            page = await airflow.call(
                "GET", f"{_tasks(run)}/~/xcomEntries", xcom_key=_RESULT, limit=_PAGE, offset=len(found)
            )
        except AirflowHasNone:
            return []
        found += [XComEntry(str(each["task_id"]), each["map_index"]) for each in page["xcom_entries"]]
        if not page["xcom_entries"] or len(found) >= page["total_entries"]:
            return [entry for entry in found if entry.step in _STEPS]


async def _read(airflow: AsUser, run: DagRun, entries: list[XComEntry]) -> ReportedRun:
    groups = list(dict.fromkeys(entry.group for entry in entries))
    shown = set(groups[:MOST_NODES])
    results: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.group in shown:
            path = f"{_tasks(run)}/{segment(entry.task_id)}/xcomEntries/{_RESULT}"
            found = await airflow.call("GET", path, map_index=entry.map_index, deserialize=False, stringify=False)
            results.setdefault(entry.group, {})[entry.step] = found["value"]
    return ReportedRun(run, [parse_round(each) for each in results.values()], len(groups) - len(shown))


def _tasks(run: DagRun) -> str:
    return f"/dags/{COMPACTION}/dagRuns/{segment(run.dag_run_id)}/taskInstances"
