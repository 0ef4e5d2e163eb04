"""Pausing one table or everything, and going on."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, Request, Response

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.page.acting import Reason, asked, done, the_store
from sweep_tasks.orchestration.page.rights import ACTION, Token, may_act
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.pauses import EVERYTHING, Pauses, named

router = APIRouter(prefix="/pauses", tags=["pauses"])

What = Annotated[str, Form()]


@router.get("/new", dependencies=[Depends(may_act)])
def new(request: Request, token: Token) -> Response:
    with the_store() as (store, _):
        everything, paused = Pauses(store).standing()
        tables = [str(table) for table in sorted(Catalog(store).list()) if table not in paused]
    return asked(request, token, "pause", {"tables": tables, "everything": everything is None})


@router.post("", dependencies=ACTION)
def pause(request: Request, user: GetUserDep, what: What, reason: Reason = "") -> Response:
    table = _table(what)

    def deed(store: Store, _: Settings) -> str:
        Pauses(store).pause(table, user.get_name(), reason)
        return f"{named(table)} is paused; sweeps under way end with the batch they are at"

    return done(request, user, "pause", named(table), reason, deed)


@router.get("/resume", dependencies=[Depends(may_act)])
def ask(request: Request, token: Token, what: str) -> Response:
    with the_store() as (store, _):
        everything, tables = Pauses(store).standing()
    standing = everything if what == EVERYTHING else tables.get(TableRef.parse(what))
    return asked(request, token, "resume", {"what": what, "pause": standing})


@router.post("/resume", dependencies=ACTION)
def resume(request: Request, user: GetUserDep, what: What, reason: Reason = "") -> Response:
    table = _table(what)

    def deed(store: Store, _: Settings) -> str:
        Pauses(store).resume(table)
        return f"{named(table)} is swept again, from the next run on"

    return done(request, user, "resume", named(table), reason, deed)


def _table(what: str) -> TableRef | None:
    return None if what == EVERYTHING else TableRef.parse(what)
