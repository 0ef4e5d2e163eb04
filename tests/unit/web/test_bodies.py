"""A request body is a small form or empty, and that is checked before the user is."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from sweep_tasks.web import application
from sweep_tasks.web.application import FORM, HEADERS, MOST_BYTES, MOST_SECONDS
from tests.unit.web.http_client import mounted, problem_of, with_web_client

pytestmark = pytest.mark.usefixtures("users")

TOO_LARGE = (413, "too_large", None, "body")
TOO_SLOW = (408, "too_slow", None, "body")
NOT_A_FORM = (415, "not_a_form", None, "content_type")
NOT_LOGGED_IN = (401, "not_logged_in", None, None)


def sent(content: Any, **headers: str) -> httpx.Response:
    """By a stranger."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(with_web_client(None, lambda one: one.post("/sweepflow/pauses", content=content, headers=named)))


@pytest.mark.parametrize(
    "kind", ["application/json", "multipart/form-data; boundary=x", "text/plain", "", FORM + "x", f"text/html; {FORM}"]
)
def test_what_is_no_form_is_refused(kind: str) -> None:
    assert problem_of(sent(b"{}", content_type=kind)) == NOT_A_FORM
    assert problem_of(sent(b"{}")) == NOT_A_FORM


@pytest.mark.parametrize("kind", [FORM, f"{FORM}; charset=utf-8", FORM.title()])
def test_a_form_gets_as_far_as_the_login(kind: str) -> None:
    assert problem_of(sent(b"reason=x", content_type=kind)) == NOT_LOGGED_IN
    assert problem_of(sent(b"x" * MOST_BYTES, content_type=kind)) == NOT_LOGGED_IN


def test_nothing_at_all_gets_as_far_as_the_login() -> None:
    assert problem_of(sent(b"")) == NOT_LOGGED_IN
    assert problem_of(sent(b"", content_type="application/json")) == NOT_LOGGED_IN


def test_more_than_a_form_has_is_refused_by_what_it_declares() -> None:
    assert problem_of(sent(b"x" * (MOST_BYTES + 1), content_type=FORM)) == TOO_LARGE
    assert problem_of(sent(b"", content_type=FORM, content_length="9" * 5_000)) == TOO_LARGE


def test_a_body_without_a_declared_length_is_limited_by_what_arrives() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MOST_BYTES // 1024 + 1):
            yield b"x" * 1024

    answer = sent(chunks(), content_type=FORM)
    assert "content-length" not in answer.request.headers
    assert problem_of(answer) == TOO_LARGE


@pytest.mark.parametrize("declared", [b"10", b"0", b"-1", b"many", "¹".encode()])
def test_a_body_larger_than_declared_is_refused_without_reading_on(declared: bytes) -> None:
    chunk, read, answered = b"x" * 40_000, 0, []

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        answered.append(message.get("status"))

    headers = [(b"content-type", FORM.encode()), (b"content-length", declared), (b"host", b"airflow.example")]
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": "/sweepflow/pauses",
        "raw_path": b"/sweepflow/pauses", "query_string": b"", "root_path": "", "headers": headers,
        "server": ("airflow.example", 80), "client": ("10.0.0.1", 5),
    }  # fmt: skip
    asyncio.run(mounted()(scope, receive, send))  # type: ignore[arg-type]
    assert (answered[0], read) == (413, 2)


def test_a_body_that_does_not_arrive_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"reason="
        await asyncio.sleep(60)

    assert MOST_SECONDS == 10
    monkeypatch.setattr(application, "MOST_SECONDS", 0.05)
    assert problem_of(sent(trickle(), content_type=FORM)) == TOO_SLOW


@pytest.mark.parametrize("protocol", ["httptools", "h11"])
def test_a_client_whose_body_is_refused_can_not_keep_the_connection(protocol: str) -> None:
    """By the server that Airflow runs: a client that continues to send would keep it open for ever."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(mounted(), http=protocol, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        with socket.create_connection(listening.getsockname(), timeout=0.1) as client:
            client.sendall(
                b"POST /sweepflow/pauses HTTP/1.1\r\nHost: airflow.example\r\nContent-Type: text/plain\r\n"
                b"Content-Length: 60000\r\n\r\nx"
            )
            answer, until = b"", time.monotonic() + 30
            while time.monotonic() < until:
                try:
                    client.sendall(b"x")
                    more = client.recv(65_536)
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
                if not more:
                    break
                answer += more
            assert time.monotonic() < until, "the connection is still open"
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert b"\r\nconnection: close\r\n" in answer.lower()
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


def test_a_get_request_cannot_have_a_larger_body() -> None:
    answer = asyncio.run(
        with_web_client(
            None, lambda one: one.request("GET", "/sweepflow/", content=b"{}", headers={"Content-Type": "a/b"})
        )
    )
    assert problem_of(answer) == NOT_A_FORM


def test_these_answers_have_the_security_headers() -> None:
    answer = sent(b"{}", content_type="application/json")
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
