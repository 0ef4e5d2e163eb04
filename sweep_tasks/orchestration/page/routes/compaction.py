"""Tombstones by node and table, as the last compaction run measured them, and what became of them.

A run leaves its documents as XComs of its tasks; they are read with the rights of whoever looks. A run counts whatever
became of it: it is red exactly when reads are about to fail, and then its reports matter most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from sweep_tasks.compaction.reporting import near_in
from sweep_tasks.compaction.rules import Reason
from sweep_tasks.compaction.sentences import near_failing, unread
from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.compacting import MEASURE, MEASURE_AGAIN, PLAN, REPORT
from sweep_tasks.orchestration.names import COMPACTION
from sweep_tasks.orchestration.page.addresses import airflow_path
from sweep_tasks.orchestration.page.as_user import Airflow, AsUser
from sweep_tasks.orchestration.page.rendering import rendered

router = APIRouter(prefix="/compaction", tags=["compaction"])

MOST_NODES = 20
_RUNS = 10
_PAGE = 100
_RESULT = "return_value"
_STEPS = (MEASURE, PLAN, MEASURE_AGAIN, REPORT)

Document = dict[str, Any]


class Reported(NamedTuple):
    """What one run has left: the run, the documents of its nodes, and how many nodes were left out."""

    run: Document | None
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


def by_node(documents: Iterable[Any]) -> dict[str, Document]:
    """Of each node its last measurement, tables with the most tombstones first, the report if there is one, the
    partitions near failing and files that could not be read: as measured, since a run that failed in between has no
    report."""
    nodes: dict[str, Document] = {}
    dense: dict[str, dict[str, list[float]]] = {}
    for document in documents:
        if not isinstance(document, dict) or "node" not in document:
            continue
        name = str(document["node"])
        node = nodes.setdefault(name, {"at_s": -1, "tables": [], "report": None, "near_failing": [], "unread": None})
        if "dropped" in document:
            node["report"] = document
        elif isinstance(document.get("tables"), dict) and document["at_s"] > node["at_s"]:
            near = [each | {"sentence": near_failing(each)} for each in near_in(document)]
            tables = _lines(document["tables"])
            node |= {"at_s": document["at_s"], "tables": tables, "near_failing": near, "unread": None}
            if unreadable := document["unreadable"]:
                node["unread"] = {"files": len(unreadable), "sentence": unread(unreadable)}
        elif isinstance(document.get("files"), list) and "compactions" in document:
            dense[name] = _densities(document["files"])
    for name, node in nodes.items():
        for line in node["tables"]:
            shares = dense.get(name, {}).get(line["table"], [])
            line |= {"dense_files": len(shares) if name in dense else None, "densest": max(shares, default=None)}
    return {name: nodes[name] for name in sorted(nodes)}


def _lines(tables: Mapping[str, Document]) -> list[Document]:
    """Those that have something on the node: a store has many tables of its own that are mostly empty."""
    held = ("files", "droppable", "waiting")
    lines = [{"table": name, **each} for name, each in tables.items() if any(each[figure] for figure in held)]
    return sorted(lines, key=lambda line: -(line["droppable"] + line["waiting"]))


def _densities(files: Iterable[Document]) -> dict[str, list[float]]:
    """As the plan has found them before anything was compacted: of each file that is dense, the share of its blocks."""
    found: dict[str, list[float]] = {}
    for each in files:  # among them those that qualify by something else, or that the server has before it
        if each["reason"] == Reason.DENSE:
            found.setdefault(str(each["table"]), []).append(float(each["ratio"]))
    return found


async def _last_reported(airflow: AsUser) -> Reported:
    """The newest run with a report; without any, the newest that has at least measured."""
    try:
        found = await airflow.call("GET", f"/dags/{COMPACTION}/dagRuns", order_by="-run_after", limit=_RUNS)
    except AirflowHasNone:
        return Reported(None, [])
    measured: tuple[Document, list[Document]] | None = None
    for run in found["dag_runs"]:
        entries = await _entries(airflow, run)
        if any(_step(entry) == REPORT for entry in entries):
            return await _read(airflow, run, entries)
        if entries and measured is None:
            measured = run, entries
    return await _read(airflow, *measured) if measured else Reported(None, [])


async def _entries(airflow: AsUser, run: Document) -> list[Document]:
    """All of a run, however many nodes there are."""
    found: list[Document] = []
    while True:
        page = await airflow.call(
            "GET", f"{_tasks(run)}/~/xcomEntries", xcom_key=_RESULT, limit=_PAGE, offset=len(found)
        )
        found += page["xcom_entries"]
        if not page["xcom_entries"] or len(found) >= page["total_entries"]:
            return [entry for entry in found if _step(entry) in _STEPS]


async def _read(airflow: AsUser, run: Document, entries: list[Document]) -> Reported:
    groups = list(dict.fromkeys(str(entry["task_id"]).rpartition(".")[0] for entry in entries))
    shown = set(groups[:MOST_NODES])
    documents = []
    for entry in entries:
        if str(entry["task_id"]).rpartition(".")[0] in shown:
            given = f"{_tasks(run)}/{entry['task_id']}/xcomEntries/{_RESULT}"
            found = await airflow.call("GET", given, map_index=entry["map_index"], deserialize=False, stringify=False)
            documents.append(found["value"])
    return Reported(run, documents, len(groups) - len(shown))


def _tasks(run: Document) -> str:
    return f"/dags/{COMPACTION}/dagRuns/{run['dag_run_id']}/taskInstances"


def _step(entry: Document) -> str:
    return str(entry["task_id"]).rpartition(".")[2]
