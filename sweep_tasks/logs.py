"""Log lines: structured, on stderr, with the current run, strategy and shard, and never with user data.

Bytes are a row, a column or a value of a user's table, so only their length is logged. In processes of Airflow its own
configuration stays, with that one rule in front of it; bound names reach its task logs as well. In our own processes
every event is one line, and control characters are written out, so that no text can control the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from sweep_tasks.config import LogFormat, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.texts import printable

JOURNAL_LINE = "journal"
"""The code of a line that is an entry of the journal."""


def configure_logs(form: LogFormat = "text", *, collected: bool = False) -> None:
    """Configure logging for a command, or for the driver of a job, whose lines are `collected` with those of its task.
    Entries of the journal are left out only where a person reads the lines at a terminal."""
    render: Any = structlog.processors.JSONRenderer()
    if form == "text":
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            *([] if collected or form == "json" or not sys.stderr.isatty() else [for_collection_only]),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            without_bytes,
            without_controls,
            render,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def configure_logs_by_settings() -> None:
    """Configure logging for the driver of a job. Settings that can't be read are reported where they are needed."""
    configure_logs(collected=True)  # reading them may log a line, which has to go to stderr
    try:
        form = load_settings().log_format
    except SweepflowError:
        form = "text"
    configure_logs(form, collected=True)


def log_to_application() -> None:
    """Send log lines to the standard library's `logging`, each as one JSON document, unless structlog is configured.

    An application that opens a store did not ask for lines on its stdout, which is structlog's default. It decides by
    the level and the handlers of `logging` what it wants to see.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            without_bytes,
            without_controls,
            structlog.processors.JSONRenderer(default=repr),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def guard_logs() -> None:
    """Keep bytes out of the log lines of another program's process, such as Airflow's. The list of processors is
    changed in place, because loggers that were used before keep the list they were created with."""
    existing = structlog.get_config()["processors"]
    if without_bytes not in existing:
        existing.insert(0, without_bytes)


@contextmanager
def bind_log_names(**names: Any) -> Iterator[None]:
    """Bind names, such as run, strategy and shard, to every log line of this block."""
    guard_logs()
    with structlog.contextvars.bound_contextvars(**names):
        yield


def without_bytes(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace bytes by their length."""
    return {name: _loggable(value) for name, value in event.items()}


def for_collection_only(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop entries of the journal. They are logged to be collected elsewhere, and nothing is collected from a terminal:
    there the answer of the command is enough."""
    if event.get("code") == JOURNAL_LINE:
        raise structlog.DropEvent
    return event


def without_controls(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Write out control characters in texts. Other values are shown by their `repr`, which has none."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _loggable(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        return {_loggable(key): _loggable(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_loggable(each) for each in value]
    return value
