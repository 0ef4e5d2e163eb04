"""Runs that are under way, and whether the schedule is switched on: what Airflow knows and the store does not."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.addresses import airflow_path
from sweep_tasks.orchestration.page.as_user import Airflow
from sweep_tasks.orchestration.page.rendering import rendered

router = APIRouter(prefix="/runs", tags=["runs"])

UNFINISHED = ("running", "queued")
_MOST = 5


@router.get("")
def under_way(request: Request, airflow: Airflow) -> Response:
    path = f"/dags/{TARGETED_SWEEP}"
    try:
        switched_off = airflow.call("GET", path)["is_paused"]
        found = airflow.call("GET", f"{path}/dagRuns", state=UNFINISHED, order_by="-run_after", limit=_MOST)
    except AirflowHasNone:
        return rendered(request, "runs.html", {"known": False, "dag": TARGETED_SWEEP})
    values = {
        "known": True,
        "dag": TARGETED_SWEEP,
        "switched_off": switched_off,
        "runs": found["dag_runs"],
        "airflow": airflow_path(),
    }
    return rendered(request, "runs.html", values)
