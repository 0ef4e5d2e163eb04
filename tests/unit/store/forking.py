"""Helpers for tests of forks, which share a SQLite store between processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

from sweep_tasks.model import Cell
from sweep_tasks.store.sqlite import SQLiteStore, connection, forks

BY_THREAD = Cell(b"thread", b"v")


def open_quickly(url: str) -> SQLiteStore:
    """Processes end here, the machine does not: nothing has to be synced."""
    return SQLiteStore(url.removeprefix("sqlite:///"), durability="off")


def call_when_shut(do: Callable[[], object]) -> None:
    """Call this as soon as the other threads are stopped."""
    shut = connection._gate.shut

    def shut_and_do() -> None:
        shut()
        do()

    connection._gate.shut = shut_and_do  # type: ignore[method-assign]


def call_while_shutting(do: Callable[[], object]) -> None:
    """Call this as soon as a fork has begun to stop the other threads."""

    def monotonic() -> float:
        do()
        return time.monotonic()

    vars(forks)["time"] = SimpleNamespace(monotonic=monotonic)
