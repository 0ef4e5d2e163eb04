"""A Spark standalone cluster for tests, with workers of one core each: no work for two fits into one of them."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.environment import SHORT_LIVED
from sweep_tasks.local.spark import HERE, LocalSpark
from tests.spark.submitting import PATIENCE_S


class Cluster(LocalSpark):
    def __init__(self, folder: Path, workers: int) -> None:
        super().__init__(folder, workers, cores=1, memory="1g")

    def options(self) -> tuple[str, ...]:
        """For `spark-submit`. A job begins when all executors are there: a short one would be over before the last."""
        given = {
            "spark.driver.host": HERE,
            "spark.cores.max": self.workers,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
        }
        confs = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        return ("--master", self.address, *confs)
