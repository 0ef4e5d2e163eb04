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
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sweep_tasks.errors import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    RequestRefused,
    StoreError,
    SweepflowError,
)
from sweep_tasks.logs import guard_logs
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
_SENTENCES: dict[int, tuple[str, str, str]] = {
    HTTPStatus.UNAUTHORIZED: (
        "not_logged_in",
        "You are not logged in",
        "Log in to Airflow, then open this page again.",
    ),
    HTTPStatus.FORBIDDEN: (
        "not_allowed",
        "You may not do that",
        "Looking takes the right to see the DAG targeted_sweep, acting the right to edit it; your login may also have "
        "run out: log in to Airflow again.",
    ),
    HTTPStatus.NOT_FOUND: ("not_found", "There is no such page", "The address leads nowhere."),
}
_STATUS = {
    EXIT_BAD_INPUT: HTTPStatus.BAD_REQUEST,
    EXIT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    EXIT_CONFLICT: HTTPStatus.CONFLICT,
    EXIT_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def page_app() -> FastAPI:
    guard_logs()
    app = FastAPI(title="sweepflow", dependencies=[Depends(may_look)], docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_with_headers)
    app.add_exception_handler(SweepflowError, _explained)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)
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
    title = "The store can't be read" if isinstance(error, StoreError) else "That was not done"
    return _problem(request, status, error.code, title, str(error), reason=error.reason, field=error.field)


async def _refused(request: Request, error: Exception) -> Response:
    """What Airflow's guard says, to a person in a sentence. Whoever is no browser gets it as the guard said it."""
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for these)
    if not _is_person(request):
        return await http_exception_handler(request, error)
    nothing = ("not_done", "That was not done", "There is nothing here to be shown.")
    return _problem(request, HTTPStatus(error.status_code), *_SENTENCES.get(error.status_code, nothing))


async def _unreadable(request: Request, error: Exception) -> Response:
    """The names of the fields, and nothing of what was in them."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for these)
    fields = sorted({str(each["loc"][-1]) for each in error.errors()})
    said = f"The request can't be read: {', '.join(fields)} is missing or not as it should be. Load the page again."
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if not _is_person(request):
        return JSONResponse({"detail": said}, status)
    return _problem(request, status, "bad_value", "That was not done", said, field=" ".join(fields))


def _problem(
    request: Request,
    status: HTTPStatus,
    code: str,
    title: str,
    sentence: str,
    *,
    reason: str | None = None,
    field: str | None = None,
) -> Response:
    values = {"code": code, "title": title, "sentence": sentence, "reason": reason, "field": field}
    return rendered(request, "problem.html", values, status)


def _is_person(request: Request) -> bool:
    """A browser that shows what it gets; scripts, htmx among them, ask for anything."""
    return "text/html" in request.headers.get("accept", "")
