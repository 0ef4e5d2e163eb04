"""Problems with the clocks of hosts, and how to solve them. Pure.

The sample of a host that is *ahead* is refused, and the host sweeps by the last accepted sample. A host that is
*behind* can't record samples, and sweeps less than it could. A sample *in the future* keeps all correct clocks from
recording samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from sweep_tasks.clock import from_ms
from sweep_tasks.coordination.clock_samples import ClockRecord
from sweep_tasks.texts import duration

_CONFIRM = (
    "correct the clock of that host; if its time is right and the store was idle for that long, accept it with "
    "'sweepflow clock confirm'"
)
_DISCARD = "if that sample is wrong, remove it with 'sweepflow clock discard'; sweeps then continue at once"


class ClockCode(StrEnum):
    """The kinds of clock problems."""

    AHEAD = "clock_ahead"
    BEHIND = "clock_behind"
    FUTURE = "clock_sample_in_future"


class ClockProblem(NamedTuple):
    """One problem, with a sentence for people and what to do."""

    code: ClockCode
    host: str
    """The host with the wrong clock; for a sample in the future, the host that asks."""
    by_ms: int
    """By how much that clock is ahead of the last sample, or behind it."""
    since_ms: int
    """The wall time of the last sample when the problem was first found."""
    sentence: str
    do: str

    @property
    def about(self) -> str:
        """The subject of the problem, which stays the same as long as the problem lasts."""
        return f"clock of {self.host}" if self.code is not ClockCode.FUTURE else "clock sample"

    def document(self) -> dict[str, str | int]:
        return {"code": self.code.value, "host": self.host, "by_ms": self.by_ms, "since_ms": self.since_ms}


def clock_problems(record: ClockRecord | None, now_ms: int, host: str, step_max_s: int) -> list[ClockProblem]:
    """Return the problems as seen by `host`, whose clock shows `now_ms`; none if `step_max_s` is 0."""
    return list(_problems(record, now_ms, host, step_max_s)) if record and step_max_s else []


def _problems(record: ClockRecord, now_ms: int, host: str, step_max_s: int) -> Iterator[ClockProblem]:
    last = from_ms(record.wall_ms).to_datetime_string()
    if record.wall_ms - now_ms > step_max_s * 1000:
        by_ms = record.wall_ms - now_ms
        yield ClockProblem(
            ClockCode.FUTURE,
            host,
            by_ms,
            record.wall_ms,
            f"the last clock sample, {last} UTC, is {duration(by_ms // 1000)} ahead of the clock of {host}, so samples "
            "of clocks that show an earlier time are refused",
            _DISCARD,
        )
    for each in record.pending():
        by_ms = each.wall_ms - record.wall_ms
        since = from_ms(each.since_ms).to_datetime_string()
        yield ClockProblem(
            ClockCode.AHEAD,
            each.uptime.host,
            by_ms,
            each.since_ms,
            f"the clock of {each.uptime.host} is {duration(by_ms // 1000)} ahead of the last clock sample; its samples "
            f"are refused since {since} UTC; at most {duration(step_max_s)} are accepted (setting clock_step_max_s)",
            _CONFIRM,
        )
    for each in record.behind():
        since = from_ms(each.since_ms).to_datetime_string()
        yield ClockProblem(
            ClockCode.BEHIND,
            each.uptime.host,
            each.last_ms - each.wall_ms,
            each.since_ms,
            f"the clock of {each.uptime.host} is {duration(-each.above_ms // 1000)} behind the last clock sample; its "
            f"samples are refused since {since} UTC",
            f"correct the clock of that host, or check the last sample, {last} UTC: {_DISCARD}",
        )
