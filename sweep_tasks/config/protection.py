"""Settings of protected timestamps: limits, ages and the reconciliation with their owners."""

from __future__ import annotations

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
)


class ProtectionSettings(BaseModel, defer_build=True):
    max_protection_records: int = Field(
        default=512, ge=0, description="maximum number of protection records; 0: no limit"
    )
    max_protection_spans: int = Field(
        default=4_096,
        ge=0,
        description="maximum number of tables and row ranges in all protection records; 0: no limit",
    )
    protection_refresh_s: float = Field(
        default=300.0, gt=0, description="maximum age of cached protections, where a stale cache is safe"
    )
    protect_at_as_after: bool = Field(
        default=False,
        description="also keep all versions after a protected timestamp, for readers without thresholds, "
        "such as AtlasDB",
    )
    protections_schedule: str = Field(
        default="*/10 * * * *", description="cron schedule of the reconciliation of protections with their owners"
    )
    protection_pending_s: int = Field(
        default=300,
        ge=0,
        description="how long a protection may stay unverified before it counts as abandoned",
    )
    protection_max_age_s: int = Field(
        default=604_800, ge=0, description="age of a protection above which an alert is sent; 0: no alert"
    )
    protection_limit_warning: float = Field(
        default=0.8, gt=0, le=1, description="share of a protection limit in use at which an alert is sent"
    )
    protection_alert_again_s: int = Field(
        default=86_400,
        ge=0,
        description="minimum time between two alerts about the same protection problem; 0: every run",
    )
    owner_timeout_s: float = Field(
        default=10.0, gt=0, description="timeout of a request to Airflow or Spark for the state of an owner"
    )
    spark_master_ui_url: SecretStr | None = Field(
        default=None,
        description="URL of the Spark master UI, which lists running applications; none: not queried (secret)",
    )
    spark_history_url: SecretStr | None = Field(
        default=None,
        description="URL of the Spark history server, which lists finished applications; none: not queried (secret)",
    )
