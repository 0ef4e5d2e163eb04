"""Entries that were set aside, judged anew."""

from __future__ import annotations

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Request, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.orchestration.page.acting import Reason, asked, done
from sweep_tasks.orchestration.page.rights import ACTION, Token, may_act
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.run import retry_quarantined

router = APIRouter(prefix="/quarantine", tags=["quarantine"])

MOST = 2_000
"""Entries that are judged while somebody waits."""


@router.get("/retry", dependencies=[Depends(may_act)])
def ask(request: Request, token: Token) -> Response:
    return asked(request, token, "retry", {})


@router.post("/retry", dependencies=ACTION)
def retry(request: Request, user: GetUserDep, reason: Reason = "") -> Response:
    """Counted anew afterwards, so that the page shows what is left."""

    def deed(store: Store, settings: Settings) -> str:
        retried = retry_quarantined(store, settings, SystemClock(), MOST)
        take_sample(store, SystemClock())
        said = f"{retried.judged} entries judged, {retried.left} still set aside"
        if retried.all:
            return said
        return f"{said}; only the first {MOST:,} were tried, 'sweepflow queue quarantine retry' tries all"

    return done(request, user, "retry", "quarantined entries", reason, deed)
