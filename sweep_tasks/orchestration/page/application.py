"""The page as an application that Airflow's API server mounts.

Airflow guards none of what a plugin serves. So the guard stands here, in front of every route there is and will be: who
may look at the sweep's DAG may look at the page. FastAPI's own pages of documentation would stand outside of it and are
off. What a browser is allowed to do with an answer is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog
from fastapi import Depends, FastAPI, Request, Response

from sweep_tasks.errors import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    RequestRefused,
    StoreError,
    SweepflowError,
)
from sweep_tasks.orchestration.page.rendering import rendered
from sweep_tasks.orchestration.page.rights import may_look
from sweep_tasks.orchestration.page.routes import (
    assets,
    compaction,
    metrics,
    overview,
    pauses,
    protections,
    quarantine,
    runs,
    sweeps,
)

log = structlog.get_logger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'self'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATUS = {
    EXIT_BAD_INPUT: HTTPStatus.BAD_REQUEST,
    EXIT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    EXIT_CONFLICT: HTTPStatus.CONFLICT,
    EXIT_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def page_app() -> FastAPI:
    app = FastAPI(title="sweepflow", dependencies=[Depends(may_look)], docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_with_headers)
    app.add_exception_handler(SweepflowError, _explained)
    for noun in (overview, runs, sweeps, protections, pauses, quarantine, compaction, metrics, assets):
        app.include_router(noun.router)
    return app


async def _with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _explained(request: Request, error: Exception) -> Response:
    """One sentence with the way out; what a stopped store looks like, too."""
    assert isinstance(error, SweepflowError)  # noqa: S101 (registered for these)
    refused = isinstance(error, RequestRefused)
    status = HTTPStatus.FORBIDDEN if refused else _STATUS.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
    log.info("the page could not do what was asked", code=error.code, path=request.url.path)
    return rendered(request, "problem.html", {"error": error, "stopped": isinstance(error, StoreError)}, status)
