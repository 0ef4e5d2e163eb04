"""The actor of a DAG run, and the entry of the run in the journal.

The actor is the user who triggered the run, and the reason is the note of the run; a scheduled run acts as the
scheduler. A sweep has one entry for all its shards: the first task records the intent, before any shard starts, and
passes on the number of the entry. The task after the shards records the outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import structlog

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.journal.actors import MOST_CHARACTERS, NO_REASON, SCHEDULER, Actor, acting_for
from sweep_tasks.journal.journal import Act, Journal
from sweep_tasks.orchestration.form import ShardTask, order_of
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.run import SWEEP, SweepIntent, about, outcome
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.texts import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

ENTRY = "journal_entry"
"""The key of the XCom with the number of a run's entry."""
INCOMPLETE = "incomplete"
"""The code of a sweep some of whose shards did not finish."""

log = structlog.get_logger(__name__)


def actor_of(context: Context) -> Actor:
    """Return the user who triggered the run, or the scheduler, and the note of the run as the reason.

    Airflow passes a note to tasks only if it has loaded it for another purpose: 3.3 does not for a new run.
    """
    run = context["dag_run"]
    reason = printable((run.note or "").strip(), MOST_CHARACTERS)
    return Actor(printable(run.triggering_user_name or SCHEDULER), reason or NO_REASON)


def acting_for_run(context: Context) -> AbstractContextManager[None]:
    return acting_for(*actor_of(context))


def record_intent(
    store: Store, settings: Settings, context: Context, tasks: Collection[ShardTask], until_ms: int
) -> None:
    """Record the sweep that a run is about to do. If that fails, no shard starts."""
    from sweep_tasks.journal.safeguards import record_lowered

    clock = SystemClock()
    first = {task.strategy: task for task in reversed(list(tasks))}
    orders = {strategy: order_of(context["params"], task, until_ms) for strategy, task in first.items()}
    with acting_for_run(context):
        record_lowered(store, settings, clock)
        horizons = {strategy: order.horizon(store, settings, clock) for strategy, order in orders.items()}
        intent = SweepIntent.of(settings, horizons, {task.shard for task in tasks})
        run = {"dag": context["ti"].dag_id, "run": context["ti"].run_id}
        actor = actor_of(context)
        entry = Journal(store, clock).begin(actor.name, SWEEP, about(horizons), actor.reason, **intent.details(), **run)
    context["ti"].xcom_push(key=ENTRY, value=entry.number)


def entry_of_run(context: Context, recorded_by: str) -> int | None:
    """Return the number of the run's entry, or None if the task that records it was not part of the run."""
    found: int | None = context["ti"].xcom_pull(task_ids=recorded_by, key=ENTRY)
    return found


def record_outcome(context: Context, recorded_by: str, summaries: Sequence[Summary]) -> None:
    """Record the outcome of a run's sweep. If that fails, the sweep is done all the same: the intent stays without an
    outcome, and the log has the reason."""
    from sweep_tasks.connections import open_store

    number = entry_of_run(context, recorded_by)
    if number is None:
        return
    try:
        settings = load_settings()
        with open_store(settings.store, settings) as store:
            journal = Journal(store)
            entry = journal.entry(number)
            if entry is None or journal.outcome_of(entry):
                return  # pruned, or recorded by an earlier attempt of the task
            act = Act()
            act.add(**outcome(summaries))
            intent = SweepIntent.parse(entry)
            if intent is None or len(summaries) < len(intent.horizons) * len(intent.shards):
                act.refuse(INCOMPLETE)
            journal.end(entry, act)
    except SweepflowError as error:
        log.warning(
            "the outcome of the run could not be recorded in the journal", code="outcome_not_recorded", error=error.code
        )
