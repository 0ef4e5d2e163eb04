"""Asking the server that we are part of."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio.to_thread
import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI, Request

from sweep_tasks.errors import AirflowHasNone, AirflowTimedOut, AirflowUnreachable
from sweep_tasks.web import as_user
from sweep_tasks.web.as_user import AsUser, segment

server = FastAPI()
recorded = threading.Event()


@server.get("/api/v2/quick")
def quick(request: Request) -> dict[str, Any]:
    """In a thread, as Airflow answers."""
    time.sleep(0.01)
    return {"authorization": request.headers["authorization"]}


@server.get("/api/v2/never")
async def never() -> None:
    await asyncio.sleep(3_600)


@server.get("/api/v2/stuck")
def stuck() -> None:
    """In a thread, which can't be interrupted."""
    recorded.set()
    time.sleep(2)


@server.get("/api/v2/names/{name}/end")
async def named(name: str) -> str:
    return name


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "airflow_app", lambda: server)


def web_client(user: str = "ada") -> AsUser:
    request = Request({"type": "http", "headers": [(b"authorization", b"Bearer mine")]})
    return AsUser(request, SimpleAuthManagerUser(username=user, role="viewer"))


def test_more_clients_than_threads_are_all_answered_as_their_own_user() -> None:
    async def all_users() -> list[Any]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
        return await asyncio.wait_for(asyncio.gather(*(web_client().call("GET", "/quick") for _ in range(20))), 30)

    assert asyncio.run(all_users()) == [{"authorization": "Bearer mine"}] * 20


def test_no_call_waits_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "LONGEST_S", 0.05)
    with pytest.raises(AirflowUnreachable) as refused:
        asyncio.run(web_client().call("GET", "/never"))
    assert refused.value.reason == "timeout"


def test_no_call_waits_forever_for_a_stuck_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "LONGEST_S", 0.5)

    async def wait() -> float:
        began = time.perf_counter()
        with pytest.raises(AirflowTimedOut):
            await web_client().call("GET", "/stuck")
        return time.perf_counter() - began

    assert asyncio.run(wait()) < 1.5
    assert recorded.is_set()


def test_the_time_is_for_all_calls_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "LONGEST_S", 0.3)

    async def ask() -> int:
        asking = web_client()
        for answered in range(31):
            try:
                await asking.call("GET", "/quick")
            except AirflowTimedOut:
                return answered
        return 31

    assert 1 <= asyncio.run(ask()) <= 30


def test_calls_of_one_user_that_hang_leave_some_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "LONGEST_S", 5.0)

    async def meet() -> Any:
        hanging = [asyncio.create_task(web_client("ada").call("GET", "/never")) for _ in range(as_user.AT_ONCE)]
        await asyncio.sleep(0.05)
        found = await asyncio.wait_for(web_client("bob").call("GET", "/quick"), 3)
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        return found

    assert asyncio.run(meet()) == {"authorization": "Bearer mine"}


@pytest.mark.parametrize("name", ["..", ".", "...", "manual__2026-01-01T00:00:00+00:00", "a b?c#d%2e", "\x1b"])
def test_a_name_is_one_segment_of_a_path(name: str) -> None:
    assert asyncio.run(web_client().call("GET", f"/names/{segment(name)}/end")) == name


def test_no_path_leads_to_a_name_with_a_slash() -> None:
    with pytest.raises(AirflowHasNone) as refused:
        segment("a/../b")
    assert refused.value.reason == "slash"


def test_a_missing_object_has_its_own_error() -> None:
    with pytest.raises(AirflowHasNone) as refused:
        asyncio.run(web_client().call("GET", "/nothing"))
    assert refused.value.status == 404
