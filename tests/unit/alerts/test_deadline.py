"""Webhooks whose server is slow on purpose, or sends too much: a real socket, and raw bytes on it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweep_tasks.alerts.channels import MOST_READ, NotDelivered, Webhook
from sweep_tasks.config import load_settings
from tests.support.receivers import HOST, Certificate, make_certificate
from tests.unit.alerts.test_channels import ALERT

TIMEOUT_S = 0.6
ENOUGH_S = 3.0
"""A server that talks for this long is not waited for."""
OK = b"HTTP/1.1 200 OK\r\n"


class Talk:
    """What a server of ours has got rid of before its client hung up."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent = 0
        self.hung_up = False


@contextmanager
def server(say: Callable[[Callable[[bytes], None]], None], certificate: Certificate | None = None) -> Iterator[Talk]:
    """Read a request and send the given answer, for one client."""
    listening = socket.create_server((HOST, 0))
    talk = Talk(f"{'https' if certificate else 'http'}://{HOST}:{listening.getsockname()[1]}/hook")

    def serve() -> None:
        plain, _ = listening.accept()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        try:
            with certificate.for_server.wrap_socket(plain, server_side=True) if certificate else plain as client:
                take_request(client)

                def send(data: bytes) -> None:
                    client.sendall(data)
                    talk.sent += len(data)

                say(send)
        except OSError:
            talk.hung_up = True

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield talk
    finally:
        thread.join(60)
        listening.close()
        assert not thread.is_alive()


def take_request(client: socket.socket) -> None:
    """The whole of it: a socket that is closed before everything was read takes back what was sent on it."""
    output = b""
    while not (length := re.search(rb"(?i)content-length: (\d+)\r\n(?:.+\r\n)*\r\n", output)):
        output += client.recv(65_536)
    while len(output) < length.end() + int(length[1]):
        output += client.recv(65_536)


def drip(data: bytes) -> Callable[[Callable[[bytes], None]], None]:
    """A byte at a time, each well before a socket of a client would time out."""

    def say(send: Callable[[bytes], None]) -> None:
        until = time.monotonic() + 2 * ENOUGH_S
        while time.monotonic() < until:
            for byte in data:
                send(bytes([byte]))
                time.sleep(TIMEOUT_S / 6)

    return say


def post(url: str, **more: object) -> float:
    """How long it took."""
    began = time.monotonic()
    try:
        Webhook(load_settings(alert_webhook_url=url, alert_timeout_s=TIMEOUT_S, **more)).send(ALERT)
    finally:
        took = time.monotonic() - began
        assert took < ENOUGH_S
    return took


@pytest.mark.parametrize(
    "slow", [b"HTTP/1.1 200 " + b"O" * 99, OK + b"X-Slow: " + b"x" * 99], ids=["status", "headers"]
)
def test_a_server_that_begins_to_answer_byte_by_byte_is_given_up_on(slow: bytes) -> None:
    with server(drip(slow)) as talk, pytest.raises(NotDelivered) as failed:
        post(talk.url)
    assert (failed.value.field, failed.value.reason) == ("alert_webhook_url", "unreachable")
    assert failed.value.retryable


def test_the_deadline_holds_for_an_encrypted_exchange_too(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with server(drip(b"HTTP/1.1 200 " + b"O" * 99), certificate) as talk, pytest.raises(NotDelivered) as failed:
        post(talk.url, alert_ca_file=certificate.file)
    assert failed.value.reason == "unreachable"


def test_the_deadline_holds_for_the_lookup_of_the_host_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system can't be made slow for one process, so the call of it is."""
    waiting, over = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        waiting.set()
        over.wait(2 * ENOUGH_S)
        raise socket.gaierror(socket.EAI_AGAIN, "not found in time")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with pytest.raises(NotDelivered) as failed:
            post("http://hook.example.org/hook")
        assert waiting.is_set()
        assert (failed.value.reason, failed.value.retryable) == ("unreachable", True)
        (lookup,) = (each for each in threading.enumerate() if each.name == "lookup")
        assert lookup.daemon, "the end of the process does not wait for it"
    finally:
        over.set()
    lookup.join(60)
    assert not lookup.is_alive()


def test_a_host_name_is_looked_up() -> None:
    with server(lambda send: send(OK + b"Content-Length: 2\r\n\r\nok")) as talk:
        assert post(talk.url.replace(HOST, "localhost")) < TIMEOUT_S


def test_a_host_that_does_not_exist_is_unreachable() -> None:
    with pytest.raises(NotDelivered) as failed:
        post("http://no-such-host.invalid/hook")
    assert (failed.value.field, failed.value.reason) == ("alert_webhook_url", "unreachable")


def test_one_that_has_accepted_the_alert_is_not_waited_for_nor_sent_it_again() -> None:
    def accept(send: Callable[[bytes], None]) -> None:
        send(OK + b"Content-Length: 99999\r\n\r\n")
        drip(b"x" * 99)(send)

    with server(accept) as talk:
        assert post(talk.url) >= TIMEOUT_S


def test_no_more_of_an_answer_is_read_than_needed() -> None:
    endless = 64 * 1024 * 1024

    def talk_on(send: Callable[[bytes], None]) -> None:
        send(OK + b"\r\n")
        for _ in range(endless // 4096):
            send(b"x" * 4096)

    with server(talk_on) as talk:
        post(talk.url)
    assert talk.hung_up
    assert talk.sent < endless / 4
    assert MOST_READ == 65_536


def test_a_whole_answer_is_read_and_nothing_is_waited_for() -> None:
    with server(lambda send: send(OK + b"Content-Length: 2\r\n\r\nok")) as talk:
        assert post(talk.url) < TIMEOUT_S
