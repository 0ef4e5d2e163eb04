"""What a job of ours does around its work: an error is one sentence and an exit code, a summary one line of JSON.

The log has the code of the error and what separates it from others of that code, for scripts and alerts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import structlog
from pyspark.errors import PySparkException

from spark_jobs.session import WorkerFailed, explained
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.whole_files import write_whole

log = structlog.get_logger(__name__)


def reported(work: Callable[[], dict[str, Any]], summary_file: Path | None) -> int:
    """Print the summary as the last line, write it to the file if there is to be one, and return the exit code 0. An
    error ends the process with its own exit code."""
    try:
        _check_summary(summary_file)
        document = work()
    except SweepflowError as error:
        _fail(error)
    except PySparkException as error:
        ours = explained(error)
        if ours is None:
            raise
        _fail(ours)
    line = json.dumps(document)
    if summary_file:
        write_whole(summary_file, f"{line}\n")
    print(line, flush=True)
    return 0


def _fail(error: SweepflowError) -> NoReturn:
    kind = error.raised if isinstance(error, WorkerFailed) else type(error)
    given = {"field": error.field, "reason": error.reason}
    known = {name: value for name, value in given.items() if value is not None}
    log.error("the job failed", error=error.code, kind=kind.__name__, **known)
    print(f"error: {error}", file=sys.stderr, flush=True)
    raise SystemExit(error.exit_code) from error


def _check_summary(path: Path | None) -> None:
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise BadValue("summary", f"{path} can't be written; name a file in a folder that exists")
