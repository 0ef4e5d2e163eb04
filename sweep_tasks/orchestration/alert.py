"""What an alert says: which run, what happened, what to do, where to look.

It names DAGs, runs and tasks and nothing else: an exception's text may carry a line of somebody's log, and alerts
leave the house. Only the errors of this project, whose sentences never carry data, are quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import structlog

from sweep_tasks.errors import SweepflowError

log = structlog.get_logger(__name__)

TASKS_NAMED = 20
AFTER_FAILURE = (
    "Open the run, read the log of the failed tasks, mend the cause and clear them. Nothing is lost meanwhile: what "
    "was swept stays swept, and a sweep goes on where it stopped."
)
AFTER_DEADLINE = (
    "Open the run and see which task still runs or waits. One that waits for its pool waits for another run to sweep "
    "the same shard; one that runs can be left alone, or marked failed and cleared: a sweep goes on where it stopped."
)


class AlertKind(StrEnum):
    """What happened, for programs."""

    FAILED = "failed"
    DEADLOCKED = "deadlocked"
    TIMED_OUT = "timed_out"
    LATE = "late"
    NEEDS_ATTENTION = "needs_attention"


_HOW_IT_FAILED = {
    "all_tasks_deadlocked": (AlertKind.DEADLOCKED, "failed: none of its tasks can run any more"),
    "timed_out": (AlertKind.TIMED_OUT, "failed: it ran longer than it may"),
}


@dataclass(frozen=True, slots=True)
class Alert:
    dag_id: str
    run_id: str
    kind: AlertKind
    happened: str
    """Follows 'run … of …'."""
    what_to_do: str
    link: str
    failed_tasks: tuple[str, ...] = ()
    attempt: int = 0
    """How often the run had been cleared: one that fails again after that is news."""
    error: str | None = None
    """The code of the error, if it is one of ours."""
    deadline: str | None = None
    note: str = ""

    @property
    def key(self) -> str:
        return f"{self.dag_id}/{self.run_id}/{self.attempt}"

    @property
    def subject(self) -> str:
        return _one_line(f"[sweepflow] {self.dag_id}: run {self.run_id} {self.happened}")

    @property
    def text(self) -> str:
        lines = [_one_line(f"Run {self.run_id} of {self.dag_id} {self.happened}.")]
        if self.failed_tasks:
            more = len(self.failed_tasks) - TASKS_NAMED
            named = ", ".join(self.failed_tasks[:TASKS_NAMED])
            lines.append(f"Failed tasks: {named}{f' and {more} more' if more > 0 else ''}")
        lines += [f"What to do: {self.what_to_do}", f"The run: {self.link}"]
        return "\n".join([*lines, self.note] if self.note else lines)

    def document(self) -> dict[str, Any]:
        """`text` alone is what chat systems show."""
        return {
            "id": self.key,
            "dag": self.dag_id,
            "run": self.run_id,
            "kind": self.kind.value,
            "happened": self.happened,
            "error": self.error,
            "deadline": self.deadline,
            "failed_tasks": list(self.failed_tasks),
            "what_to_do": self.what_to_do,
            "link": self.link,
            "text": self.text,
        }


def failure(context: Mapping[str, Any]) -> Alert:
    """From the context of a DAG's or a task's failure callback; Airflow gives less of it when the task is gone."""
    dag_id, run_id = context["dag"].dag_id, context["run_id"]
    error = context.get("exception")
    kind, how = _HOW_IT_FAILED.get(context.get("reason") or "", (AlertKind.FAILED, "failed"))
    return Alert(
        dag_id,
        run_id,
        kind,
        f"{how}: {error}" if isinstance(error, SweepflowError) else how,
        AFTER_FAILURE,
        link_to(dag_id, run_id),
        _failed_tasks(context),
        getattr(context.get("dag_run"), "clear_number", 0),
        error=error.code if isinstance(error, SweepflowError) else None,
    )


def missed_deadline(context: Mapping[str, Any]) -> Alert:
    """From a deadline's context, which holds the run as the REST API shows it. That does not tell how often the run
    was cleared, so the deadline counts with the first attempt."""
    run = context["dag_run"]
    due = context["deadline"].get("deadline_time")
    by = due.isoformat(" ", "seconds") if isinstance(due, datetime) else due
    happened = f"has not succeeded by its deadline{f', {by}' if by else ''}"
    dag_id, run_id = run["dag_id"], run["dag_run_id"]
    link = link_to(dag_id, run_id)
    return Alert(dag_id, run_id, AlertKind.LATE, happened, AFTER_DEADLINE, link, deadline=by)


def link_to(dag_id: str, run_id: str) -> str:
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback=None) or "http://localhost:8080"
    return f"{base.rstrip('/')}/dags/{quote(dag_id)}/runs/{quote(run_id)}"


def _failed_tasks(context: Mapping[str, Any]) -> tuple[str, ...]:
    """All of the run's, if Airflow can be asked from here, else the one that the context names."""
    instance = context.get("ti")
    if instance is None:
        return ()
    try:
        states = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id])[instance.run_id]
    except Exception as error:
        log.debug("which other tasks failed is not known here", kind=type(error).__name__)
        return (instance.task_id,)
    return tuple(sorted({task for task, state in states.items() if state == "failed"} | {instance.task_id}))


def _one_line(text: str) -> str:
    return " ".join(text.split())
