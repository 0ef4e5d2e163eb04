"""One shard of one strategy as an Airflow task: a Spark job, or nothing at all if the shard has nothing new."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import BaseOperator

from spark_jobs.environment import TARGETED_SWEEP
from spark_jobs.trying import as_arguments
from sweep_tasks.clock import SystemClock, from_ms, to_ms
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.logs import at_work
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import ShardTask, order_of
from sweep_tasks.orchestration.machine import machine_slot
from sweep_tasks.orchestration.pools import pool_name
from sweep_tasks.orchestration.prepare import explained, spark_connection, this_try
from sweep_tasks.orchestration.reading import readable
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.sweep.order import SweepOrder

INTERVAL_END = "{{ data_interval_end if data_interval_end is defined and data_interval_end else dag_run.run_after }}"
"""A run that was triggered without a logical date has no interval: it sweeps up to the moment it was asked for."""


class SweepShardOperator(SparkJobOperator):
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "until")

    def __init__(self, *, strategy: SweepStrategy, shard: int, **kwargs: Any) -> None:
        super().__init__(
            application=TARGETED_SWEEP,
            name=f"sweep-{strategy}-{shard}",
            pool=pool_name(strategy, shard),
            **kwargs,
        )
        self.strategy = strategy
        self.shard = shard
        self.until = INTERVAL_END

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        """The summary of the sweep."""
        from sweep_tasks.orchestration.stats import tell_sweep

        try:
            settings = load_settings()
            order = order_of(context["params"], ShardTask(self.strategy, self.shard), moment_ms(self.until))
            spark_connection()
            with at_work(run=context["ti"].run_id, strategy=self.strategy.value, shard=self.shard):
                summary = self._sweep_without_spark(settings, order, context) or self._sweep_with_spark(
                    settings, order, context
                )
        except SweepflowError as error:
            raise explained(error) from None
        tell_sweep(summary, this_try(context))
        self.log.info(readable(summary))
        return summary

    def _sweep_without_spark(self, settings: Settings, order: SweepOrder, context: Context) -> dict[str, Any] | None:
        from sweep_tasks.observation.entering import enter_sweep
        from sweep_tasks.opening import open_store
        from sweep_tasks.sweep.idle import sweep_idle

        with open_store(settings.store, settings) as store:
            found = sweep_idle(store, settings, SystemClock(), order)
            if found is None:
                return None
            summary: dict[str, Any] = json.loads(json.dumps(found.document() | {"engine": "idle"}))
            enter_sweep(store, SystemClock(), summary, this_try(context))
            return summary

    def _sweep_with_spark(self, settings: Settings, order: SweepOrder, context: Context) -> dict[str, Any]:
        with machine_slot(settings, self.strategy, self.log.info):
            return self.submit(settings, [*arguments(order), *as_arguments(this_try(context))], context)


class CheckLag(BaseOperator):
    """Fails if a shard is further behind than its strategy's objective allows."""

    template_fields: Sequence[str] = ("until",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until = INTERVAL_END

    def execute(self, context: Context) -> None:  # noqa: ARG002 (given by Airflow)
        from sweep_tasks.observation.entering import push_metrics, sample
        from sweep_tasks.observation.status import status
        from sweep_tasks.opening import open_store
        from sweep_tasks.orchestration.lag import check_lag
        from sweep_tasks.orchestration.stats import tell_status

        try:
            settings = load_settings()
            with open_store(settings.store, settings) as store:
                sample(store, SystemClock())
                push_metrics(store, settings, SystemClock())
                tell_status(status(store, settings, SystemClock()))
                lags = check_lag(store, settings, SystemClock(), moment_ms(self.until))
        except SweepflowError as error:
            raise explained(error) from None
        for each in lags:
            self.log.info("%s shard %s is %s s behind", each.strategy, each.shard, each.lag_s)


def arguments(order: SweepOrder) -> list[str]:
    """The order as the Spark job takes it."""
    given: dict[str, object] = {"--strategy": order.strategy.value, "--shard": order.shard}
    if order.until_ms is not None:
        given["--until"] = from_ms(order.until_ms).isoformat()
    if order.stop_at is not None:
        given["--stop-at"] = order.stop_at
    if order.max_entries:
        given["--max-entries"] = order.max_entries
    if order.max_seconds:
        given["--max-seconds"] = order.max_seconds
    words = [word for name, value in given.items() for word in (name, str(value))]
    return [*words, "--dry-run"] if order.dry_run else words


def moment_ms(text: str) -> int:
    """A moment as a template writes it."""
    moment = pendulum.parse(text)
    if not isinstance(moment, pendulum.DateTime):
        raise BadValue("until", f"{text} is not a moment with date and time")
    return to_ms(moment)
