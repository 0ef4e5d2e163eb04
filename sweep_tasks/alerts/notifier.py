"""The notifier that DAG files use, for runs that fail and for runs that miss their deadline.

    DAG(…, on_failure_callback=failure_alert(), deadline=deadline_alert(seconds=5_400))

Failure callbacks run in the dag processor or in a task's process, deadlines in the triggerer, which finds the
notifier by its import path. The DAG file is imported before every task, so what only sending needs is imported late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import (  # type: ignore[attr-defined]  # its stubs lack the deadlines
    AsyncCallback,
    BaseNotifier,
    DeadlineAlert,
    DeadlineReference,
)


class SweepNotifier(BaseNotifier):
    """Sends one alert about a run, whichever process notices first."""

    def notify(self, context: Mapping[str, Any]) -> None:
        _send_alert(context)

    async def async_notify(self, context: Mapping[str, Any]) -> None:
        await asyncio.to_thread(_send_alert, context)


class ProblemNotifier(SweepNotifier):
    """Sends an alert about a lasting problem from time to time, not in every run."""

    def notify(self, context: Mapping[str, Any]) -> None:
        if _is_silent(context):
            return
        from sweep_tasks.alerts.delivery import send_if_new, send_once
        from sweep_tasks.alerts.message import failure
        from sweep_tasks.errors import NeedsAttention

        error = context.get("exception")
        about = error.about if isinstance(error, NeedsAttention) else ()
        send_if_new(about, lambda: send_once(failure(context)), context["dag"].dag_id)


def failure_alert() -> SweepNotifier:
    """Return the callback for `DAG(on_failure_callback=…)`, or for that of a task."""
    return SweepNotifier()


def problem_alert() -> ProblemNotifier:
    """Return the callback for a task that fails because a problem needs attention."""
    return ProblemNotifier()


def deadline_alert(seconds: float) -> DeadlineAlert:
    """Return the alert for `DAG(deadline=…)`, counted from when the run was queued."""
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(SweepNotifier),
    )


def _is_silent(context: Mapping[str, Any]) -> bool:
    """Return True for a dry run, which sends no alerts: its user checks it. Nothing is claimed either, so that the
    alert about a real run is still sent."""
    if not is_dry_run(context):
        return False
    import structlog

    structlog.get_logger(__name__).info("a dry run failed or was late; no alert is sent", code="dry_run")
    return True


def is_dry_run(context: Mapping[str, Any]) -> bool:
    """Read it from the parameters of the run, else from its configuration. A run without either is a real one."""
    params = context.get("params") or {}
    if "dry_run" in params:
        return bool(params["dry_run"])
    run = context.get("dag_run")
    given = run.get("conf") if isinstance(run, Mapping) else getattr(run, "conf", None)
    return bool((given or {}).get("dry_run"))


def _send_alert(context: Mapping[str, Any]) -> None:
    """Send an alert. A failure to do so is logged and not raised: the caller is Airflow itself."""
    import structlog

    from sweep_tasks.alerts.delivery import send_once
    from sweep_tasks.alerts.message import failure, missed_deadline

    try:
        if not _is_silent(context):
            send_once(missed_deadline(context) if "deadline" in context else failure(context))
    except Exception as error:
        structlog.get_logger(__name__).error(
            f"a run failed or was late, and no alert could be created from its context ({type(error).__name__}); "
            "check the list of runs",
            code="no_alert",
            error=type(error).__name__,
        )
