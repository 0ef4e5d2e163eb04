"""Run the sweeps of a scenario on Spark: the pipeline of the job, in one session for the whole scenario.

A module of its own, because the command imports Spark only if it is asked for.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.job import cause_of
from spark_jobs.legacy_ranges import work_on_spark
from spark_jobs.shard import TouchedCells, spark_sweep
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySummary, LegacySweep
from sweep_tasks.scenario.engines import Sweep, SweepResult
from sweep_tasks.store import Store
from sweep_tasks.sweep.horizon import Horizon


class SparkEngine:
    """The engine that a scenario uses with `--engine spark`."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings

    def sweep(self, store: Store, sweep: Sweep, clock: Clock) -> SweepResult:
        touched = TouchedCells()
        try:
            summaries = [
                spark_sweep(
                    lambda: self._spark, store, self._settings, sweep.strategy, shard, sweep.horizon, clock,
                    sweep.options, touched,
                ).run()
                for shard in sweep.shards
            ]  # fmt: skip
            return SweepResult(summaries, *touched.count())
        except PySparkException as error:
            raise cause_of(error) or error from error
        finally:
            touched.unpersist()

    def legacy_sweep(
        self, store: Store, settings: Settings, order: LegacyOrder, horizon: Horizon, clock: Clock
    ) -> LegacySummary:
        sweep = LegacySweep(store, settings, clock)
        run = sweep.start(order, horizon, take_over=True)
        try:
            return work_on_spark(lambda: self._spark, sweep, self._settings, run, order)
        except PySparkException as error:
            raise cause_of(error) or error from error
