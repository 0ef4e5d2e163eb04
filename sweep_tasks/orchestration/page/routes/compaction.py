"""Tombstones by node and table, as the last compaction run measured them, and what became of them.

A run leaves its documents as XComs of its tasks; they are read with the rights of whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response

from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.page.as_user import Airflow, AsUser
from sweep_tasks.orchestration.page.rendering import rendered

router = APIRouter(prefix="/compaction", tags=["compaction"])

COMPACTION = "compaction"
_MOST = 50
_RESULT = "return_value"

Document = dict[str, Any]


@router.get("")
def report(request: Request, airflow: Airflow) -> Response:
    return rendered(request, "compaction.html", {"nodes": by_node(_documents(airflow))})


def by_node(documents: Iterable[Any]) -> dict[str, Document]:
    """Of each node its last measurement, tables with the most tombstones first, and the report if there is one."""
    nodes: dict[str, Document] = {}
    for document in documents:
        if not isinstance(document, dict) or "node" not in document:
            continue
        node = nodes.setdefault(str(document["node"]), {"at_s": -1, "tables": [], "report": None})
        if isinstance(document.get("tables"), dict) and document["at_s"] > node["at_s"]:
            lines = [{"table": name, **figures} for name, figures in document["tables"].items()]
            tables = sorted(lines, key=lambda line: -(line["droppable"] + line["waiting"]))
            node |= {"at_s": document["at_s"], "tables": tables}
        elif "dropped" in document:
            node["report"] = document
    return {name: nodes[name] for name in sorted(nodes)}


def _documents(airflow: AsUser) -> Iterator[Any]:
    """Of the last run that succeeded; none if there was none, or no such DAG."""
    try:
        runs = airflow.call("GET", f"/dags/{COMPACTION}/dagRuns", state="success", order_by="-run_after", limit=1)
    except AirflowHasNone:
        return
    for run in runs["dag_runs"]:
        path = f"/dags/{COMPACTION}/dagRuns/{run['dag_run_id']}/taskInstances"
        for entry in airflow.call("GET", f"{path}/~/xcomEntries", xcom_key=_RESULT, limit=_MOST)["xcom_entries"]:
            given = f"{path}/{entry['task_id']}/xcomEntries/{_RESULT}"
            found = airflow.call("GET", given, map_index=entry["map_index"], deserialize=False, stringify=False)
            yield found["value"]
