"""How a job ends that can't do what it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from structlog.testing import capture_logs

from sweep_tasks.errors import SweepflowError


def failure_of(main: Callable[[list[str]], int], arguments: Sequence[str]) -> SweepflowError:
    """The error that the job ends its process with; its exit code is that of the process, and the log has its code."""
    with capture_logs() as lines, pytest.raises(SystemExit) as ended:
        main(list(arguments))
    error = ended.value.__cause__
    assert isinstance(error, SweepflowError)
    assert ended.value.code == error.exit_code
    (line,) = [each for each in lines if each["log_level"] == "error"]
    assert (line["error"], line["kind"]) == (error.code, type(error).__name__)
    assert (line.get("field"), line.get("reason")) == (error.field, error.reason)
    return error
