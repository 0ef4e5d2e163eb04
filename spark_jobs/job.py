"""What a job of ours does around its work: an error is one sentence and an exit code, a summary one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from spark_jobs.session import explained
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.whole_files import write_whole


def reported(work: Callable[[], dict[str, Any]], summary_file: Path | None) -> int:
    """The exit code. The summary is the last line that is printed, and the file's content if there is to be one."""
    try:
        _check_summary(summary_file)
        document = work()
    except SweepflowError as error:
        return _failed(error)
    except PySparkException as error:
        ours = explained(error)
        if ours is None:
            raise
        return _failed(ours)
    line = json.dumps(document)
    if summary_file:
        write_whole(summary_file, f"{line}\n")
    print(line, flush=True)
    return 0


def _failed(error: SweepflowError) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code


def _check_summary(path: Path | None) -> None:
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise BadValue("summary", f"{path} can't be written; name a file in a folder that exists")
