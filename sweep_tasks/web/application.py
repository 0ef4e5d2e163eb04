"""The page as an application that Airflow's API server mounts: guards, limits, headers and error pages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import structlog
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweep_tasks.errors import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    AirflowTimedOut,
    RequestRefused,
    StoreError,
    SweepflowError,
)
from sweep_tasks.logs import guard_logs
from sweep_tasks.texts import printable
from sweep_tasks.web import action_routes, assets, compaction, overview, runs
from sweep_tasks.web.rendering import rendered
from sweep_tasks.web.rights import may_view

# --- concurrent requests ----------------------------------------------------------------------------------------------
# Most requests read the store, each in one of the forty threads that Airflow's server has for everything it serves. A
# script that sends requests faster than a slow store answers would use up all of them and block Airflow's own pages. So
# each user may have a few requests at a time, and all users together not much more than half of the threads. Further
# requests are refused before they take a thread, and may be repeated. Each process of the API server counts for itself.

AT_ONCE = 8
"""A browser opens six connections to one server, and two more requests may just be ending."""
AT_ONCE_IN_ALL = 24
"""The server has forty threads; the others are left to Airflow."""
RETRY_AFTER_S = 1


class Admission:
    def __init__(self, each: int = AT_ONCE, in_all: int = AT_ONCE_IN_ALL) -> None:
        self._each, self._in_all = each, in_all
        self._busy: Counter[str] = Counter()

    @contextmanager
    def admit(self, user: str) -> Iterator[None]:
        """Count a request for as long as the block lasts. Raise `RequestRefused` if it is one too many."""
        if self._busy[user] >= self._each:
            raise _too_many(self._each, "each user", reason="user")
        if self._busy.total() >= self._in_all:
            raise _too_many(self._in_all, "all users", reason="all_users")
        self._busy[user] += 1
        try:
            yield
        finally:
            self._busy[user] -= 1
            if not self._busy[user]:
                del self._busy[user]


def _too_many(most: int, whom: str, *, reason: str) -> RequestRefused:
    return RequestRefused(
        f"request: {most} requests at a time are answered for {whom}; wait for an answer, then try again",
        code="too_many_requests",
        retryable=True,
        reason=reason,
        most=most,
    )


_admission = Admission()


async def admit_request(user: GetUserDep) -> AsyncIterator[None]:
    """Admit a request. Runs before the other guards of every route."""
    with _admission.admit(str(user.get_id())):
        yield


# --- request bodies ---------------------------------------------------------------------------------------------------
# FastAPI reads and parses a body before it checks the user. So anyone who can reach the server could make it hold any
# number of bytes, or run a parser that our forms do not need. This middleware reads the body first, up to a limit, and
# passes it on. It counts the bytes and does not trust the declared length, which may be missing or wrong. A body that
# takes too long is refused, so that a slow client does not keep its connection and its memory for as long as it likes.
# The server closes the connection after a refusal. Otherwise it would read and drop the rest of the body, however long
# that takes.

MOST_BYTES = 64 * 1024
"""Much more than the longest possible form."""
MOST_SECONDS = 10
"""Enough for a form over the slowest connection that the page can be used on."""
FORM = "application/x-www-form-urlencoded"

Refuse = Callable[[Request, Exception], Response]


class LimitBodies:
    """ASGI middleware. `refuse` creates the response to a request whose body is not accepted."""

    def __init__(self, app: ASGIApp, refuse: Refuse) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(Headers(scope=scope), receive)
        except SweepflowError as error:
            answer = self._refuse(Request(scope), error)
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)


async def read_body(headers: Headers, receive: Receive) -> bytes | None:
    """Return the whole body; None if the client disconnected before it was complete."""
    _check(headers, _declared(headers))
    try:
        async with asyncio.timeout(MOST_SECONDS):
            return await _read(headers, receive)
    except TimeoutError:
        raise RequestRefused(
            f"request: its body did not arrive within {MOST_SECONDS} s; retry", code="too_slow", reason="body"
        ) from None


async def _read(headers: Headers, receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        _check(headers, len(body))
        if not message.get("more_body", False):
            return bytes(body)


def _check(headers: Headers, size: int) -> None:
    if size > MOST_BYTES:
        raise RequestRefused(
            f"request: its body is too large, at most {MOST_BYTES} bytes are accepted", code="too_large", reason="body"
        )
    if size and headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise RequestRefused(
            f"request: its body is not a form; send a form as {FORM}", code="not_a_form", reason="content_type"
        )


def _declared(headers: Headers) -> int:
    """Return the declared length; 0 if it is not a number: the bytes are counted anyway."""
    digits = headers.get("content-length", "").strip().lstrip("0")
    if not (digits.isascii() and digits.isdigit()):
        return 0
    return int(digits) if len(digits) <= len(str(MOST_BYTES)) else MOST_BYTES + 1


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


# --- the application --------------------------------------------------------------------------------------------------
# Airflow does not guard what a plugin serves. So the guard is a dependency of the whole application: a user who may see
# the DAG of the sweep may see the page. FastAPI's documentation pages would not be guarded and are off. All responses
# have the same security headers.

log = structlog.get_logger(__name__)

_LONGEST_PATH = 200

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
        "Viewing takes the right to see the DAG targeted_sweep, acting the right to edit it, and releasing a "
        "protection the right to edit the DAG protected_timestamps. If your login has expired, log in again.",
    ),
    HTTPStatus.NOT_FOUND: ("not_found", "Page not found", "There is no page at this address."),
}
_STATUS_OF_REFUSED = {
    "refused": HTTPStatus.FORBIDDEN,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "not_a_form": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "too_many_requests": HTTPStatus.TOO_MANY_REQUESTS,
}
_STATUS = {
    EXIT_BAD_INPUT: HTTPStatus.BAD_REQUEST,
    EXIT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    EXIT_CONFLICT: HTTPStatus.CONFLICT,
    EXIT_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def page_app() -> FastAPI:
    guard_logs()
    app = FastAPI(
        title="sweepflow",
        dependencies=[Depends(admit_request), Depends(may_view)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # it would redirect browsers to the host that the request names
    )
    app.add_middleware(LimitBodies, refuse=_sweepflow_error)
    app.middleware("http")(_with_headers)
    app.add_exception_handler(SweepflowError, _sweepflow_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    for module in (overview, runs, action_routes, compaction, assets):
        app.include_router(module.router)
    return app


async def _with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _sweepflow_error(request: Request, error: Exception) -> Response:
    """Show an error of ours, a store that does not answer among them."""
    assert isinstance(error, SweepflowError)  # noqa: S101 (registered for these)
    status = _status_of(error)
    log.info("request failed", code=error.code, path=printable(request.url.path, _LONGEST_PATH))
    title = "The store can't be read" if isinstance(error, StoreError) else "Nothing was done"
    answer = _problem(request, status, error.code, title, str(error), reason=error.reason, field=error.field)
    if _may_repeat(request, status):
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _may_repeat(request: Request, status: HTTPStatus) -> bool:
    """Return whether the server was only busy. A form that was not answered in time may have had its effect."""
    unanswered = status is HTTPStatus.GATEWAY_TIMEOUT and request.method == "GET"
    return unanswered or status is HTTPStatus.TOO_MANY_REQUESTS


def _status_of(error: SweepflowError) -> HTTPStatus:
    if isinstance(error, RequestRefused):
        return _STATUS_OF_REFUSED[error.code]
    if isinstance(error, AirflowTimedOut):
        return HTTPStatus.GATEWAY_TIMEOUT
    return _STATUS.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)


async def _http_error(request: Request, error: Exception) -> Response:
    """Show an HTTP error as a page to a browser, and as FastAPI does to other clients."""
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for these)
    if not _is_browser(request):
        return await http_exception_handler(request, error)
    nothing = ("not_done", "Nothing was done", "There is nothing to show here.")
    return _problem(request, HTTPStatus(error.status_code), *_SENTENCES.get(error.status_code, nothing))


async def _validation_error(request: Request, error: Exception) -> Response:
    """Show which fields are not valid, without their contents."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for these)
    fields = sorted({str(each["loc"][-1]) for each in error.errors()})
    message = f"The request can't be read: {', '.join(fields)} is missing or not valid. Load the page again."
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if not _is_browser(request):
        return JSONResponse({"detail": message}, status)
    return _problem(request, status, "bad_value", "Nothing was done", message, field=" ".join(fields))


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


def _is_browser(request: Request) -> bool:
    """Return whether a browser will show the response as a page; scripts, htmx among them, accept anything."""
    return "text/html" in request.headers.get("accept", "")
