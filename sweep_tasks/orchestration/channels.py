"""The ways an alert goes out: the log always, mail and a webhook where they are configured.

Each is tried a few times and within a time that leaves Airflow's own limit for callbacks (50 s) alone. What is worth
another try is told apart from what is not: a server that is away may come back, a wrong password stays wrong.
Whatever goes wrong becomes a `NotDelivered` with a sentence of our own. The original is dropped: it may quote a
server, an address that is itself the secret, or a header.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Protocol

import structlog
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.orchestration.alert import Alert

log = structlog.get_logger(__name__)

GIVE_UP_AFTER_S = 15.0
_SLOW_DOWN = 429


class NotDelivered(SweepflowError):
    """An alert did not go out on this channel."""

    code = "not_delivered"

    def __init__(
        self,
        sentence: str,
        worth_another_try: bool,
        *,
        field: str,
        reason: str,
        server: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(sentence, field=field, reason=reason)
        self.worth_another_try = worth_another_try
        self.server = server
        """Of mail alone: the address of a webhook is a secret."""
        self.status = status


class Channel(Protocol):
    name: str

    def send(self, alert: Alert) -> None:
        """Once; raises `NotDelivered`."""


def configured(settings: Settings) -> Sequence[Channel]:
    """Beyond the log."""
    channels: list[Channel] = []
    if settings.alert_smtp_host:
        channels.append(Mail(settings))
    if settings.alert_webhook_url:
        channels.append(Webhook(settings))
    return channels


def deliver(channel: Channel, alert: Alert, attempts: int) -> bool:
    """With another try where that may help; a failure is logged, never raised."""
    retrying = Retrying(
        stop=stop_after_attempt(attempts) | stop_after_delay(GIVE_UP_AFTER_S),
        wait=wait_random_exponential(multiplier=0.5, max=4),
        retry=retry_if_exception(lambda error: isinstance(error, NotDelivered) and error.worth_another_try),
        reraise=True,
    )
    try:
        retrying(channel.send, alert)
    except NotDelivered as error:
        log.error(
            f"the alert about {alert.key} did not go out by {channel.name}: {error}",
            code=error.code,
            alert=alert.key,
            channel=channel.name,
            field=error.field,
            reason=error.reason,
            server=error.server,
            status=error.status,
        )
        return False
    except Exception as error:
        log.error(
            f"the alert about {alert.key} did not go out by {channel.name}: a defect ({type(error).__name__})",
            code="defect",
            alert=alert.key,
            channel=channel.name,
        )
        return False
    return True


def write_to_log(alert: Alert) -> None:
    log.error(
        f"alert: {alert.text}",
        code="alert",
        kind=alert.kind.value,
        dag=alert.dag_id,
        run=alert.run_id,
        failed_tasks=list(alert.failed_tasks),
    )


class Mail:
    name = "mail"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = f"{settings.alert_smtp_host}:{settings.alert_smtp_port}"

    def send(self, alert: Alert) -> None:
        trusted = _trusted(self._settings)
        try:
            with self._connected(trusted) as server:
                self._log_in(server, trusted)
                refused = server.send_message(self._message(alert))
            if refused:
                log.warning(f"the mail server {self._server} refused {len(refused)} of the recipients in alert_smtp_to")
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise self._refused("the recipients", min(codes), "recipients_refused") from None
        except smtplib.SMTPAuthenticationError as error:
            raise self._refused("user or password", error.smtp_code, "login_refused") from None
        except smtplib.SMTPResponseException as error:
            raise self._refused("the message", error.smtp_code, "message_refused") from None
        except smtplib.SMTPNotSupportedError:
            problem = "does not offer what was asked for; check alert_smtp_tls and alert_smtp_user"
            raise self._failed(problem, False, "alert_smtp_tls", "not_supported") from None
        except ssl.SSLError:
            problem = "could not be talked to encrypted; check alert_smtp_tls, its certificate and alert_ca_file"
            raise self._failed(problem, False, "alert_ca_file", "tls_failed") from None
        except (OSError, smtplib.SMTPException) as error:
            problem = f"can't be reached or hung up ({type(error).__name__})"
            raise self._failed(problem, True, "alert_smtp_host", "unreachable") from None

    def _connected(self, trusted: ssl.SSLContext) -> smtplib.SMTP:
        host, port = self._settings.alert_smtp_host or "", self._settings.alert_smtp_port
        timeout = self._settings.alert_timeout_s
        if self._settings.alert_smtp_tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=timeout, context=trusted)
        return smtplib.SMTP(host, port, timeout=timeout)

    def _log_in(self, server: smtplib.SMTP, trusted: ssl.SSLContext) -> None:
        if self._settings.alert_smtp_tls == "starttls":
            server.starttls(context=trusted)
        if self._settings.alert_smtp_user and self._settings.alert_smtp_password:
            server.login(self._settings.alert_smtp_user, self._settings.alert_smtp_password.get_secret_value())

    def _message(self, alert: Alert) -> EmailMessage:
        """The id is the alert's own, so that a mail sent twice after a lost answer is shown once."""
        message = EmailMessage()
        message["Subject"] = alert.subject
        message["From"] = self._settings.alert_smtp_from
        message["To"] = ", ".join(self._settings.alert_smtp_to)
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{hashlib.sha256(alert.key.encode()).hexdigest()[:32]}@sweepflow>"
        message.set_content(alert.text)
        return message

    def _refused(self, what: str, code: int, reason: str) -> NotDelivered:
        retry = 400 <= code < 500
        return self._failed(f"refused {what} (code {code})", retry, "alert_smtp_host", reason, code)

    def _failed(
        self, problem: str, worth_another_try: bool, field: str, reason: str, status: int | None = None
    ) -> NotDelivered:
        return NotDelivered(
            f"the mail server {self._server} {problem}",
            worth_another_try,
            field=field,
            reason=reason,
            server=self._server,
            status=status,
        )


class Webhook:
    name = "webhook"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def send(self, alert: Alert) -> None:
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=_trusted(self._settings)))
        try:
            with opener.open(self._request(alert), timeout=self._settings.alert_timeout_s) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            raise NotDelivered(
                f"alert_webhook_url answered with {error.code}",
                error.code >= 500 or error.code == _SLOW_DOWN,
                field="alert_webhook_url",
                reason="bad_status",
                status=error.code,
            ) from None
        except http.client.InvalidURL:
            raise NotDelivered(
                "alert_webhook_url is not an address that can be posted to",
                False,
                field="alert_webhook_url",
                reason="not_an_address",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(getattr(error, "reason", error), ssl.SSLError)
            why = "its certificate is not trusted; check alert_ca_file" if refused else type(error).__name__
            raise NotDelivered(
                f"alert_webhook_url can't be reached ({why})",
                not refused,
                field="alert_ca_file" if refused else "alert_webhook_url",
                reason="tls_failed" if refused else "unreachable",
            ) from None
        except ValueError:
            raise NotDelivered(
                "alert_webhook_url or alert_webhook_token holds what can't be sent",
                False,
                field="alert_webhook_token",
                reason="not_sendable",
            ) from None

    def _request(self, alert: Alert) -> urllib.request.Request:
        url, token = self._settings.alert_webhook_url, self._settings.alert_webhook_token
        headers = {"Content-Type": "application/json", "Idempotency-Key": alert.key}
        if token:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        body = json.dumps(alert.document()).encode()
        return urllib.request.Request(url.get_secret_value() if url else "", body, headers, method="POST")  # noqa: S310


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Following one would hand the token to whoever is named there, and drop the body."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _trusted(settings: Settings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.alert_ca_file)
    except OSError:
        raise NotDelivered(
            "alert_ca_file can't be read or holds no certificate", False, field="alert_ca_file", reason="unreadable"
        ) from None
