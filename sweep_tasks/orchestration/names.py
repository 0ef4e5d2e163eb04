"""Names, addresses and defaults that all DAGs share: light enough for every task to import."""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from sweep_tasks.config import Settings


# ---------------------------------------------------------------------------------------------------------------------
# Names that an operator sees in the Airflow UI.
# ---------------------------------------------------------------------------------------------------------------------

TARGETED_SWEEP = "targeted_sweep"
PROTECTED_TIMESTAMPS = "protected_timestamps"
SNAPSHOT_EXPORT = "snapshot_export"
LEGACY_SWEEP = "legacy_sweep"
COMPACTION = "compaction"
SCHEDULED = (TARGETED_SWEEP, PROTECTED_TIMESTAMPS, LEGACY_SWEEP, COMPACTION)
"""The DAGs with a schedule."""
TOMBSTONES_ASSET = "sweepflow_tombstones"
"""Updated when a run has written many tombstones; see `sweeping.TombstonesWritten`."""
SPARK_CONNECTION = "spark_default"
AIRFLOW_CONNECTION = "sweepflow_airflow"


def dag_folder() -> Path:
    """Return the folder of the DAG files. In a checkout it is `dags/`; the wheel has it as a package of the library."""
    found = find_spec("sweep_tasks.dags")
    assert found is not None, "the DAG files are part of the package"  # noqa: S101
    assert found.origin is not None  # noqa: S101
    return Path(found.origin).parent


# ---------------------------------------------------------------------------------------------------------------------
# The addresses of the page and of Airflow.
# ---------------------------------------------------------------------------------------------------------------------

PREFIX = "/sweepflow"


def public_address() -> str:
    """Return the address of Airflow for browsers; empty if it is not configured."""
    from airflow.configuration import conf

    return conf.get("api", "base_url", fallback="") or ""


def airflow_path() -> str:
    """Return the path that Airflow's own addresses start with, without the host."""
    return urlsplit(public_address()).path.rstrip("/")


# ---------------------------------------------------------------------------------------------------------------------
# The defaults of all tasks: owner, retries, time-out.
# ---------------------------------------------------------------------------------------------------------------------


def task_defaults(settings: Settings, longest_pause: timedelta, timeout_s: int | None = None) -> dict[str, Any]:
    """Return the defaults for `DAG(default_args=…)`. `timeout_s` can only shorten the time-out of the settings.

    The file of a DAG is read again in the process of each of its tasks, so this also installs the guard of their logs.
    """
    from sweep_tasks.logs import guard_logs

    guard_logs()
    seconds = settings.task_timeout_s if timeout_s is None else min(timeout_s, settings.task_timeout_s)
    return {
        "owner": "sweepflow",
        "retries": settings.task_retries,
        "retry_delay": timedelta(seconds=settings.task_retry_delay_s),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": longest_pause,
        "execution_timeout": timedelta(seconds=seconds),
    }
