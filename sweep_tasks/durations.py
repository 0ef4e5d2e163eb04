"""How long something took or lasts, for people: its two greatest units, in words or short."""

from __future__ import annotations

import pendulum

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def words(seconds: float) -> str:
    """6 hours 10 minutes."""
    whole = int(seconds)
    return " ".join(pendulum.duration(seconds=whole).in_words().split()[:4]) if whole else "0 seconds"


def short(seconds: float | None) -> str:
    """6 h 10 min, where there is little room."""
    if seconds is None:
        return "unknown"
    left, parts = int(seconds), list[str]()
    for size, name in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2]) or "0 s"
