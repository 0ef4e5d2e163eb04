"""An HTTP client that requests pages from the API server, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.local.airflow_environment import Login


@contextmanager
def client(airflow: LocalAirflow, login: Login | None = None) -> Iterator[httpx.Client]:
    """As a browser that has logged in: with the cookie."""
    with httpx.Client(base_url=airflow.address, timeout=60) as created:
        if login:
            created.cookies.set("_token", token_of(created, login))
        yield created


def token_of(asking: httpx.Client, login: Login) -> str:
    answer = asking.post("/auth/token", json={"username": login.user, "password": login.password})
    token: str = answer.json()["access_token"]
    return token
