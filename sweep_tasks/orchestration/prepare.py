"""The first task of a run: check what the other tasks need, and select those that were asked for.

What is missing would otherwise be noticed late or never: a task waits for ever for a pool that does not exist, and a
missing Spark connection silently means YARN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import BaseBranchOperator, BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from sweep_tasks.config import Settings, check_variables, load_settings
from sweep_tasks.errors import AirflowNotReady, SweepflowError
from sweep_tasks.orchestration.form import INTERVAL_END, chosen, moment_ms
from sweep_tasks.orchestration.names import AIRFLOW_CONNECTION, SPARK_CONNECTION
from sweep_tasks.orchestration.pools import pool_names, pool_problem

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from sweep_tasks.metrics.tally import TaskAttempt
    from sweep_tasks.store.contract import Store

log = structlog.get_logger(__name__)


PREPARE = "prepare"


class PrepareSweep(BaseBranchOperator):
    """Skips the tasks that were not asked for. The others are recorded in the journal before they start, as one
    entry."""

    template_fields: Sequence[str] = (*BaseBranchOperator.template_fields, "until")

    def __init__(self, *, task_id: str = PREPARE, **kwargs: Any) -> None:
        super().__init__(task_id=task_id, **kwargs)
        self.until = INTERVAL_END

    def choose_branch(self, context: Context) -> Iterable[str]:
        from sweep_tasks.connections import open_store
        from sweep_tasks.orchestration.recording import record_intent

        try:
            check_variables()
            settings = load_settings()
            tasks = chosen(context["params"], settings.shards)
            check_connections_and_pools(settings)
            dry_run = context["params"]["dry_run"]
            with open_store(settings.store, settings) as store:
                shards = raise_shards(store, settings, dry_run=dry_run)
                if not dry_run:
                    record_intent(store, settings, context, tasks, moment_ms(self.until))
        except SweepflowError as error:
            raise task_failure(error) from None
        self.log.info("%s shards in the store; sweeping %s tasks", shards, len(tasks))
        return [task.task_id for task in tasks]


def task_failure(error: SweepflowError) -> AirflowException:
    """Return the error as Airflow handles it: one that would occur again is not retried. Airflow logs only the message,
    so the code, field and reason are logged here."""
    known = {name: value for name, value in (("field", error.field), ("reason", error.reason)) if value}
    log.error("the task failed", code="task_failed", error=error.code, **known)
    return AirflowException(str(error)) if error.retryable else AirflowFailException(str(error))


def this_attempt(context: Context) -> TaskAttempt:
    """Return the attempt that the figures of this task are counted under, once."""
    from sweep_tasks.metrics.tally import TaskAttempt

    ti = context["ti"]
    return TaskAttempt(ti.dag_id, ti.run_id, ti.task_id, ti.try_number, getattr(ti, "map_index", -1))


def check_connections_and_pools(settings: Settings) -> None:
    spark_connection()
    check_pools(pool_names(settings.shards))


def check_pools(names: Collection[str]) -> None:
    from sweep_tasks.orchestration.airflow_api import AirflowApi

    with AirflowApi.of(airflow_connection()) as api:
        problem = pool_problem(names, api.pool_slots())
    if problem:
        raise AirflowNotReady(problem.sentence, field="pools", reason=problem.reason)


def spark_connection() -> Connection:
    return _connection(SPARK_CONNECTION, "a spark connection whose host is the master, such as local[2]")


def airflow_connection() -> Connection:
    return _connection(AIRFLOW_CONNECTION, "an http connection with address, user and password")


def raise_shards(store: Store, settings: Settings, *, dry_run: bool) -> int:
    """Raise the number of shards in the store to the configured one, and return it. Refuse a lower one; a dry run
    raises nothing."""
    from sweep_tasks.queue.progress import Progress, shards_lowered

    progress = Progress(store)
    current = progress.shards()
    if current > settings.shards:
        raise shards_lowered(settings.shards, current)
    return current if dry_run or current == settings.shards else progress.raise_shards(settings.shards)


def _connection(name: str, what: str) -> Connection:
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        raise AirflowNotReady(
            f"connection {name}: is missing; add {what} under Admin, Connections, or as the variable "
            f"AIRFLOW_CONN_{name.upper()}",
            field=f"connection {name}",
            reason="missing",
        ) from error
