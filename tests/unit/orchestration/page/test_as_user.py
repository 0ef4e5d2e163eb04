"""Asking the server that we are part of."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anyio.to_thread
import pytest
from fastapi import FastAPI, Request

from sweep_tasks.errors import AirflowHasNone, AirflowUnreachable
from sweep_tasks.orchestration.page import as_user
from sweep_tasks.orchestration.page.as_user import AsUser

server = FastAPI()


@server.get("/api/v2/quick")
def quick(request: Request) -> dict[str, Any]:
    """In a thread, as Airflow answers."""
    time.sleep(0.01)
    return {"told": request.headers["authorization"]}


@server.get("/api/v2/never")
async def never() -> None:
    await asyncio.sleep(3_600)


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "airflow_app", lambda: server)


def visitor() -> AsUser:
    return AsUser(Request({"type": "http", "headers": [(b"authorization", b"Bearer mine")]}))


def test_more_visitors_than_threads_are_all_answered_as_who_they_are() -> None:
    async def everybody() -> list[Any]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
        return await asyncio.wait_for(asyncio.gather(*(visitor().call("GET", "/quick") for _ in range(20))), 30)

    assert asyncio.run(everybody()) == [{"told": "Bearer mine"}] * 20


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "LONGEST_S", 0.05)
    with pytest.raises(AirflowUnreachable) as refused:
        asyncio.run(visitor().call("GET", "/never"))
    assert refused.value.reason == "timeout"


def test_what_is_not_there_is_an_error_of_its_own() -> None:
    with pytest.raises(AirflowHasNone) as refused:
        asyncio.run(visitor().call("GET", "/nothing"))
    assert refused.value.status == 404
