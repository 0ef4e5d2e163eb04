"""The actions of the page: start a sweep, pause and resume, release a protection, retry quarantined entries.

Each action has a form (GET) and is carried out by sending it (POST).
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any

import pendulum
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.concurrency import run_in_threadpool

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.diagnosis.held_back import HeldBack
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.actors import checked_reason
from sweep_tasks.journal.journal import QUARANTINED_ENTRIES
from sweep_tasks.metrics.samples import take_sample, tally_operations_in_block
from sweep_tasks.metrics.tally import PAGE, TaskAttempt
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.orchestration.form import checked_shards, chosen
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.pools import SWEPT
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.reconciliation import age_s
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.run import retry_quarantined
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import EVERYTHING, Pauses, named
from sweep_tasks.texts import checked_id, printable
from sweep_tasks.web.actions import (
    Action,
    ReasonField,
    borrow_store_briefly,
    perform,
    perform_in_airflow,
    render_form,
)
from sweep_tasks.web.as_user import Airflow
from sweep_tasks.web.rights import ACTION, RELEASE, FormNumber, FormToken, may_act, may_release

router = APIRouter(tags=["actions"])

# --- sweeps and dry runs: runs of the DAG, started in the user's name -------------------------------------------------

_RUN = re.compile(r"manual__\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d_[0-9a-f]{8}")
_LONGEST_ABOUT = 100


@router.get("/sweeps/new", dependencies=[Depends(may_act)])
async def sweep_form(
    request: Request,
    token: FormToken,
    airflow: Airflow,
    strategy: SweepStrategy | None = None,
    shards: str = "",
    dry_run: bool = False,
) -> Response:
    values = {
        "strategies": SWEPT,
        "chosen": strategy,
        "shards": checked_shards(shards),
        "dry_run": dry_run,
        "switched_off": (await airflow.call("GET", f"/dags/{TARGETED_SWEEP}"))["is_paused"],
        "run": f"manual__{pendulum.now('UTC').format('YYYY-MM-DDTHH:mm:ss')}_{secrets.token_hex(4)}",
    }
    return render_form(request, token, "sweep", values)


@router.post("/sweeps", dependencies=ACTION)
async def start_sweep(
    request: Request,
    user: GetUserDep,
    airflow: Airflow,
    form: FormNumber,
    strategies: Annotated[list[SweepStrategy] | None, Form()] = None,
    shards: Annotated[str, Form()] = "",
    dry_run: Annotated[bool, Form()] = False,
    run: Annotated[str, Form()] = "",
    reason: ReasonField = "",
) -> Response:
    """Start a run. The reason is also the note of the run. The form contains the run id, so Airflow starts only one."""
    names = [strategy.value for strategy in strategies or ()]
    conf: dict[str, Any] = {"strategies": names, "shards": shards.strip(), "dry_run": dry_run}
    what = "dry run" if dry_run else "sweep"
    shown = printable(shards.strip(), _LONGEST_ABOUT)
    about = f"{' and '.join(names)}, {'shards ' + shown if shown else 'all shards'}"

    async def check() -> None:
        if not names:
            raise BadValue("strategies", "no strategy was chosen; choose one or both")
        if not _RUN.fullmatch(run):
            raise BadValue("run", "is not the run id of the form; load the page again")
        chosen(conf, (await run_in_threadpool(load_settings)).shards)

    async def start() -> str:
        wanted = {"dag_run_id": run, "logical_date": None, "conf": conf, "note": checked_reason(reason)}
        started = await airflow.call("POST", f"/dags/{TARGETED_SWEEP}/dagRuns", wanted)
        return f"{what} of {about} started: {started['dag_run_id']}"

    return await perform_in_airflow(request, user, form, Action(what, about, reason), check, start)


# --- pauses -----------------------------------------------------------------------------------------------------------

What = Annotated[str, Form()]


@router.get("/pauses/new", dependencies=[Depends(may_act)])
def pause_form(request: Request, token: FormToken) -> Response:
    with borrow_store_briefly() as (store, _):
        everything, paused = Pauses(store).current()
        tables = [str(table) for table in sorted(Catalog(store).list()) if table not in paused]
    return render_form(request, token, "pause", {"tables": tables, "everything": everything is None})


@router.post("/pauses", dependencies=ACTION)
def pause(request: Request, user: GetUserDep, form: FormNumber, what: What, reason: ReasonField = "") -> Response:
    table = _table(what)

    def operation(store: Store, _: Settings) -> str:
        Pauses(store).pause(table, user.get_name(), reason)
        return f"{named(table)} is paused; running sweeps stop after their current batch"

    return perform(request, user, form, Action("pause", named(table), reason), operation)


@router.get("/pauses/resume", dependencies=[Depends(may_act)])
def resume_form(request: Request, token: FormToken, what: str) -> Response:
    with borrow_store_briefly() as (store, _):
        everything, tables = Pauses(store).current()
    table = _table(what)
    existing = everything if table is None else tables.get(table)
    return render_form(request, token, "resume", {"what": what, "pause": existing})


@router.post("/pauses/resume", dependencies=ACTION)
def resume(request: Request, user: GetUserDep, form: FormNumber, what: What, reason: ReasonField = "") -> Response:
    table = _table(what)

    def operation(store: Store, _: Settings) -> str:
        Pauses(store).resume(table)
        return f"{named(table)} is resumed; the next run sweeps it again"

    return perform(request, user, form, Action("resume", named(table), reason), operation)


def _table(what: str) -> TableRef | None:
    return None if what == EVERYTHING else TableRef.parse(what)


# --- protections ------------------------------------------------------------------------------------------------------

_MOST_HELD = 1_000
_LONGEST_S = 3.0


@router.get("/protections/release", dependencies=[Depends(may_release)])
def release_form(request: Request, token: FormToken, id: str) -> Response:  # noqa: A002
    with borrow_store_briefly() as (store, settings):
        catalog = ProtectionCatalog(store, settings)
        record = catalog.get(checked_id("id", id))
        held_back = HeldBack(store, _MOST_HELD, longest_s=_LONGEST_S)
        held = held_back.per_record([record], catalog.records())[record.id]
    age = age_s(record, SystemClock().now_ms())
    tables = sorted({str(target.table) for target in record.targets})
    return render_form(request, token, "release", {"record": record, "held": held, "age_s": age, "tables": tables})


@router.post("/protections/release", dependencies=RELEASE)
def release(
    request: Request,
    user: GetUserDep,
    form: FormNumber,
    id: Annotated[str, Form()],  # noqa: A002
    version: Annotated[int, Form()],
    reason: ReasonField = "",
) -> Response:
    """Release a record in the version that was shown. A record that was changed since then is not released."""

    def operation(store: Store, settings: Settings) -> str:
        with tally_operations_in_block(store, SystemClock(), TaskAttempt(PAGE, secrets.token_hex(8), "release")):
            ProtectionCatalog(store, settings).release(id, version)
        return f"{id} is released; the next sweeps remove what it alone held back"

    return perform(request, user, form, Action("release", checked_id("id", id), reason), operation)


# --- quarantine -------------------------------------------------------------------------------------------------------

MOST_RETRIED = 2_000
"""Entries that are retried while the user waits."""


@router.get("/quarantine/retry", dependencies=[Depends(may_act)])
def retry_form(request: Request, token: FormToken) -> Response:
    return render_form(request, token, "retry", {"most": MOST_RETRIED})


@router.post("/quarantine/retry", dependencies=ACTION)
def retry(request: Request, user: GetUserDep, form: FormNumber, reason: ReasonField = "") -> Response:
    """Retry quarantined entries, and take a sample, so that the page shows what is left."""

    def operation(store: Store, settings: Settings) -> str:
        retried = retry_quarantined(store, settings, SystemClock(), MOST_RETRIED)
        take_sample(store, SystemClock())
        result = f"{retried.judged:,} entries processed, {retried.left:,} still quarantined"
        if retried.all:
            return result
        return f"{result}; only the first {MOST_RETRIED:,} were retried, 'sweepflow queue quarantine retry' retries all"

    return perform(request, user, form, Action("retry", QUARANTINED_ENTRIES, reason), operation)
