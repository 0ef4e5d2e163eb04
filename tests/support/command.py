"""The command in this process: what it says and how it ends, in a fraction of the time that a process takes."""

from __future__ import annotations

import structlog
from typer.testing import CliRunner, Result

from sweep_tasks.cli.main import app


def invoke(*arguments: str) -> Result:
    """A command sends log lines to its own stderr, which is closed when it ends: whoever logs later must not."""
    try:
        return CliRunner().invoke(app, arguments)
    finally:
        structlog.reset_defaults()
