"""What the jobs share: arguments, the Spark session, the heartbeat log and the result."""

from __future__ import annotations

import argparse
import contextvars
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.environment import java_problem, spark_environment
from spark_jobs.orders import read_order
from spark_jobs.worker_errors import WorkerFailed, worker_failure
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, ProgramMissing, SweepflowError
from sweep_tasks.files import PRIVATE_FILE, write_whole
from sweep_tasks.orders import ErrorDocument, Order
from sweep_tasks.processes import Needs, only_inherited
from sweep_tasks.sweep.summary import EVERY_S
from sweep_tasks.texts import printable

# ---------------------------------------------------------------------------------------------------------------------
# The Spark session of a job, and the cause of a failed one.
# ---------------------------------------------------------------------------------------------------------------------


def spark_session(name: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with only_inherited(Needs.SPARK):  # unless `spark-submit` has started Java before, PySpark does it here
        session = SparkSession.builder.appName(name).getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", 2 * session.sparkContext.defaultParallelism)
    return session


def for_large_frames(session: SparkSession) -> SparkSession:
    """Return a session that adapts its plan to the size of each shuffle. The settings for a job of a few thousand rows
    do not suit one that copies tables; both may run in one application."""
    adaptive = session.newSession()
    adaptive.conf.set("spark.sql.shuffle.partitions", 4 * session.sparkContext.defaultParallelism)
    adaptive.conf.set("spark.sql.adaptive.enabled", True)
    return adaptive


class LazySpark:
    """A session that is started on first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._session: SparkSession | None = None
        self.seconds: float | None = None
        """How long the start took; None if no session was started."""

    def __call__(self) -> SparkSession:
        if self._session is None:
            began = time.perf_counter()
            self._session = spark_session(self._name)
            self.seconds = time.perf_counter() - began
        return self._session

    def stop(self) -> None:
        """Stop the session, if one was started."""
        if self._session is not None:
            self._session.stop()

    def context(self) -> SparkContext | None:
        """Return the context of the session, or None if no session was started."""
        return self._session.sparkContext if self._session else None


def local_session(name: str) -> SparkSession:
    """Start a session on this machine, for a command that is not run by `spark-submit`."""
    os.environ.update(spark_environment())
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[2] pyspark-shell")
    return spark_session(name)


def cause_of(error: PySparkException) -> SweepflowError | None:
    """Return our own error that made a Spark job fail, or None if another error did."""
    if error.getCondition() == "JAVA_GATEWAY_EXITED":
        ended = "java: it ended as soon as Spark started it; its output is above"
        return java_problem() or ProgramMissing(ended, field="java", reason="ended")
    return worker_failure(str(error))


# ---------------------------------------------------------------------------------------------------------------------
# The heartbeat log: a line every few seconds while the driver waits for its workers, with Spark's own counts.
#
# A batch may keep the workers busy for minutes, and the driver gets its result only at the end. So a thread asks Spark
# for the number of tasks in the meantime.
# ---------------------------------------------------------------------------------------------------------------------


class ProgressLog(Protocol):
    """Logs the progress of the work itself."""

    def log_progress(self, **more: object) -> None: ...


@contextmanager
def heartbeat(
    progress: ProgressLog, context: Callable[[], SparkContext | None], every_s: float = EVERY_S
) -> Iterator[None]:
    """Log the progress until the block ends. `context` returns None until Spark is needed."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            spark = context()
            if spark is not None:
                try:
                    progress.log_progress(**task_counts(spark))
                except (Py4JError, OSError):  # Java is gone; the thread that waits for its answer reports that
                    return

    # With the names that are bound to the log lines of this thread.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat,), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def task_counts(spark: SparkContext) -> dict[str, int]:
    """Count the tasks of the active stages."""
    tracker = spark.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return {
        "tasks": sum(stage.numTasks for stage in known),
        "tasks_running": sum(stage.numActiveTasks for stage in known),
        "tasks_done": sum(stage.numCompletedTasks for stage in known),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Running a job: an order in, a summary as one line of JSON out. An error is one sentence and an exit code.
#
# The log has the code, field and reason of the error, for scripts and alerts.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)


class JobSummary(Protocol):
    def document(self) -> dict[str, Any]: ...


OrderT = TypeVar("OrderT", bound=Order)


def run_job(
    name: str, order: type[OrderT], work: Callable[[OrderT, Settings], JobSummary], arguments: list[str] | None
) -> int:
    """Parse the arguments and the order, do the work, and report its summary."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=order.__doc__)
    parser.add_argument("--order", required=True, metavar="JSON", help="a JSON object, or the name of a file with one")
    parser.add_argument("--store", metavar="URL", help="the setting SWEEPFLOW_STORE if not given")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the summary to this file as well")
    parser.add_argument("--error", type=Path, metavar="FILE", help="write an error to this file as a JSON object")
    given = parser.parse_args(arguments)

    def summarise() -> dict[str, Any]:
        settings = load_settings(**({"store": given.store} if given.store else {}))
        return work(order.parse(read_order(given.order)), settings).document()

    return report(summarise, given.summary, given.error)


def report(work: Callable[[], Mapping[str, Any]], summary_file: Path | None, error_file: Path | None = None) -> int:
    """Do the work, print its summary as the last line, write it to the file if one is given, and return the exit code
    0. An error ends the process with its own exit code; a caller that wants to read it gives a file for it."""
    try:
        _check_summary(summary_file)
        document = work()
    except SweepflowError as error:
        _fail(error, error_file)
    except PySparkException as error:
        cause = cause_of(error)
        if cause is None:
            raise
        _fail(cause, error_file)
    line = json.dumps(document)
    if summary_file:
        write_whole(summary_file, f"{line}\n", PRIVATE_FILE)
    print(line, flush=True)
    return 0


def _fail(error: SweepflowError, error_file: Path | None) -> NoReturn:
    document = ErrorDocument.of(error, error.kind if isinstance(error, WorkerFailed) else None)
    given = {"field": error.field, "reason": error.reason}
    known = {name: value for name, value in given.items() if value is not None}
    log.error("the job failed", error=error.code, kind=document.kind, **known)
    if error_file:
        write_whole(error_file, f"{document.document()}\n", PRIVATE_FILE)
    print(f"error: {printable(str(error))}", file=sys.stderr, flush=True)
    raise SystemExit(error.exit_code) from error


def _check_summary(path: Path | None) -> None:
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise BadValue("summary", f"{path} can't be written; name a file in a folder that exists")
