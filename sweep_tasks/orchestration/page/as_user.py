"""Airflow's own REST API, asked in this process with the rights of whoever asked us.

No credential of ours is involved: the request carries the token that came with the user's. So what the page can do in
Airflow is what that user can do, and Airflow's own log of events names them.
"""

from __future__ import annotations

from typing import Annotated, Any

import anyio.from_thread
import httpx
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import Depends, Request

from sweep_tasks.orchestration.airflow_api import problem_of

_LONGEST_S = 30.0


class AsUser:
    def __init__(self, request: Request) -> None:
        given = request.headers.get("authorization")
        self._authorization = given or f"Bearer {request.cookies.get(COOKIE_NAME_JWT_TOKEN, '')}"

    def call(self, method: str, path: str, json: Any = None, **query: Any) -> Any:
        """The answer as JSON; `path` is what comes behind `/api/v2`. From a worker thread, as routes that wait are."""
        answer: httpx.Response = anyio.from_thread.run(self._send, method, f"/api/v2{path}", json, query)
        if answer.is_error:
            raise problem_of(answer, method, path)
        return answer.json() if answer.content else None

    async def _send(self, method: str, path: str, json: Any, query: dict[str, Any]) -> httpx.Response:
        from airflow.api_fastapi.main import app

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", timeout=_LONGEST_S) as client:
            return await client.request(
                method, path, json=json, params=query, headers={"Authorization": self._authorization}
            )


Airflow = Annotated[AsUser, Depends(AsUser)]
