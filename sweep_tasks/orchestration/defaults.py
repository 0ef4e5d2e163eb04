"""What all tasks of our DAGs have in common: whose they are, how often they are tried, how long they may take."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sweep_tasks.logs import guard_logs

if TYPE_CHECKING:
    from sweep_tasks.config import Settings


def task_defaults(settings: Settings, longest_pause: timedelta, timeout_s: int | None = None) -> dict[str, Any]:
    """For `DAG(default_args=…)`. A time-out of the DAG's own can only be shorter than that of the settings.

    The file of a DAG is read anew in the process of each of its tasks, so this is also where their logs get the guard.
    """
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
