"""Settings of exports, Airflow tasks, metrics, logs and folders."""

from __future__ import annotations

from pathlib import Path

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
)

from sweep_tasks.config.values import (
    CommaSeparated,
    LogFormat,
)


class TaskSettings(BaseModel, defer_build=True):
    export_folder: Path | None = Field(
        default=None,
        description="folder for exports of tables, visible to all machines of a Spark job; none: no exports",
    )
    export_tables: CommaSeparated = Field(
        default=("*.*",), description="tables and patterns to export, separated by commas"
    )
    export_schedule: str | None = Field(
        default=None, description="cron schedule of exports; none: exports only run on request"
    )
    task_retries: int = Field(default=3, ge=0, description="how often Airflow retries a failed shard in one run")
    task_retry_delay_s: float = Field(
        default=60.0, gt=0, description="delay before the first retry; it doubles with each retry"
    )
    task_timeout_s: int = Field(default=7_200, gt=0, description="a task that takes longer is stopped and retried")
    metrics_otlp_url: SecretStr | None = Field(
        default=None,
        description="OpenTelemetry collector to which hourly runs send all metrics; none: not sent (secret)",
    )
    log_format: LogFormat = Field(
        default="text", description="format of log lines on stderr: text for people, json for programs"
    )
    cache_folder: Path = Field(
        default=Path("~/.cache/sweepflow"), description="folder for downloads, such as the jars of the local Cassandra"
    )
    task_folder: Path | None = Field(
        default=None, description="folder for temporary files of tasks; none: the system's temporary folder"
    )
    task_folder_shared: bool = Field(
        default=False, description="accept a task folder that belongs to another user, or that other users can write to"
    )
    run_deadline_s: int = Field(
        default=3_000, ge=0, description="an alert is sent for a run that takes longer; 0: no alert"
    )
