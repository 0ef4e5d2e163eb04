"""Sweeps and dry runs: runs of the DAG, started as whoever presses the button."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any

import pendulum
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.concurrency import run_in_threadpool

from sweep_tasks.config import load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import SHARDS, chosen
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.acting import Reason, asked, done_by_airflow
from sweep_tasks.orchestration.page.as_user import Airflow
from sweep_tasks.orchestration.page.rights import ACTION, Token, may_act
from sweep_tasks.orchestration.pools import SWEPT

router = APIRouter(prefix="/sweeps", tags=["sweeps"])

_RUN = re.compile(r"manual__\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d_[0-9a-f]{8}")


@router.get("/new", dependencies=[Depends(may_act)])
async def new(
    request: Request,
    token: Token,
    airflow: Airflow,
    strategy: SweepStrategy | None = None,
    shards: str = "",
    dry_run: bool = False,
) -> Response:
    values = {
        "strategies": SWEPT,
        "chosen": strategy,
        "shards": shards,
        "dry_run": dry_run,
        "switched_off": (await airflow.call("GET", f"/dags/{TARGETED_SWEEP}"))["is_paused"],
        "run": f"manual__{pendulum.now('UTC').format('YYYY-MM-DDTHH:mm:ss')}_{secrets.token_hex(4)}",
    }
    return asked(request, token, "sweep", values)


@router.post("", dependencies=ACTION)
async def start(
    request: Request,
    user: GetUserDep,
    airflow: Airflow,
    strategies: Annotated[list[SweepStrategy] | None, Form()] = None,
    shards: Annotated[str, Form()] = "",
    dry_run: Annotated[bool, Form()] = False,
    run: Annotated[str, Form()] = "",
    reason: Reason = "",
) -> Response:
    """The reason becomes the note of the run as well. The form names the run, so that one sent twice starts one."""
    names = [strategy.value for strategy in strategies or ()]
    conf: dict[str, Any] = {"strategies": names, "shards": shards.strip(), "dry_run": dry_run}
    what = "dry run" if dry_run else "sweep"
    about = f"{' and '.join(names)}, {'shards ' + shards.strip() if shards.strip() else 'all shards'}"

    async def deed() -> str:
        if not names:
            raise BadValue("strategies", "none was chosen; choose one or both")
        if not re.match(SHARDS, shards):
            raise BadValue("shards", "can't be read; write numbers and ranges such as 0,2-5, or nothing for all")
        if not _RUN.fullmatch(run):
            raise BadValue("run", "is not as the form named it; load the page again")
        chosen(conf, (await run_in_threadpool(load_settings)).shards)
        wanted = {"dag_run_id": run, "logical_date": None, "conf": conf, "note": reason}
        started = await airflow.call("POST", f"/dags/{TARGETED_SWEEP}/dagRuns", wanted)
        return f"{what} of {about} is started: {started['dag_run_id']}"

    return await done_by_airflow(request, user, what, about, reason, deed)
