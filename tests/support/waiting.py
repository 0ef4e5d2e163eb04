"""Waits for something that a server, a driver or another process does a little later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0


def eventually(look: Callable[[], T], patience_s: float = PATIENCE_S, every_s: float = 0.1) -> T:
    """Return the first truthy value, or the last value when the time is over, for the test to judge."""
    until = time.monotonic() + patience_s
    while not (found := look()) and time.monotonic() < until:
        time.sleep(every_s)
    return found
