"""Releasing a protection, after a look at what it holds back."""

from __future__ import annotations

import secrets
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, Request, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.observation.entering import operations_entered
from sweep_tasks.observation.tally import PAGE, Try
from sweep_tasks.orchestration.page.acting import Reason, asked, done, the_store
from sweep_tasks.orchestration.page.rights import ACTION, Token, may_act
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.reconcile import age_s
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.held import HeldBack

router = APIRouter(prefix="/protections", tags=["protections"])

_MOST = 1_000
_LONGEST_S = 3.0


@router.get("/release", dependencies=[Depends(may_act)])
def ask(request: Request, token: Token, id: str) -> Response:  # noqa: A002
    with the_store() as (store, settings):
        catalog = ProtectionCatalog(store, settings)
        record = catalog.get(id)
        held = HeldBack(store, _MOST, longest_s=_LONGEST_S).by_each([record], catalog.records())[record.id]
    age = age_s(record, SystemClock().now_ms())
    tables = sorted({str(target.table) for target in record.targets})
    return asked(request, token, "release", {"record": record, "held": held, "age_s": age, "tables": tables})


@router.post("/release", dependencies=ACTION)
def release(
    request: Request,
    user: GetUserDep,
    id: Annotated[str, Form()],  # noqa: A002
    version: Annotated[int, Form()],
    reason: Reason = "",
) -> Response:
    """As it was shown: a record that somebody has changed since stays."""

    def deed(store: Store, settings: Settings) -> str:
        with operations_entered(store, SystemClock(), Try(PAGE, secrets.token_hex(8), "release")):
            ProtectionCatalog(store, settings).release(id, version)
        return f"{id} is released; what it alone held back goes with the next sweeps"

    return done(request, user, "release", id, reason, deed)
