"""Tombstones by node and table, as the last compaction run measured them, and what became of them.

The tasks of a run leave their documents as XComs, which are read with the rights of the user. A failed run counts as
well: a run fails exactly when reads are about to fail, and then its reports matter most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from sweep_tasks.compaction.documents import Measurement, TableFigures
from sweep_tasks.compaction.reports import near_failing, near_failing_runs, unread
from sweep_tasks.compaction.rules import Reason
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


class RoundReport(NamedTuple):
    dry_run: bool
    dropped: int
    not_known: int
    """Compactions of which it is not known how many tombstones they dropped."""
    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeTombstones:
    """The last measurement on a node, and the report of the round if there is one."""

    at_s: int = -1
    tables: tuple[TableLine, ...] = ()
    """Those with the most tombstones first."""
    near_failing: tuple[NearFailing, ...] = ()
    unread: Unread | None = None
    report: RoundReport | None = None


class Reported(NamedTuple):
    """The run, the documents of its nodes, and how many nodes are left out."""

    run: DagRun | None
    documents: list[Any]
    left_out: int = 0


@router.get("")
async def report(request: Request, airflow: Airflow) -> Response:
    found = await _last_reported(airflow)
    values = {
        "nodes": by_node(found.documents),
        "run": found.run,
        "left_out": found.left_out,
        "dag": COMPACTION,
        "airflow": airflow_path(),
    }
    return rendered(request, "compaction.html", values)


# --- documents of the steps -------------------------------------------------------------------------------------------


def by_node(documents: Iterable[Any]) -> dict[str, NodeTombstones]:
    """Return the last measurement and the report of each node.

    Partitions near failing and unreadable files come from the measurement: a run that failed early has no report.
    """
    nodes: dict[str, NodeTombstones] = {}
    dense: dict[str, dict[str, list[float]]] = {}
    for document in documents:
        if not isinstance(document, dict) or "node" not in document:
            continue
        name = str(document["node"])
        node = nodes.setdefault(name, NodeTombstones())
        if "dropped" in document:
            nodes[name] = replace(node, report=_report(document))
        elif isinstance(document.get("tables"), dict) and document["at_s"] > node.at_s:
            nodes[name] = _measurement(Measurement.model_validate(document), node.report)
        elif isinstance(document.get("files"), list) and "compactions" in document:
            dense[name] = _densities(document["files"])
    return {name: _with_densities(nodes[name], dense.get(name)) for name in sorted(nodes)}


def _measurement(measured: Measurement, report: RoundReport | None) -> NodeTombstones:
    near = (NearFailing(each.table, each.token, near_failing(each)) for each in near_failing_runs(measured))
    return NodeTombstones(
        measured.at_s,
        _lines(measured.tables),
        tuple(near),
        Unread(len(measured.unreadable), unread(measured.unreadable)) if measured.unreadable else None,
        report,
    )


def _report(document: Mapping[str, Any]) -> RoundReport:
    return RoundReport(document["dry_run"], document["dropped"], document["not_known"], document["kept"])


def _lines(tables: Mapping[str, TableFigures]) -> tuple[TableLine, ...]:
    """Leave out tables that have nothing on the node: a store has many system tables that are mostly empty."""
    lines = [
        TableLine(name, each.files, each.bytes, each.droppable, each.waiting)
        for name, each in tables.items()
        if each.files or each.droppable or each.waiting
    ]
    return tuple(sorted(lines, key=lambda line: -(line.droppable + line.waiting)))


def _densities(files: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the share of dense blocks of each dense file in a plan, by table."""
    found: dict[str, list[float]] = {}
    for each in files:  # some qualify for another reason, or are being compacted by the server
        if each["reason"] == Reason.DENSE:
            found.setdefault(str(each["table"]), []).append(float(each["ratio"]))
    return found


def _with_densities(node: NodeTombstones, dense: Mapping[str, list[float]] | None) -> NodeTombstones:
    if dense is None:
        return node
    lines = (
        line._replace(dense_files=len(dense.get(line.table, ())), densest=max(dense.get(line.table, ()), default=None))
        for line in node.tables
    )
    return replace(node, tables=tuple(lines))


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


async def _last_reported(airflow: AsUser) -> Reported:
    """Return the newest run with a report; if there is none, the newest that has measured."""
    measured: tuple[DagRun, list[XComEntry]] | None = None
    for run in await dag_runs(airflow, COMPACTION, (), _RUNS):
        entries = await _entries(airflow, run)
        if any(entry.step == REPORT for entry in entries):
            return await _read(airflow, run, entries)
        if entries and measured is None:
            measured = run, entries
    return await _read(airflow, *measured) if measured else Reported(None, [])


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


async def _read(airflow: AsUser, run: DagRun, entries: list[XComEntry]) -> Reported:
    groups = list(dict.fromkeys(entry.group for entry in entries))
    shown = set(groups[:MOST_NODES])
    documents = []
    for entry in entries:
        if entry.group in shown:
            path = f"{_tasks(run)}/{segment(entry.task_id)}/xcomEntries/{_RESULT}"
            found = await airflow.call("GET", path, map_index=entry.map_index, deserialize=False, stringify=False)
            documents.append(found["value"])
    return Reported(run, documents, len(groups) - len(shown))


def _tasks(run: DagRun) -> str:
    return f"/dags/{COMPACTION}/dagRuns/{segment(run.dag_run_id)}/taskInstances"
