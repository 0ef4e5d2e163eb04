"""Log lines: structured, on stderr, each with whoever is at work bound to it, and never with anybody's data.

What comes as bytes is a row, a column or a value of somebody's table, so its length is told and nothing else. Within
Airflow's processes its own configuration stands, with that one rule put in front of it; the bound names reach its task
logs as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from sweep_tasks.config import LogFormat, load_settings
from sweep_tasks.errors import SweepflowError


def configure_logs(form: LogFormat = "text") -> None:
    """For a process of our own: a command, or a job's driver."""
    render: Any = structlog.processors.JSONRenderer()
    if form == "text":
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            without_bytes,
            render,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def configure_logs_by_settings() -> None:
    """Settings that can't be read are the business of whoever needs them."""
    try:
        form = load_settings().log_format
    except SweepflowError:
        form = "text"
    configure_logs(form)


def guard_logs() -> None:
    """For a process of somebody else's: whatever it does with log lines, what comes as bytes does not reach it. In
    place, because loggers that were used before keep the list they were made with."""
    standing = structlog.get_config()["processors"]
    if without_bytes not in standing:
        standing.insert(0, without_bytes)


@contextmanager
def at_work(**names: Any) -> Iterator[None]:
    """Every line from here on, of this thread and whatever it calls, carries these names: run, strategy, shard."""
    guard_logs()
    with structlog.contextvars.bound_contextvars(**names):
        yield


def without_bytes(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: _told(value) for name, value in event.items()}


def _told(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, dict):
        return {_told(key): _told(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_told(each) for each in value]
    return value
