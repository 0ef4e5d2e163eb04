"""Running, queued and failed runs, and whether the schedule is on: what Airflow knows and the store does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from sweep_tasks.errors import AirflowHasNone
from sweep_tasks.orchestration.names import SCHEDULED, TARGETED_SWEEP, airflow_path
from sweep_tasks.web.as_user import Airflow, AsUser, segment
from sweep_tasks.web.rendering import rendered

router = APIRouter(prefix="/runs", tags=["runs"])

UNFINISHED = ("running", "queued")
ENDED = ("success", "failed")
_MOST = 5


class DagRun(BaseModel, frozen=True, defer_build=True):
    """A DAG run as Airflow's API returns it."""

    dag_id: str
    dag_run_id: str
    state: str
    run_after: str = ""
    end_date: str | None = None
    conf: dict[str, Any] | None = None
    triggering_user_name: str | None = None


class FailedRun(NamedTuple):
    run: DagRun
    tasks: list[str]
    """Its first failed tasks."""
    failed: int
    """The number of failed tasks."""


@router.get("")
async def unfinished_runs(request: Request, airflow: Airflow) -> Response:
    path = f"/dags/{TARGETED_SWEEP}"
    try:
        switched_off = (await airflow.call("GET", path))["is_paused"]
    except AirflowHasNone:
        return rendered(request, "runs.html", {"known": False, "dag": TARGETED_SWEEP, "airflow": airflow_path()})
    last = [run for dag in SCHEDULED for run in await dag_runs(airflow, dag, ENDED, 1)]
    values = {
        "known": True,
        "dag": TARGETED_SWEEP,
        "switched_off": switched_off,
        "runs": await dag_runs(airflow, TARGETED_SWEEP, UNFINISHED, _MOST),
        "failed": [await _failed_run(airflow, run) for run in last if run.state == "failed"],
        "airflow": airflow_path(),
    }
    return rendered(request, "runs.html", values)


@router.get("/failed")
async def failed_runs(request: Request, airflow: Airflow) -> Response:
    """The last failed runs of all our DAGs, newest first, each with its failed tasks."""
    found = [run for dag in SCHEDULED for run in await dag_runs(airflow, dag, ("failed",), _MOST)]
    newest = sorted(found, key=lambda run: run.run_after, reverse=True)[:_MOST]
    runs = [await _failed_run(airflow, run) for run in newest]
    return rendered(request, "failed.html", {"failed": runs, "airflow": airflow_path()})


async def dag_runs(airflow: AsUser, dag: str, states: Sequence[str], most: int) -> list[DagRun]:
    """Return the newest runs of a DAG; none if Airflow does not know the DAG."""
    query = {"state": states} if states else {}
    try:
        found = await airflow.call("GET", f"/dags/{dag}/dagRuns", **query, order_by="-run_after", limit=most)
    except AirflowHasNone:
        return []
    return [DagRun.model_validate(run) for run in found["dag_runs"]]


async def _failed_run(airflow: AsUser, run: DagRun) -> FailedRun:
    """Return a run with its failed tasks; with none if the run was deleted meanwhile or its name can't be requested."""
    try:
        path = f"/dags/{segment(run.dag_id)}/dagRuns/{segment(run.dag_run_id)}/taskInstances"
        found = await airflow.call("GET", path, state=("failed",), limit=_MOST)
    except AirflowHasNone:
        return FailedRun(run, [], 0)
    return FailedRun(run, [str(each["task_id"]) for each in found["task_instances"]], found["total_entries"])
