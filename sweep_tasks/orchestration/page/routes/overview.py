"""The page itself, and the part of it that is fetched anew every few seconds.

Both have two states: what the store tells, and that it can't be read. The same page stands around either, so that what
was opened during an outage is whole as soon as the store is back.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import StoreError
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.acting import the_store
from sweep_tasks.orchestration.page.addresses import airflow_path
from sweep_tasks.orchestration.page.overview import overview
from sweep_tasks.orchestration.page.rendering import rendered
from sweep_tasks.orchestration.page.rights import Acts, told

router = APIRouter(tags=["overview"])


@router.get("/")
def page(request: Request, acts: Acts, message: str = "") -> Response:
    return _shown(request, "page.html", {"acts": acts, "message": told(message) if message else None})


@router.get("/overview")
def part(request: Request, acts: Acts) -> Response:
    return _shown(request, "part.html", {"acts": acts})


def _shown(request: Request, template: str, around: dict[str, Any]) -> Response:
    values = around | {"airflow": airflow_path(), "dag": TARGETED_SWEEP}
    try:
        with the_store() as (store, settings):
            found = overview(store, settings, SystemClock())
    except StoreError as error:
        now_ms = SystemClock().now_ms()
        return rendered(
            request, template, values | {"stopped": str(error), "now_ms": now_ms}, HTTPStatus.SERVICE_UNAVAILABLE
        )
    return rendered(request, template, found | values | {"stopped": None})
