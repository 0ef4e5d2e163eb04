"""How often the same problem is reported."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sweep_tasks.alerts.delivery import send_if_new
from sweep_tasks.orchestration.names import COMPACTION, PROTECTED_TIMESTAMPS


class Sender:
    def __init__(self, goes_out: bool = True) -> None:
        self.sent = 0
        self.goes_out = goes_out

    def __call__(self) -> bool:
        self.sent += 1
        return self.goes_out


@pytest.fixture
def settled(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    return monkeypatch


@pytest.fixture
def send() -> Sender:
    return Sender()


@pytest.mark.usefixtures("settled")
def test_a_lasting_problem_is_reported_once(send: Sender) -> None:
    for _ in range(3):
        send_if_new(["record a gone"], send)
    assert send.sent == 1


@pytest.mark.usefixtures("settled")
def test_a_new_problem_beside_an_old_one_is_reported(send: Sender) -> None:
    send_if_new(["record a gone"], send)
    send_if_new(["record a gone", "record b gone"], send)
    send_if_new(["record b gone"], send)
    assert send.sent == 2


@pytest.mark.usefixtures("settled")
def test_an_undelivered_problem_is_reported_the_next_time(send: Sender) -> None:
    send_if_new(["record a gone"], Sender(goes_out=False))
    send_if_new(["record a gone"], send)
    assert send.sent == 1


@pytest.mark.usefixtures("settled")
def test_a_failure_without_a_known_problem_is_reported_every_time(send: Sender) -> None:
    for _ in range(2):
        send_if_new([], send)
    assert send.sent == 2


def test_each_run_can_be_reported(settled: pytest.MonkeyPatch, send: Sender) -> None:
    settled.setenv("SWEEPFLOW_PROTECTION_ALERT_AGAIN_S", "0")
    for _ in range(2):
        send_if_new(["record a gone"], send)
    assert send.sent == 2


def test_an_unreachable_store_suppresses_no_alert(settled: pytest.MonkeyPatch, send: Sender) -> None:
    settled.setenv("SWEEPFLOW_STORE", "sqlite:////nowhere/at/all.db")
    with capture_logs() as logs:
        send_if_new(["record a gone"], send)
    assert send.sent == 1
    assert (logs[0]["log_level"], logs[0]["code"], logs[0]["error"]) == ("warning", "memory_unavailable", "unavailable")


@pytest.mark.usefixtures("settled")
def test_a_report_about_one_dag_suppresses_no_other(send: Sender) -> None:
    for _ in range(2):
        send_if_new(["the same"], send, COMPACTION)
        send_if_new(["the same"], send, PROTECTED_TIMESTAMPS)
    assert send.sent == 2


def test_each_dag_has_its_own_time_after_which_it_reports_again(settled: pytest.MonkeyPatch, send: Sender) -> None:
    settled.setenv("SWEEPFLOW_COMPACTION_ALERT_AGAIN_S", "0")
    for _ in range(2):
        send_if_new(["the same"], send, COMPACTION)
    assert send.sent == 2
