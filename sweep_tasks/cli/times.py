"""Times as people type them: how long, and until when."""

from __future__ import annotations

import re

import pendulum

from sweep_tasks.clock import to_ms
from sweep_tasks.errors import BadValue

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd]?)\Z")


def seconds(text: str, field: str) -> int:
    match = _DURATION.match(text)
    if match is None:
        raise BadValue(field, f"{text!r} is not a time; write seconds, or 90m, 12h, 7d", reason="not_a_time")
    return int(match[1]) * _UNITS[match[2]]


def moment_ms(text: str, field: str, now_ms: int) -> int:
    """A time from now, or a date with or without a time of day, in UTC unless it says otherwise."""
    if _DURATION.match(text):
        return now_ms + seconds(text, field) * 1000
    try:
        parsed = pendulum.parse(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, pendulum.DateTime):
        raise BadValue(
            field,
            f"{text!r} is neither a time from now (90m, 12h, 7d) nor a date (2027-01-31T18:00:00Z)",
            reason="not_a_time",
        )
    if to_ms(parsed) <= now_ms:
        raise BadValue(field, f"{parsed} is over already; give a time to come", reason="past")
    return to_ms(parsed)
