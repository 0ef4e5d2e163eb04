"""Settings of alerts: channels, attempts and repetitions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    model_validator,
)

from sweep_tasks.config.values import (
    CommaSeparated,
    refused,
)


class AlertSettings(BaseModel, defer_build=True):
    alert_smtp_host: str | None = Field(default=None, description="mail server for alerts; none: no mail")
    alert_smtp_port: int = Field(default=587, ge=1, le=65_535, description="port of the mail server")
    alert_smtp_tls: Literal["none", "starttls", "tls"] = Field(
        default="starttls",
        description="none: unencrypted; starttls: upgrade the connection to TLS; tls: TLS from the start",
    )
    alert_smtp_user: str | None = Field(default=None, description="user name for the mail server; none: no login")
    alert_smtp_password: SecretStr | None = Field(default=None, description="password of alert_smtp_user (secret)")
    alert_smtp_from: str | None = Field(default=None, description="sender address of alerts")
    alert_smtp_to: CommaSeparated = Field(default=(), description="recipients of alerts by mail, separated by commas")
    alert_webhook_url: SecretStr | None = Field(
        default=None, description="URL to which alerts are posted as JSON; none: no webhook (secret)"
    )
    alert_webhook_token: SecretStr | None = Field(default=None, description="bearer token for the webhook (secret)")
    alert_ca_file: Path | None = Field(
        default=None, description="CA certificates to trust instead of those of the system, for mail server and webhook"
    )
    alert_timeout_s: float = Field(default=5.0, gt=0, description="timeout of an attempt to send an alert")
    alert_attempts: int = Field(default=3, ge=1, description="attempts to send an alert on each channel")
    alert_memory_s: int = Field(
        default=2_592_000,
        gt=0,
        description="how long the alerts that were sent for a run are remembered, so that they are not repeated",
    )

    @model_validator(mode="after")
    def _alerts_can_be_sent(self) -> Self:
        _check_alerts(self)
        return self


def _check_alerts(settings: AlertSettings) -> None:
    """Check that alerts can be sent and that no secret is sent unencrypted."""
    if settings.alert_smtp_host and not (settings.alert_smtp_from and settings.alert_smtp_to):
        raise refused("no_addresses", "alert_smtp_host requires alert_smtp_from and alert_smtp_to")
    if bool(settings.alert_smtp_user) != bool(settings.alert_smtp_password):
        raise refused(
            "incomplete_login", "alert_smtp_user and alert_smtp_password belong together; set both or neither"
        )
    if settings.alert_smtp_password and settings.alert_smtp_tls == "none":
        problem = "alert_smtp_password would be sent unencrypted; set alert_smtp_tls to starttls or tls"
        raise refused("password_unencrypted", problem)
    url = settings.alert_webhook_url.get_secret_value() if settings.alert_webhook_url else "https://unset"
    if not url.startswith(("https://", "http://")):
        raise refused("not_an_address", "alert_webhook_url must start with https:// or http://")
    if settings.alert_webhook_token and not url.startswith("https://"):
        problem = "alert_webhook_token would be sent unencrypted; set an alert_webhook_url that starts with https://"
        raise refused("token_unencrypted", problem)
