"""The first task of a run: is everything there that the others need, and which of them were asked for?

What is missing would otherwise be found late or never: a task waits for ever for a pool that does not exist, and a
Spark connection that does not exist silently means YARN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import structlog
from airflow.sdk import BaseBranchOperator, BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import AirflowNotReady, ShardsLowered, SweepflowError
from sweep_tasks.orchestration.form import chosen
from sweep_tasks.orchestration.names import AIRFLOW_CONNECTION, SPARK_CONNECTION
from sweep_tasks.orchestration.pools import pool_names, pool_problem

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from sweep_tasks.observation.tally import Try

log = structlog.get_logger(__name__)


class PrepareSweep(BaseBranchOperator):
    """Tasks that were not asked for are skipped without being started."""

    def choose_branch(self, context: Context) -> Iterable[str]:
        try:
            settings = load_settings()
            tasks = chosen(context["params"], settings.shards)
            check_connections_and_pools(settings)
            shards = settle_shards(settings, dry_run=context["params"]["dry_run"])
        except SweepflowError as error:
            raise explained(error) from None
        self.log.info("%s shards in the store; sweeping %s tasks", shards, len(tasks))
        return [task.task_id for task in tasks]


def explained(error: SweepflowError) -> AirflowException:
    """As Airflow takes it: what would fail again in the same way is not tried again. Airflow logs the message alone, so
    what programs read is logged here."""
    known = {name: value for name, value in (("field", error.field), ("reason", error.reason)) if value}
    log.error("the task fails", code="task_failed", error=error.code, **known)
    return AirflowException(str(error)) if error.retryable else AirflowFailException(str(error))


def this_try(context: Context) -> Try:
    """Under which a task's figures are counted, once."""
    from sweep_tasks.observation.tally import Try

    ti = context["ti"]
    return Try(ti.dag_id, ti.run_id, ti.task_id, ti.try_number, getattr(ti, "map_index", -1))


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


def settle_shards(settings: Settings, *, dry_run: bool) -> int:
    """As many shards in the store as are configured, never fewer than there were; a dry run raises nothing."""
    from sweep_tasks.opening import open_store
    from sweep_tasks.queue.progress import Progress

    with open_store(settings.store, settings) as store:
        progress = Progress(store)
        standing = progress.shards()
        if standing > settings.shards:
            raise ShardsLowered(settings.shards, standing)
        return standing if dry_run or standing == settings.shards else progress.raise_shards(settings.shards)


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
