"""Airflow's own REST API, asked in this process with the rights of whoever asked us.

No credential of ours is involved: the request carries the token that came with the user's. So what the page can do in
Airflow is what that user can do, and Airflow's own log of events names them.

Airflow answers in one of the few threads that its server has, with one of the few connections to its database. Whoever
waits for an answer must not hold a thread: as many visitors as there are threads would wait for each other for ever. So
this is awaited, never for long, and a few calls at a time: the others wait here, where that costs nobody anything.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import httpx
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import Depends, Request

from sweep_tasks.errors import AirflowUnreachable
from sweep_tasks.orchestration.airflow_api import problem_of

LONGEST_S = 20.0
AT_ONCE = 4
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class AsUser:
    def __init__(self, request: Request) -> None:
        given = request.headers.get("authorization")
        self._authorization = given or f"Bearer {request.cookies.get(COOKIE_NAME_JWT_TOKEN, '')}"

    async def call(self, method: str, path: str, json: Any = None, **query: Any) -> Any:
        """The answer as JSON; `path` is what comes behind `/api/v2`."""
        try:
            async with _turn():
                answer = await asyncio.wait_for(self._send(method, f"/api/v2{path}", json, query), LONGEST_S)
        except TimeoutError:
            raise AirflowUnreachable(
                f"airflow: {method} {path} was not answered within {LONGEST_S:.0f} s; try again later",
                reason="timeout",
            ) from None
        if answer.is_error:
            raise problem_of(answer, method, path)
        return answer.json() if answer.content else None

    async def _send(self, method: str, path: str, json: Any, query: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(airflow_app(), raise_app_exceptions=False)
        # The transport knows no time-out of its own: `call` has one.
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", timeout=None) as client:  # noqa: S113
            return await client.request(
                method, path, json=json, params=query, headers={"Authorization": self._authorization}
            )


def _turn() -> asyncio.Semaphore:
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


def airflow_app() -> Any:
    """The server that this process runs."""
    from airflow.api_fastapi.main import app

    return app


Airflow = Annotated[AsUser, Depends(AsUser)]
