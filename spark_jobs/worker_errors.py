"""Our own errors on their way from a worker to the driver.

Spark passes on nothing but the text of a traceback, so a worker raises one error whose text is a JSON document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from sweep_tasks.errors import SweepflowError
from sweep_tasks.orders import ErrorDocument

Batches = Iterable[pa.RecordBatch]
Worker = Callable[[Batches], Iterator[pa.RecordBatch]]


class WorkerError(Exception):
    """Carries an error of a worker to the driver, as JSON."""

    def __init__(self, error: SweepflowError) -> None:
        super().__init__(ErrorDocument.of(error).document())


_WORKER_ERROR = re.compile(
    rf"^{re.escape(f'{WorkerError.__module__}.{WorkerError.__qualname__}')}: (.*)$", re.MULTILINE
)


class WorkerFailed(SweepflowError):
    """An error of ours that was raised in a worker; `kind` is the name of its class."""

    def __init__(self, error: ErrorDocument) -> None:
        super().__init__(
            error.message, code=error.code, exit_code=error.exit_code, field=error.field, reason=error.reason
        )
        self.kind = error.kind


def worker_failure(text: str) -> WorkerFailed | None:
    """Return the last error of a worker in the text of a failed Spark job, or None if there is none."""
    found = _WORKER_ERROR.findall(text)
    return WorkerFailed(ErrorDocument.parse(found[-1])) if found else None


def report_errors(worker: Worker) -> Worker:
    """Wrap a worker so that the driver gets its errors with code, field and reason."""

    def reporting(batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from worker(batches)
        except SweepflowError as error:
            raise WorkerError(error) from error

    return reporting
