"""The conclusions from the answers of a Spark master and a history server, or from missing ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import OwnerSilent
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.owners import HISTORY, MASTER, SparkAppOwner, concluded
from sweep_tasks.protection.owners import SPARK_APP, Answer
from sweep_tasks.protection.records import Mode, Record, Target
from tests.support.lines import values_in
from tests.support.receivers import HOST, free_port

RUNNING, FINISHED, GONE = Answer.RUNNING, Answer.FINISHED, Answer.GONE
SILENT = OwnerSilent("spark: nothing")


@pytest.mark.parametrize(
    ("master", "history", "conclusion"),
    [
        (RUNNING, None, RUNNING),
        (FINISHED, None, FINISHED),
        (GONE, None, GONE),
        (None, RUNNING, RUNNING),
        (None, FINISHED, FINISHED),
        (None, GONE, GONE),
        (RUNNING, GONE, RUNNING),
        (RUNNING, SILENT, RUNNING),
        (GONE, FINISHED, FINISHED),
        (GONE, RUNNING, GONE),
        (GONE, GONE, GONE),
        (FINISHED, SILENT, FINISHED),
        (SILENT, FINISHED, FINISHED),
        (SILENT, RUNNING, RUNNING),
    ],
)
def test_the_answers_of_both_servers_are_combined(
    master: Answer | OwnerSilent | None, history: Answer | OwnerSilent | None, conclusion: Answer
) -> None:
    assert concluded(master, history) is conclusion


@pytest.mark.parametrize(
    ("master", "history"), [(SILENT, None), (None, SILENT), (SILENT, GONE), (GONE, SILENT), (SILENT, SILENT)]
)
def test_an_app_is_not_finished_while_one_server_does_not_answer(
    master: Answer | OwnerSilent | None, history: Answer | OwnerSilent | None
) -> None:
    with pytest.raises(OwnerSilent):
        concluded(master, history)


def ask(**pages: Any) -> Answer:
    owner = SparkAppOwner(Settings(**pages))
    try:
        targets = (Target(TableRef.parse("app.items")),)
        return owner.answer(Record("a", 50, Mode.AT, targets, meta_type=SPARK_APP, meta={"app_id": "app-1"}))
    finally:
        owner.close()


@contextmanager
def page(status: int, text: bytes) -> Iterator[str]:
    """A web server that is none of Spark's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://user:pa55@{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_without_an_address_the_settings_are_named() -> None:
    with pytest.raises(OwnerSilent) as error:
        ask()
    assert error.value.reason == "not_configured"
    assert all(setting in str(error.value) for setting in (MASTER, HISTORY))


@pytest.mark.parametrize("setting", ["spark_master_ui_url", "spark_history_url"])
def test_an_unreachable_or_invalid_address_is_named_by_its_setting(setting: str) -> None:
    for address in (f"http://{HOST}:{free_port()}", "not an address"):
        with pytest.raises(OwnerSilent) as error:
            ask(**{setting: address})
        assert (error.value.field, error.value.reason) == (setting, "no_answer")
        assert setting in str(error.value)


@pytest.mark.parametrize("setting", ["spark_master_ui_url", "spark_history_url"])
@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (500, b"", "bad_status"),
        (200, b"<html>", "no_answer"),
        (200, b"{}", "not_spark"),
        (200, b"[]", "not_spark"),
        (200, b'{"attempts":[]}', "not_spark"),
    ],
)
def test_a_page_that_is_not_spark_says_nothing_about_an_application(
    setting: str, status: int, text: bytes, reason: str
) -> None:
    with page(status, text) as address, pytest.raises(OwnerSilent) as error:
        ask(**{setting: address})
    assert (error.value.field, error.value.reason) == (setting, reason)
    assert setting in str(error.value)
    assert "pa55" not in str(error.value)


def test_a_master_without_this_page_does_not_count() -> None:
    with page(404, b"") as address, pytest.raises(OwnerSilent) as error:
        ask(spark_master_ui_url=address)
    assert (error.value.field, error.value.reason) == (MASTER, "bad_status")
    assert values_in(str(error.value)) == ["404"]
