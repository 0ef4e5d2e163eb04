"""Users of an Airflow who ask for the page, each with a login and rights of their own.

The page, Airflow's guards, its logins and its database are the real ones; only the rights of each user on each DAG
are defined here, by an auth manager.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, ClassVar, TypeVar

import httpx
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI

from sweep_tasks.orchestration.names import PROTECTED_TIMESTAMPS, TARGETED_SWEEP
from sweep_tasks.web.application import page_app
from tests.support.html import Element

T = TypeVar("T")
ADA, BOB, SWEEPER, KEEPER, VIEWER = "ada", "bob", "sweeper", "keeper", "viewer"
_SEE = {("GET", TARGETED_SWEEP), ("GET", PROTECTED_TIMESTAMPS)}
_SWEEP, _KEEP = ("PUT", TARGETED_SWEEP), ("PUT", PROTECTED_TIMESTAMPS)


class RightsByDag(SimpleAuthManager):
    rights: ClassVar[dict[str, set[tuple[str, str]]]] = {
        ADA: {*_SEE, _SWEEP, _KEEP},
        BOB: {*_SEE, _SWEEP, _KEEP},
        SWEEPER: {*_SEE, _SWEEP},
        KEEPER: {*_SEE, _KEEP},
        VIEWER: _SEE,
    }

    def is_authorized_dag(self, *, method: str, user: Any, details: Any = None, **_: Any) -> bool:
        return details is not None and (method, details.id) in self.rights[user.username]


def login(user: str) -> dict[str, str]:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role="viewer"))
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def web_client(user: str | None = ADA, server: FastAPI | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A user with a browser. An unexpected error is a response with status 500."""
    transport = httpx.ASGITransport(server or _server(), raise_app_exceptions=False)
    headers = {"Accept": "text/html"} | (login(user) if user else {})
    async with httpx.AsyncClient(transport=transport, base_url="http://airflow.example", headers=headers) as client:
        yield client


def mounted() -> FastAPI:
    """As Airflow mounts it."""
    server = FastAPI()
    server.mount("/sweepflow", page_app())
    return server


_server = cache(mounted)


async def with_web_client(user: str | None, ask: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    async with web_client(user) as client:
        return await ask(client)


async def form_of(client: httpx.AsyncClient, path: str, **query: str) -> dict[str, str]:
    """The hidden fields of a form, as a browser sends them."""
    answer = await client.get(f"/sweepflow/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return {field["name"]: field["value"] for field in Element.of(answer.text).all("type", "hidden")}


def problem_of(answer: httpx.Response) -> tuple[int, str, str | None, str | None]:
    """Status, code, field and reason of what a person is shown, in a sentence or more."""
    problem = Element.of(answer.text).one("data-problem")
    assert problem.text
    given = problem.attributes
    return answer.status_code, given["data-problem"], given.get("data-field"), given.get("data-reason")
