"""Calls Airflow's own REST API in this process, with the rights of the user who sent the request.

No credentials of ours are involved: a call carries the token of the user's request. So the page can do in Airflow what
that user can do, and Airflow's audit log names the user.

Airflow answers a call in one of the few threads of its server, with one of the few connections to its database. A
request that waits for an answer must not hold a thread: if there were as many such requests as threads, they would wait
for each other forever. So calls are awaited, and only a few are made at a time, fewer for one user. All calls of a
request together, with the time spent waiting, are limited to the time that the browser waits. A call that takes longer
is abandoned, because a thread can't be interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakValueDictionary

import httpx
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, Request

from sweep_tasks.errors import AirflowHasNone, AirflowTimedOut, AirflowUnreachable
from sweep_tasks.orchestration.airflow_api import problem_of

LONGEST_S = 10.0
"""For all calls of a request: the browser gives up after twelve seconds."""
AT_ONCE = 4
AT_ONCE_EACH = 2
"""For one user, so that calls which hang do not block other users."""


Send = Callable[[], Awaitable[httpx.Response]]


class _Limits:
    """The limits on concurrent calls of one event loop."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def send_when_free(self, user: str, send: Send) -> httpx.Response:
        own = self._each.get(user)
        if own is None:
            own = self._each[user] = asyncio.Semaphore(AT_ONCE_EACH)
        async with own, self._all:
            return await send()


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, _Limits] = WeakKeyDictionary()
_running: set[asyncio.Task[httpx.Response]] = set()
"""The event loop keeps only weak references to its tasks."""


class AsUser:
    def __init__(self, request: Request, user: GetUserDep) -> None:
        given = request.headers.get("authorization")
        self._authorization = given or f"Bearer {request.cookies.get(COOKIE_NAME_JWT_TOKEN, '')}"
        self._user = str(user.get_id())
        self._until: float | None = None

    async def call(self, method: str, path: str, json: Any = None, **query: Any) -> Any:
        """Return the response as JSON. `path` follows `/api/v2`."""
        answer = await self._within_time(method, path, lambda: self._send(method, f"/api/v2{path}", json, query))
        if answer.is_error:
            raise problem_of(answer, method, path)
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise AirflowUnreachable(
                f"airflow: {method} {path} returned a response that is not JSON; retry later",
                reason="not_json",
            ) from None

    async def _within_time(self, method: str, path: str, send: Send) -> httpx.Response:
        loop = asyncio.get_running_loop()
        self._until = self._until or loop.time() + LONGEST_S
        task = asyncio.create_task(_limits.setdefault(loop, _Limits()).send_when_free(self._user, send))
        _running.add(task)
        task.add_done_callback(_forget)
        try:
            await asyncio.wait({task}, timeout=max(0.0, self._until - loop.time()))
        finally:
            task.cancel()  # no effect on a task that has ended
        if not task.done():
            message = f"airflow: {method} {path} was not answered within {LONGEST_S:.0f} s; try again later"
            raise AirflowTimedOut(message, reason="timeout")
        return task.result()

    async def _send(self, method: str, path: str, json: Any, query: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(airflow_app(), raise_app_exceptions=False)
        # The transport has no timeout of its own: `call` has one.
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", timeout=None) as client:  # noqa: S113
            return await client.request(
                method, path, json=json, params=query, headers={"Authorization": self._authorization}
            )


def _forget(task: asyncio.Task[httpx.Response]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # retrieve the exception of an abandoned call, or asyncio logs it


def segment(name: str) -> str:
    """Return a name as one segment of a path. Raise `AirflowHasNone` for one that no path can lead to."""
    if "/" in name:
        raise AirflowHasNone("airflow: a name that contains a slash can't be requested", reason="slash")
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if name in (".", "..") else quoted


def airflow_app() -> Any:
    """Return the API server that runs in this process."""
    from airflow.api_fastapi.main import app

    return app


Airflow = Annotated[AsUser, Depends(AsUser)]
