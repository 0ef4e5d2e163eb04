"""Which clock samples are believed. Pure: the record and a sample in, the new record out.

Sweeps use the samples to find out how old a timestamp is. A clock that is ahead makes everything look older than it is,
so that retention would be cut short. Once its sample is recorded, correct clocks are behind it, and none of their
samples is accepted. So a sample may be ahead of the last one by the time that was measured, plus one step (setting
`clock_step_max_s`).

Time is measured by uptime, which neither an operator nor a time server can change. The record keeps the uptime and the
wall clock of the last accepted sample of a few machines. A machine that samples again after a weekend proves by its
uptime that the weekend has passed. A machine that is new or was rebooted can't prove a pause that is longer than a
step: its sample is refused and kept, and an operator may confirm it. Other machines that agree do not confirm it. They
would also agree after a slow clock was corrected, and then earlier timestamps would look older than they are.

The step is the tolerance for clocks that differ. It is the amount by which one wrong clock can shorten a retention.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from sweep_tasks.clock import Uptime
from sweep_tasks.encoding import read_var_long, var_long

_MOST_ANCHORS = 16
_MOST_REFUSED = 8
_FORGET_MS = 2 * 86_400_000
"""A refusal is forgotten if it was not repeated while the record advanced by this much."""


class Sample(NamedTuple):
    """A sample as a machine offers it, with its uptime."""

    wall_ms: int
    ts: int
    uptime: Uptime


class RefusedSample(NamedTuple):
    """The last sample of a machine whose clock is too far from the record."""

    wall_ms: int
    ts: int
    uptime: Uptime
    last_ms: int
    """The recorded wall time when it was refused."""
    since_ms: int
    """The recorded wall time when the first of a series of refusals happened."""

    @property
    def above_ms(self) -> int:
        """By how much the sample is ahead of the record; negative if it is behind."""
        return self.wall_ms - self.last_ms


class Anchor(NamedTuple):
    """The uptime of a machine when the record showed `wall_ms`."""

    wall_ms: int
    uptime: Uptime


class SampleVerdict(Enum):
    """The decision on an offered sample."""

    ACCEPTED = "accepted"
    NOT_ABOVE = "not_above"
    """Another process was faster. This is no problem."""
    AHEAD = "ahead"
    BEHIND = "behind"


class ClockRecord(NamedTuple):
    """The last accepted sample, and what the next ones are checked against."""

    wall_ms: int
    ts: int
    anchors: tuple[Anchor, ...] = ()
    """One for each machine, most recent first."""
    refused: tuple[RefusedSample, ...] = ()
    """One for each machine, most recent first."""

    def limit_ms(self, uptime: Uptime, step_ms: int) -> int:
        """Return the latest wall time that is believed from this machine."""
        measured = (
            each.wall_ms + uptime.ms - each.uptime.ms for each in self.anchors if each.uptime.boot == uptime.boot
        )
        return max(self.wall_ms, *measured, 0) + step_ms

    def pending(self) -> list[RefusedSample]:
        """Return the refused samples that an operator may confirm."""
        return [each for each in self.refused if each.wall_ms > self.wall_ms]

    def behind(self) -> list[RefusedSample]:
        """Return the refused samples of clocks that are behind."""
        return [each for each in self.refused if each.above_ms < 0]

    def with_sample(self, wall_ms: int, ts: int, uptime: Uptime | None) -> ClockRecord:
        """Return the record with this sample as the last one; refusals that it resolves are removed."""
        anchors, boot = self.anchors, uptime.boot if uptime else None
        if uptime:
            others = (each for each in anchors if each.uptime.boot != boot)
            anchors = (Anchor(wall_ms, uptime), *others)[:_MOST_ANCHORS]
        return ClockRecord(wall_ms, ts, anchors, _still_refused(self.refused, wall_ms, boot))

    def encoded(self) -> bytes:
        """Serialise the record. Wall time and timestamp come first: earlier versions read and write only these."""
        more = [self.anchors, self.refused] if self.anchors or self.refused else None
        return var_long(self.wall_ms) + var_long(self.ts) + (json.dumps(more).encode() if more else b"")

    @classmethod
    def decoded(cls, value: bytes) -> ClockRecord:
        wall_ms, at = read_var_long(value)
        ts, at = read_var_long(value, at)
        anchors, refused = json.loads(value[at:]) if value[at:] else ((), ())
        return cls(
            wall_ms,
            ts,
            tuple(Anchor(each[0], Uptime(*each[1])) for each in anchors),
            tuple(RefusedSample(each[0], each[1], Uptime(*each[2]), each[3], each[4]) for each in refused),
        )


def offer(record: ClockRecord | None, sample: Sample, step_ms: int) -> tuple[SampleVerdict, ClockRecord]:
    """Decide whether a sample is believed; return the answer and the new record.

    With a step of 0, every sample above the last one is accepted.
    """
    if record is None:
        return SampleVerdict.ACCEPTED, ClockRecord(*sample[:2]).with_sample(*sample)
    if sample.wall_ms > record.wall_ms and sample.ts >= record.ts:
        if not step_ms or sample.wall_ms <= record.limit_ms(sample.uptime, step_ms):
            return SampleVerdict.ACCEPTED, record.with_sample(*sample)
        return SampleVerdict.AHEAD, _with_refused(record, sample)
    if step_ms and sample.wall_ms < record.wall_ms - step_ms:
        return SampleVerdict.BEHIND, _with_refused(record, sample)
    return SampleVerdict.NOT_ABOVE, record


def believed_ms(record: ClockRecord | None, now_ms: int, uptime: Uptime, step_ms: int) -> int:
    """Return the current time if a sample of it would be accepted, otherwise the wall time of the last sample."""
    if record is None or not step_ms or now_ms <= record.limit_ms(uptime, step_ms):
        return now_ms
    return record.wall_ms


def confirm(record: ClockRecord, refused: RefusedSample) -> ClockRecord | None:
    """Return the record with a confirmed sample as the last one; None if later samples were accepted meanwhile."""
    if refused.wall_ms <= record.wall_ms or refused.ts < record.ts:
        return None
    return record.with_sample(refused.wall_ms, refused.ts, refused.uptime)


def cut(record: ClockRecord, above_ms: int, last: tuple[int, int] | None) -> ClockRecord | None:
    """Return the record without the samples above a wall time; `last` is the last remaining sample.

    Refused samples are dropped: machines that are still running will offer them again.
    """
    if last is None:
        return None
    return ClockRecord(*last, tuple(each for each in record.anchors if each.wall_ms <= above_ms))


def _with_refused(record: ClockRecord, sample: Sample) -> ClockRecord:
    boot = sample.uptime.boot
    before = next((each for each in record.refused if each.uptime.boot == boot), None)
    same = before is not None and (before.above_ms > 0) == (sample.wall_ms > record.wall_ms)
    since_ms = before.since_ms if before and same else record.wall_ms
    others = _still_refused(record.refused, record.wall_ms, boot)
    refused = (RefusedSample(*sample, record.wall_ms, since_ms), *others)[:_MOST_REFUSED]
    return record._replace(refused=refused)


def _still_refused(refused: Iterable[RefusedSample], wall_ms: int, boot: str | None) -> tuple[RefusedSample, ...]:
    """Return the recent refusals of other machines that the recorded wall time has not passed."""
    return tuple(
        each
        for each in refused
        if each.uptime.boot != boot
        and wall_ms - each.last_ms < _FORGET_MS
        and (each.above_ms < 0 or each.wall_ms > wall_ms)
    )
