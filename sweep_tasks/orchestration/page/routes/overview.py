"""The page itself, and the part of it that is fetched anew every few seconds."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.acting import the_store
from sweep_tasks.orchestration.page.addresses import airflow_path
from sweep_tasks.orchestration.page.overview import overview
from sweep_tasks.orchestration.page.rendering import rendered
from sweep_tasks.orchestration.page.rights import Acts, told

router = APIRouter(tags=["overview"])


@router.get("/")
def page(request: Request, acts: Acts, message: str = "") -> Response:
    return _shown(request, acts, "page.html", told(message) if message else None)


@router.get("/overview")
def part(request: Request, acts: Acts) -> Response:
    return _shown(request, acts, "overview.html", None)


def _shown(request: Request, acts: bool, template: str, message: str | None) -> Response:
    with the_store() as (store, settings):
        found = overview(store, settings, SystemClock())
    values = {"acts": acts, "message": message, "airflow": airflow_path(), "dag": TARGETED_SWEEP}
    return rendered(request, template, found | values)
