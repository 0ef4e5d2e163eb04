"""Alerts over real connections: what arrives, what is tried again, what is not, and what never leaves."""

from __future__ import annotations

import email.header
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sweep_tasks.alerts.channels import Mail, Webhook, configured, deliver
from sweep_tasks.alerts.message import AFTER_FAILURE, Alert, AlertKind
from sweep_tasks.config import Settings, load_settings
from tests.support.lines import words_in
from tests.support.receivers import HOST, Certificate, free_port, mail_server, make_certificate, web_server

LINK = "https://airflow.example/dags/targeted_sweep/runs/manual__1"
TASKS = ("conservative_0", "thorough_1")
ALERT = Alert("targeted_sweep", "manual__1", AlertKind.FAILED, "failed", AFTER_FAILURE, LINK, TASKS)
ADDRESSES = {"alert_smtp_from": "sweepflow@example.org", "alert_smtp_to": "one@example.org, two@example.org"}
LOGIN = {"alert_smtp_user": "sweeper", "alert_smtp_password": "open sesame"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def why(line: Any) -> tuple[Any, ...]:
    """Which setting of which channel kept the alert from being delivered, and how."""
    assert (line["log_level"], line["code"], line["alert"]) == ("error", "not_delivered", ALERT.key)
    return (line["channel"], line["field"], line["reason"], line["status"])


def by_mail(port: int, mode: str, **more: Any) -> Settings:
    return load_settings(alert_smtp_host=HOST, alert_smtp_port=port, alert_smtp_tls=mode, **ADDRESSES, **more)


class TestMail:
    def test_it_arrives_with_run_tasks_advice_and_link(self) -> None:
        with mail_server("none") as box:
            assert deliver(Mail(by_mail(box.port, "none")), ALERT, attempts=1)
        (mail,) = box.mails
        subject = str(email.header.make_header(email.header.decode_header(mail["Subject"])))
        assert subject == ALERT.subject
        assert all(name in words_in(subject) for name in ("[sweepflow]", "targeted_sweep", "manual__1", "failed"))
        assert mail["From"] == "sweepflow@example.org"
        assert box.recipients == ["one@example.org", "two@example.org"]
        body = bytes(mail.get_payload(decode=True)).decode()
        assert body.replace("\r\n", "\n").rstrip("\n") == ALERT.text
        assert ", ".join(TASKS) in body
        assert LINK in body

    @pytest.mark.parametrize("mode", ["starttls", "tls"])
    def test_it_is_encrypted_and_logged_in(self, mode: str, certificate: Certificate) -> None:
        with mail_server(mode, certificate) as box:
            assert deliver(Mail(by_mail(box.port, mode, alert_ca_file=certificate.file, **LOGIN)), ALERT, attempts=1)
        assert len(box.mails) == 1
        assert box.logins == [(b"sweeper", b"open sesame")]
        if mode == "starttls":
            assert box.encrypted == [True]

    @pytest.mark.parametrize("mode", ["starttls", "tls"])
    def test_a_server_that_is_not_trusted_gets_neither_password_nor_mail(
        self, mode: str, certificate: Certificate, lines: list[Any]
    ) -> None:
        with mail_server(mode, certificate) as box:
            assert not deliver(Mail(by_mail(box.port, mode, **LOGIN)), ALERT, attempts=3)
        assert (box.logins, box.mails) == ([], [])
        assert why(lines[-1]) == ("mail", "alert_ca_file", "tls_failed", None)

    def test_a_wrong_password_is_not_tried_again_and_not_shown(
        self, certificate: Certificate, lines: list[Any]
    ) -> None:
        wrong = {"alert_smtp_user": "sweeper", "alert_smtp_password": "open barley"}
        with mail_server("starttls", certificate) as box:
            settings = by_mail(box.port, "starttls", alert_ca_file=certificate.file, **wrong)
            assert not deliver(Mail(settings), ALERT, attempts=3)
        assert len(set(box.logins)) == 1
        assert box.mails == []
        assert why(lines[-1]) == ("mail", "alert_smtp_host", "login_refused", 535)
        assert "barley" not in str(lines)

    def test_a_server_that_is_busy_is_asked_again(self) -> None:
        with mail_server("none", refuse=["451 later"]) as box:
            assert deliver(Mail(by_mail(box.port, "none")), ALERT, attempts=2)
        assert len(box.mails) == 1

    def test_a_permanent_refusal_is_not_retried(self, lines: list[Any]) -> None:
        with mail_server("none", refuse=["554 never", "250 would have been kept"]) as box:
            assert not deliver(Mail(by_mail(box.port, "none")), ALERT, attempts=3)
        assert why(lines[-1]) == ("mail", "alert_smtp_host", "message_refused", 554)

    def test_a_server_without_encryption_gets_nothing_when_it_was_asked_for(self, lines: list[Any]) -> None:
        with mail_server("none") as box:
            assert not deliver(Mail(by_mail(box.port, "starttls", **LOGIN)), ALERT, attempts=1)
        assert box.mails == []
        assert why(lines[-1]) == ("mail", "alert_smtp_tls", "not_supported", None)

    def test_an_unreachable_server_is_named(self, lines: list[Any]) -> None:
        port = free_port()
        assert not deliver(Mail(by_mail(port, "none")), ALERT, attempts=2)
        assert why(lines[-1]) == ("mail", "alert_smtp_host", "unreachable", None)
        assert lines[-1]["server"] == f"{HOST}:{port}"

    def test_a_mail_sent_again_has_the_same_id(self) -> None:
        with mail_server("none") as box:
            for _ in range(2):
                Mail(by_mail(box.port, "none")).send(ALERT)
        assert box.mails[0]["Message-ID"] == box.mails[1]["Message-ID"]


class TestWebhook:
    def test_the_whole_alert_is_posted_as_json(self) -> None:
        with web_server() as hook:
            assert deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=1)
        (post,) = hook.posts
        assert post.path == "/hooks/s3cr3t-path"
        assert post.headers["Content-Type"] == "application/json"
        assert "Authorization" not in post.headers
        assert post.document == {
            "id": "targeted_sweep/manual__1/0",
            "dag": "targeted_sweep",
            "run": "manual__1",
            "kind": "failed",
            "happened": "failed",
            "error": None,
            "deadline": None,
            "failed_tasks": ["conservative_0", "thorough_1"],
            "what_to_do": AFTER_FAILURE,
            "link": LINK,
            "text": ALERT.text,
        }

    def test_a_token_is_sent_over_an_encrypted_connection(self, certificate: Certificate) -> None:
        with web_server(certificate=certificate) as hook:
            encrypted = {"alert_webhook_token": "t0ken", "alert_ca_file": certificate.file}
            settings = load_settings(alert_webhook_url=hook.url, **encrypted)
            assert deliver(Webhook(settings), ALERT, attempts=1)
        assert hook.posts[0].headers["Authorization"] == "Bearer t0ken"

    def test_a_server_that_is_not_trusted_gets_nothing(self, certificate: Certificate, lines: list[Any]) -> None:
        with web_server(certificate=certificate) as hook:
            assert not deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=3)
        assert hook.posts == []
        assert why(lines[-1]) == ("webhook", "alert_ca_file", "tls_failed", None)

    @pytest.mark.parametrize("status", [500, 503, 429])
    def test_a_server_in_trouble_is_asked_again(self, status: int) -> None:
        with web_server([status, status]) as hook:
            assert deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=3)
        assert len(hook.posts) == 3
        assert len({post.headers["Idempotency-Key"] for post in hook.posts}) == 1

    @pytest.mark.parametrize("status", [400, 403, 404])
    def test_a_refused_message_is_not_delivered_and_its_address_is_not_shown(
        self, status: int, lines: list[Any]
    ) -> None:
        with web_server([status]) as hook:
            assert not deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=3)
        assert len(hook.posts) == 1
        assert why(lines[-1]) == ("webhook", "alert_webhook_url", "bad_status", status)
        assert "s3cr3t" not in str(lines)

    def test_a_redirection_is_not_followed(self, lines: list[Any]) -> None:
        with web_server([302]) as hook:
            assert not deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=1)
        assert [post.path for post in hook.posts] == ["/hooks/s3cr3t-path"]
        assert why(lines[-1]) == ("webhook", "alert_webhook_url", "bad_status", 302)

    def test_tries_are_bounded(self) -> None:
        with web_server([500] * 9) as hook:
            assert not deliver(Webhook(load_settings(alert_webhook_url=hook.url)), ALERT, attempts=2)
        assert len(hook.posts) == 2

    @pytest.mark.parametrize(
        ("field", "reason", "broken"),
        [
            ("alert_webhook_url", "not_an_address", {"alert_webhook_url": "http://s3cr3t host/with a blank"}),
            ("alert_webhook_url", "unreachable", {"alert_webhook_url": f"http://{HOST}:1/s3cr3t"}),
            (
                "alert_webhook_token",
                "not_sendable",
                {"alert_webhook_url": f"https://{HOST}:1/s3cr3t", "alert_webhook_token": "s3cr3t\nInjected: yes"},
            ),
            (
                "alert_ca_file",
                "unreadable",
                {"alert_webhook_url": f"https://{HOST}/s3cr3t", "alert_ca_file": "/nowhere/ca.pem"},
            ),
        ],
    )
    def test_whatever_is_wrong_is_logged_without_a_secret(
        self, field: str, reason: str, broken: dict[str, str], lines: list[Any]
    ) -> None:
        assert not deliver(Webhook(load_settings(**broken)), ALERT, attempts=1)
        (line,) = lines
        assert why(line) == ("webhook", field, reason, None)
        assert "s3cr3t" not in str(line)


class TestConfigured:
    def test_without_settings_there_is_the_log_alone(self) -> None:
        assert list(configured(load_settings())) == []
        assert list(configured(load_settings(alert_smtp_host="", alert_webhook_url=""))) == []

    def test_both_are_read_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"SMTP_HOST": "mail", "WEBHOOK_URL": "https://hook", "SMTP_FROM": "me@example.org"}.items():
            monkeypatch.setenv(f"SWEEPFLOW_ALERT_{name}", value)
        monkeypatch.setenv("SWEEPFLOW_ALERT_SMTP_TO", "one@example.org,two@example.org")
        settings = load_settings()
        assert [channel.name for channel in configured(settings)] == ["mail", "webhook"]
        assert settings.alert_smtp_to == ("one@example.org", "two@example.org")

    def test_both_are_read_from_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "sweepflow.toml"
        file.write_text('alert_smtp_host = "mail"\nalert_smtp_from = "a@b"\nalert_smtp_to = ["c@d", "e@f"]\n')
        monkeypatch.setenv("SWEEPFLOW_CONFIG", str(file))
        assert load_settings().alert_smtp_to == ("c@d", "e@f")
