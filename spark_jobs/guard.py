"""A driver must not outlive the Java machine that started it.

Kept apart from everything else: the guard stands before anything that takes time to import.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_DIE_WITH_PARENT = 1


def die_with_parent() -> None:
    """Only Linux can promise that; elsewhere a driver notices when it next speaks to Java."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
