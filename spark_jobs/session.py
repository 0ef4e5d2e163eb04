"""A Spark session for jobs of ours, and what became of an error in one of its workers."""

from __future__ import annotations

import os
import re
import sys
import time

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.environment import java_problem, spark_environment
from sweep_tasks import errors
from sweep_tasks.errors import JavaMissing, SweepflowError

_OURS = re.compile(r"^sweep_tasks\.errors\.(\w+): (.*)$", re.MULTILINE)


def spark_session(name: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName(name).getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", 2 * session.sparkContext.defaultParallelism)
    return session


def for_large_frames(session: SparkSession) -> SparkSession:
    """One that looks at what a shuffle holds before it goes on. What suits a job of a few thousand rows does not suit
    one that copies tables; both may run in one application."""
    adaptive = session.newSession()
    adaptive.conf.set("spark.sql.shuffle.partitions", 4 * session.sparkContext.defaultParallelism)
    adaptive.conf.set("spark.sql.adaptive.enabled", True)
    return adaptive


class LazySpark:
    """A session that is started when it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._session: SparkSession | None = None
        self.seconds: float | None = None
        """How long the start took; None if there was none."""

    def __call__(self) -> SparkSession:
        if self._session is None:
            began = time.perf_counter()
            self._session = spark_session(self._name)
            self.seconds = time.perf_counter() - began
        return self._session

    def context(self) -> SparkContext | None:
        """None if no session was started."""
        return self._session.sparkContext if self._session else None


def local_session(name: str) -> SparkSession:
    """One on this machine, for a command that is not run by `spark-submit`."""
    os.environ.update(spark_environment())
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[2] pyspark-shell")
    return spark_session(name)


class WorkerFailed(SweepflowError):
    """An error of ours that was raised in a worker, with its code and exit code; its other attributes stay there."""

    def __init__(self, raised: type[SweepflowError], message: str) -> None:
        super().__init__(message)
        self.raised = raised
        self.code, self.exit_code = raised.code, raised.exit_code  # type: ignore[misc]


def explained(error: PySparkException) -> SweepflowError | None:
    """The error of ours behind a failed Spark job; None if it was none."""
    if error.getCondition() == "JAVA_GATEWAY_EXITED":
        ended = "java: it ended as soon as Spark started it; what it said stands above"
        return java_problem() or JavaMissing(ended, reason="ended")
    found = _OURS.findall(str(error))
    if not found:
        return None
    name, message = found[-1]
    return WorkerFailed(getattr(errors, name, SweepflowError), message)
