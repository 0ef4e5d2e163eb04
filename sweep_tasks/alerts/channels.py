"""The channels that an alert is sent by: the log always, mail and a webhook if they are configured.

A new channel is a class with `name` and `send`, a line in `configured`, and its settings in `config/alerts.py`.

Each channel is tried a few times, within a time that fits into Airflow's own limit for callbacks (50 s). An error that
may pass is retried: a server that is down may come back, a wrong password stays wrong. Every failure becomes a
`NotDelivered` with a message of its own. The original exception is dropped, because it may contain a secret: an answer
of the server, the address of a webhook, or a header.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Protocol

import httpx
import structlog

from sweep_tasks import retries
from sweep_tasks.alerts.message import Alert
from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError

log = structlog.get_logger(__name__)

GIVE_UP_AFTER_S = 15.0
MOST_READ = 64 * 1024
_TOO_MANY_REQUESTS = 429
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NOT_YET = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Not errors: the other side has to send or to receive first. They are the context of many others."""
_NOT_IN_ADDRESS = re.compile(r"[\x00-\x20\x7f]")
"""httpx would encode a blank, even in the name of the host."""


class NotDelivered(SweepflowError):
    """An alert was not sent by this channel. `server` is given for mail only: the address of a webhook is a secret."""

    code = "not_delivered"

    def __init__(
        self,
        message: str,
        *,
        field: str,
        reason: str,
        retryable: bool = False,
        server: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, field=field, reason=reason, retryable=retryable)
        self.server = server
        self.status = status


class Channel(Protocol):
    name: str

    def send(self, alert: Alert) -> None:
        """Send it once. Raise `NotDelivered` if that fails."""


def configured(settings: Settings) -> Sequence[Channel]:
    """Return the channels that are configured, apart from the log."""
    channels: list[Channel] = []
    if settings.alert_smtp_host:
        channels.append(Mail(settings))
    if settings.alert_webhook_url:
        channels.append(Webhook(settings))
    return channels


def deliver(channel: Channel, alert: Alert, attempts: int) -> bool:
    """Send an alert by one channel, with retries where they may help. A failure is logged, never raised."""
    try:
        retries.ALERT.retrying(time.sleep, attempts, GIVE_UP_AFTER_S)(channel.send, alert)
    except NotDelivered as error:
        log.error(
            f"the alert about {alert.key} was not sent by {channel.name}: {error}",
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
            f"the alert about {alert.key} was not sent by {channel.name}: a defect ({type(error).__name__})",
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
    """Sends an alert by SMTP."""

    name = "mail"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = f"{settings.alert_smtp_host}:{settings.alert_smtp_port}"

    def send(self, alert: Alert) -> None:
        trusted = _trusted(self._settings)
        try:
            with self._connect(trusted) as server:
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
            problem = "does not support what is configured; check alert_smtp_tls and alert_smtp_user"
            raise self._failed(problem, "alert_smtp_tls", "not_supported") from None
        except ssl.SSLError:
            problem = "could not set up encryption; check alert_smtp_tls, its certificate and alert_ca_file"
            raise self._failed(problem, "alert_ca_file", "tls_failed") from None
        except (OSError, smtplib.SMTPException) as error:
            problem = f"can't be reached or closed the connection ({type(error).__name__})"
            raise self._failed(problem, "alert_smtp_host", "unreachable", retryable=True) from None

    def _connect(self, trusted: ssl.SSLContext) -> smtplib.SMTP:
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
        """The message id comes from the alert, so that mail programs show a mail once if it was sent twice."""
        message = EmailMessage()
        message["Subject"] = alert.subject
        message["From"] = self._settings.alert_smtp_from
        message["To"] = ", ".join(self._settings.alert_smtp_to)
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{hashlib.sha256(alert.key.encode()).hexdigest()[:32]}@sweepflow>"
        message.set_content(alert.text)
        return message

    def _refused(self, what: str, code: int, reason: str) -> NotDelivered:
        temporary = 400 <= code < 500
        problem = f"refused {what} (code {code})"
        return self._failed(problem, "alert_smtp_host", reason, retryable=temporary, status=code)

    def _failed(
        self, problem: str, field: str, reason: str, *, retryable: bool = False, status: int | None = None
    ) -> NotDelivered:
        return NotDelivered(
            f"the mail server {self._server} {problem}",
            field=field,
            reason=reason,
            retryable=retryable,
            server=self._server,
            status=status,
        )


class Webhook:
    """Posts an alert as JSON. Redirects are not followed: the token would go to the address named there."""

    name = "webhook"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def send(self, alert: Alert) -> None:
        trusted = _trusted(self._settings)
        try:
            request = self._request(alert)
            with _hide_address_in_logs(), asyncio.Runner(loop_factory=_LookupsInOwnThreads) as loop:
                loop.run(self._post(request, trusted))
        except httpx.InvalidURL:
            raise NotDelivered(
                "alert_webhook_url is not an address that can be posted to",
                field="alert_webhook_url",
                reason="not_an_address",
            ) from None
        except (httpx.TransportError, OSError, TimeoutError) as error:
            raise _unreachable(error) from None
        except ValueError:
            raise NotDelivered(
                "alert_webhook_url or alert_webhook_token contains characters that can't be sent",
                field="alert_webhook_token",
                reason="not_sendable",
            ) from None

    def _request(self, alert: Alert) -> httpx.Request:
        url, token = self._settings.alert_webhook_url, self._settings.alert_webhook_token
        address = url.get_secret_value() if url else ""
        if _NOT_IN_ADDRESS.search(address):
            raise httpx.InvalidURL("")
        headers = {"Content-Type": "application/json", "Idempotency-Key": alert.key}
        if token:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        return httpx.Request(
            "POST",
            address,
            headers={name.encode(): _header_value(value) for name, value in headers.items()},
            content=json.dumps(alert.document()).encode(),
        )

    async def _post(self, request: httpx.Request, trusted: ssl.SSLContext) -> None:
        """One deadline holds for everything: lookup of the host name, connection, handshake, request and answer. A
        timeout of httpx counts from each byte to the next, so a server that sends a byte a second would never be too
        slow."""
        until = asyncio.get_running_loop().time() + self._settings.alert_timeout_s
        async with httpx.AsyncClient(verify=trusted, timeout=None, follow_redirects=False) as client:  # noqa: S113
            async with asyncio.timeout_at(until):
                answer = await client.send(request, stream=True)
            try:
                if not answer.is_success:
                    raise NotDelivered(
                        f"alert_webhook_url answered with {answer.status_code}",
                        retryable=answer.is_server_error or answer.status_code == _TOO_MANY_REQUESTS,
                        field="alert_webhook_url",
                        reason="bad_status",
                        status=answer.status_code,
                    )
                await _read_some(answer, until)
            finally:
                await answer.aclose()


class _LookupsInOwnThreads(asyncio.SelectorEventLoop):
    """Looks up each host name in a thread of its own that need not end. A lookup can't be interrupted and may take much
    longer than the deadline, and a thread of asyncio's own pool is waited for when the loop or the process ends."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        answer: Future[Any] = Future()

        def look_up() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(socket.getaddrinfo(host, port, **options))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await asyncio.wrap_future(answer, loop=self)


async def _read_some(answer: httpx.Response, until: float) -> None:
    """Read the answer, so that the server can finish it. The server has accepted the alert already: the content is not
    used, and an answer that breaks off or takes too long is no reason to send the alert again."""
    size = 0
    try:
        async with asyncio.timeout_at(until):
            async for chunk in answer.aiter_raw():
                size += len(chunk)
                if size >= MOST_READ:
                    return
    except (httpx.TransportError, OSError, TimeoutError) as error:
        log.info(f"the answer of alert_webhook_url was not read completely ({type(error).__name__})", code="cut_off")


def _unreachable(error: Exception) -> NotDelivered:
    untrusted = any(isinstance(each, ssl.SSLError) and not isinstance(each, _NOT_YET) for each in _causes(error))
    why = "its certificate is not trusted; check alert_ca_file" if untrusted else type(error).__name__
    return NotDelivered(
        f"alert_webhook_url can't be reached ({why})",
        retryable=not untrusted,
        field="alert_ca_file" if untrusted else "alert_webhook_url",
        reason="tls_failed" if untrusted else "unreachable",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _header_value(text: str) -> bytes:
    """Raise `ValueError` for a text that would end the header and begin another one, or that HTTP can't carry."""
    if _CONTROL.search(text):
        raise ValueError
    return text.encode("latin-1")


_address_is_secret: ContextVar[bool] = ContextVar("address_is_secret", default=False)
logging.getLogger("httpx").addFilter(lambda _: not _address_is_secret.get())


@contextmanager
def _hide_address_in_logs() -> Iterator[None]:
    """Drop the log lines of httpx in this block: they name the address of the webhook, which is a secret."""
    token = _address_is_secret.set(True)
    try:
        yield
    finally:
        _address_is_secret.reset(token)


def _trusted(settings: Settings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.alert_ca_file)
    except OSError:
        raise NotDelivered(
            "alert_ca_file can't be read or contains no certificate", field="alert_ca_file", reason="unreadable"
        ) from None
