"""Sweeps and dry runs: runs of the DAG, started as whoever presses the button."""

from __future__ import annotations

import re
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, Request, Response

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import SHARDS, chosen
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.acting import Reason, asked, done
from sweep_tasks.orchestration.page.as_user import Airflow
from sweep_tasks.orchestration.page.rights import ACTION, Token, may_act
from sweep_tasks.orchestration.pools import SWEPT
from sweep_tasks.store.contract import Store

router = APIRouter(prefix="/sweeps", tags=["sweeps"])


@router.get("/new", dependencies=[Depends(may_act)])
def new(
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
        "switched_off": airflow.call("GET", f"/dags/{TARGETED_SWEEP}")["is_paused"],
    }
    return asked(request, token, "sweep", values)


@router.post("", dependencies=ACTION)
def start(
    request: Request,
    user: GetUserDep,
    airflow: Airflow,
    strategies: Annotated[list[SweepStrategy] | None, Form()] = None,
    shards: Annotated[str, Form()] = "",
    dry_run: Annotated[bool, Form()] = False,
    reason: Reason = "",
) -> Response:
    """The reason becomes the note of the run as well."""
    names = [strategy.value for strategy in strategies or ()]
    conf: dict[str, Any] = {"strategies": names, "shards": shards.strip(), "dry_run": dry_run}
    what = "dry run" if dry_run else "sweep"
    about = f"{' and '.join(names)}, {'shards ' + shards.strip() if shards.strip() else 'all shards'}"

    def deed(_: Store, settings: Settings) -> str:
        if not names:
            raise BadValue("strategies", "none was chosen; choose one or both")
        if not re.match(SHARDS, shards):
            raise BadValue("shards", "can't be read; write numbers and ranges such as 0,2-5, or nothing for all")
        chosen(conf, settings.shards)
        run = airflow.call(
            "POST", f"/dags/{TARGETED_SWEEP}/dagRuns", {"logical_date": None, "conf": conf, "note": reason}
        )
        return f"{what} of {about} is started: {run['dag_run_id']}"

    return done(request, user, what, about, reason, deed)
