"""Tombstones by table and node, as the last compaction run measured them.

A run leaves its documents as XComs of its tasks; they are read with the rights of whoever looks.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.page.as_user import Airflow, AsUser
from sweep_tasks.orchestration.page.rendering import rendered

router = APIRouter(prefix="/compaction", tags=["compaction"])

COMPACTION = "compaction"
_MOST = 50


@router.get("")
def report(request: Request, airflow: Airflow) -> Response:
    return rendered(request, "compaction.html", {"nodes": last_report(airflow)})


def last_report(airflow: AsUser) -> dict[str, list[dict[str, Any]]]:
    """By node a line for each table; empty if no compaction has told anything yet."""
    try:
        runs = airflow.call("GET", f"/dags/{COMPACTION}/dagRuns", state="success", order_by="-run_after", limit=1)
    except AirflowHasNone:
        return {}
    nodes: dict[str, list[dict[str, Any]]] = {}
    for run in runs["dag_runs"]:
        path = f"/dags/{COMPACTION}/dagRuns/{run['dag_run_id']}/taskInstances"
        for entry in airflow.call("GET", f"{path}/~/xcomEntries", limit=_MOST)["xcom_entries"]:
            given = f"{path}/{entry['task_id']}/xcomEntries/{entry['key']}"
            value = airflow.call("GET", given, map_index=entry["map_index"], deserialize=False, stringify=False)
            nodes |= dict(measured(value["value"]))
    return nodes


def measured(document: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    """A measurement of a node, if this is one; the later of two takes the place of the earlier."""
    if not isinstance(document, dict) or not isinstance(document.get("tables"), dict) or "node" not in document:
        return []
    lines = [{"table": name, **figures} for name, figures in document["tables"].items()]
    return [(str(document["node"]), sorted(lines, key=lambda line: -line.get("droppable", 0)))]
