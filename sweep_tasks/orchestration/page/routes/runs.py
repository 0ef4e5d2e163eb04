"""Runs that are under way or have failed, and whether the schedule is on: what Airflow knows and the store does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.names import SCHEDULED, TARGETED_SWEEP
from sweep_tasks.orchestration.page.addresses import airflow_path
from sweep_tasks.orchestration.page.as_user import Airflow, AsUser
from sweep_tasks.orchestration.page.rendering import rendered

router = APIRouter(prefix="/runs", tags=["runs"])

UNFINISHED = ("running", "queued")
ENDED = ("success", "failed")
_MOST = 5

Document = dict[str, Any]


@router.get("")
async def under_way(request: Request, airflow: Airflow) -> Response:
    path = f"/dags/{TARGETED_SWEEP}"
    try:
        switched_off = (await airflow.call("GET", path))["is_paused"]
    except AirflowHasNone:
        return rendered(request, "runs.html", {"known": False, "dag": TARGETED_SWEEP, "airflow": airflow_path()})
    last = [run for dag in SCHEDULED for run in await _runs(airflow, dag, ENDED, 1)]
    values = {
        "known": True,
        "dag": TARGETED_SWEEP,
        "switched_off": switched_off,
        "runs": await _runs(airflow, TARGETED_SWEEP, UNFINISHED, _MOST),
        "failed": [await _with_tasks(airflow, run) for run in last if run["state"] == "failed"],
        "airflow": airflow_path(),
    }
    return rendered(request, "runs.html", values)


@router.get("/failed")
async def failed(request: Request, airflow: Airflow) -> Response:
    """The last of all our DAGs, the newest first, each with the tasks to look at."""
    found = [run for dag in SCHEDULED for run in await _runs(airflow, dag, ("failed",), _MOST)]
    newest = sorted(found, key=lambda run: str(run["run_after"]), reverse=True)[:_MOST]
    runs = [await _with_tasks(airflow, run) for run in newest]
    return rendered(request, "failed.html", {"failed": runs, "airflow": airflow_path()})


async def _runs(airflow: AsUser, dag: str, states: Sequence[str], most: int) -> list[Document]:
    try:
        found = await airflow.call("GET", f"/dags/{dag}/dagRuns", state=states, order_by="-run_after", limit=most)
    except AirflowHasNone:
        return []
    runs: list[Document] = found["dag_runs"]
    return runs


async def _with_tasks(airflow: AsUser, run: Document) -> Document:
    path = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances"
    found = await airflow.call("GET", path, state=("failed",), limit=_MOST)
    return run | {"red": [each["task_id"] for each in found["task_instances"]], "red_total": found["total_entries"]}
