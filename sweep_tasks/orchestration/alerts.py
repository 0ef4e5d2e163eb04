"""What a DAG file needs to tell people: one notifier for runs that fail and for runs that miss their deadline.

    DAG(…, on_failure_callback=failure_alert(), deadline=deadline_alert(seconds=5_400))

Failure callbacks run in the dag processor or in a task's process, deadlines in the triggerer, which finds the
notifier by its import path. The DAG file is imported before every task: what only sending needs is imported then.
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
    """Tells about a run once, whoever notices first."""

    def notify(self, context: Mapping[str, Any]) -> None:
        _tell(context)

    async def async_notify(self, context: Mapping[str, Any]) -> None:
        await asyncio.to_thread(_tell, context)


class ProblemNotifier(SweepNotifier):
    """Tells of a problem once in a while, not in every run for as long as it lasts."""

    def notify(self, context: Mapping[str, Any]) -> None:
        from sweep_tasks.errors import NeedsAttention
        from sweep_tasks.orchestration.alert import failure
        from sweep_tasks.orchestration.delivery import send_once
        from sweep_tasks.orchestration.problems import send_if_new

        error = context.get("exception")
        about = error.about if isinstance(error, NeedsAttention) else ()
        send_if_new(about, lambda: send_once(failure(context)), context["dag"].dag_id)


def failure_alert() -> SweepNotifier:
    """For `DAG(on_failure_callback=…)`, or a task's."""
    return SweepNotifier()


def problem_alert() -> ProblemNotifier:
    """For a task that fails because a person has to decide something."""
    return ProblemNotifier()


def deadline_alert(seconds: float) -> DeadlineAlert:
    """For `DAG(deadline=…)`: counted from when the run was queued."""
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(SweepNotifier),
    )


def _tell(context: Mapping[str, Any]) -> None:
    """An alert that can't be made is logged and goes no further: the caller is Airflow itself."""
    import structlog

    from sweep_tasks.orchestration.alert import failure, missed_deadline
    from sweep_tasks.orchestration.delivery import send_once

    try:
        send_once(missed_deadline(context) if "deadline" in context else failure(context))
    except Exception as error:
        structlog.get_logger(__name__).error(
            f"a run failed or was late, and no alert could be made from what Airflow told ({type(error).__name__}); "
            "look at the list of runs",
            code="no_alert",
            error=type(error).__name__,
        )
