"""The guard that ends a driver together with the Java machine that started it.

A module of its own: the guard is set before anything that takes time to import.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_DIE_WITH_PARENT = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Only Linux can; elsewhere a driver notices when it next
    calls Java."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
