"""The content of an alert: which run, what happened, what to do, and a link to the run.

An alert names DAGs, runs and tasks and nothing else: the text of an exception may contain data or a line of a log, and
alerts leave the organisation. Only errors of this project, whose messages never contain data, are quoted.
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
    "Open the run, read the log of the failed tasks, fix the cause and clear the tasks. Nothing is lost: a sweep "
    "resumes where it stopped."
)
AFTER_DEADLINE = (
    "Open the run and check which task is still running or waiting. A task that waits for its pool waits for another "
    "run that sweeps the same shard. A running task can be left alone, or marked failed and cleared: a sweep resumes "
    "where it stopped."
)


class AlertKind(StrEnum):
    """What happened, as a word for programs."""

    FAILED = "failed"
    DEADLOCKED = "deadlocked"
    TIMED_OUT = "timed_out"
    LATE = "late"
    NEEDS_ATTENTION = "needs_attention"


_HOW_IT_FAILED = {
    "all_tasks_deadlocked": (AlertKind.DEADLOCKED, "failed: none of its tasks can run any more"),
    "timed_out": (AlertKind.TIMED_OUT, "failed: it exceeded its time limit"),
}


@dataclass(frozen=True, slots=True)
class Alert:
    dag_id: str
    run_id: str
    kind: AlertKind
    happened: str
    """A phrase that follows 'run … of …'."""
    what_to_do: str
    link: str
    failed_tasks: tuple[str, ...] = ()
    attempt: int = 0
    """How often the run was cleared: another failure after that is a new alert."""
    error: str | None = None
    """The code of the error, if it is a `SweepflowError`."""
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
        """Return the JSON document of a webhook. Chat systems show `text` alone."""
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
    """Return the alert for the context of a failure callback of a DAG or task; parts of it may be missing."""
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
    """Return the alert for the context of a missed deadline, which contains the run as the REST API shows it. That
    lacks how often the run was cleared, so the deadline belongs to the first attempt."""
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
    """Return all failed tasks of the run if Airflow answers here, else the task that the context names."""
    instance = context.get("ti")
    if instance is None:
        return ()
    try:
        states = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id])[instance.run_id]
    except Exception as error:
        log.debug("the other failed tasks are not known here", kind=type(error).__name__)
        return (instance.task_id,)
    return tuple(sorted({task for task, state in states.items() if state == "failed"} | {instance.task_id}))


def _one_line(text: str) -> str:
    return " ".join(text.split())
