"""An error of ours that comes out of Spark is still an error of ours."""

from __future__ import annotations

from pyspark.errors import PySparkException, PySparkRuntimeError

from spark_jobs.job import cause_of
from spark_jobs.worker_errors import WorkerError, WorkerFailed
from sweep_tasks.errors import EXIT_UNAVAILABLE, ProgramMissing, StoreBusy

TRACEBACK = f"""Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times: Traceback (most recent call last):
  File "workers.py", line 7, in read
    raise self._meaning_of(error) from error
sweep_tasks.errors.StoreBusy: any message of a worker

The above exception was the direct cause of the following exception:

spark_jobs.worker_errors.WorkerError: {WorkerError(StoreBusy("any message of a worker", reason="locked"))}
 SQLSTATE: 38000
"""


def test_an_error_in_a_worker_keeps_its_sentence_its_code_and_its_exit_code() -> None:
    found = cause_of(PySparkException(TRACEBACK))
    assert isinstance(found, WorkerFailed)
    assert (found.kind, found.field, found.reason) == ("StoreBusy", None, "locked")
    assert str(found) == "any message of a worker"
    assert (found.code, found.exit_code) == ("unavailable", EXIT_UNAVAILABLE)


def test_a_foreign_error_is_raised_unchanged() -> None:
    assert cause_of(PySparkException("ValueError: sweep_tasks.errors is not to blame")) is None


def test_spark_without_java_is_reported() -> None:
    found = cause_of(PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}))
    assert isinstance(found, ProgramMissing)
    assert (found.field, found.reason) == ("java", "ended")
