"""The history of clock samples: which timestamp had been handed out by a given wall time.

"An hour ago" is a wall-clock time, and a sweep needs a timestamp. About once a minute a process records a clock sample
(AtlasDB calls this the puncher): it takes a fresh timestamp, *then* reads the wall clock, and stores the pair. A
recorded timestamp was therefore handed out before its wall time, and a lookup never returns a timestamp that is newer
than the wall time asked for. A result that is too old only sweeps less; one that is too new would remove versions that
must be kept. `clock_samples.py` decides which clocks are accepted.

The samples of one day share a row. An index row lists the days and the first timestamp of each, so that a store that
was idle for a year is searched as fast as a busy one, and many timestamps can be looked up together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import NamedTuple

import structlog

from sweep_tasks.clock import Clock, Uptime, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_samples import (
    ClockRecord,
    RefusedSample,
    Sample,
    SampleVerdict,
    believed_ms,
    confirm,
    cut,
    offer,
)
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import BadValue, NotFound, SweepflowError
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import MAX_TS, Cell, checked_timestamp
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import CLOCK_SAMPLES
from sweep_tasks.texts import duration

log = structlog.get_logger(__name__)

_DAY_MS = 86_400_000
_LAST = Cell(b"last", b"v")
_DAYS = b"days"


class ClockSample(NamedTuple):
    """A timestamp, and a wall time by which it had been handed out."""

    wall_ms: int
    ts: int


class Discarded(NamedTuple):
    """The number of samples discarded, and the last sample that remains."""

    samples: int
    last: ClockSample | None


def at_most_default(step_max_s: int) -> int:
    """Return the limit of a step, or the default if that is stricter; 0 is no limit."""
    default: int = Settings.model_fields["clock_step_max_s"].default
    return min(step_max_s or default, default)


class ClockHistory:
    """The clock samples of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._journal = Journal(store)

    # --- recording ------------------------------------------------------------------------------------------------

    def record_now(self, timestamps: TimestampService, clock: Clock, step_max_s: int) -> ClockSample | None:
        """Record a sample of the current time.

        Returns None if another process already recorded this wall time or a later one, or if the clock is not
        accepted. The uptime is read before the wall clock, so that the time it measures is never too long.

        A sample that only a higher limit than the default lets in, or none, is an act in the journal: from then on
        every sweep treats what was written before as that much older.
        """
        ts = timestamps.fresh()
        uptime = clock.uptime()
        sample = Sample(clock.now_ms(), ts, uptime)
        answer = self._offer(sample, step_max_s, at_most_default(step_max_s))
        if answer is None:
            ahead_ms = sample.wall_ms - self._expected_ms(uptime)
            limit = {"clock_step_max_s": step_max_s}
            with self._journal.record("clock sample", uptime.host, ahead_s=ahead_ms // 1000, ts=ts, **limit) as act:
                answer = self._offer(sample, step_max_s, step_max_s)
                if answer and answer is not SampleVerdict.ACCEPTED:
                    act.refuse(answer.value)  # other processes have changed the samples meanwhile
        if answer is SampleVerdict.ACCEPTED:
            return ClockSample(sample.wall_ms, ts)
        if answer in (SampleVerdict.AHEAD, SampleVerdict.BEHIND):
            log.warning(
                f"the clock of this host is {answer.value}, its sample is refused; see 'sweepflow clock show'",
                code=f"clock_{answer.value}",
                host=uptime.host,
            )
        return None

    def _offer(self, sample: Sample, step_max_s: int, unrecorded_s: int) -> SampleVerdict | None:
        """Offer a sample, and store its entries if it is accepted. Change nothing and return None if a step of
        `step_max_s` accepts it, and one of `unrecorded_s` refuses it."""
        answer: SampleVerdict | None = None

        def offered(current: bytes | None) -> bytes:
            nonlocal answer
            known = ClockRecord.decoded(current) if current else None
            answer, record = offer(known, sample, step_max_s * 1000)
            if (
                answer is SampleVerdict.ACCEPTED
                and offer(known, sample, unrecorded_s * 1000)[0] is not SampleVerdict.ACCEPTED
            ):
                answer = None
            return current if current and answer in (None, SampleVerdict.NOT_ABOVE) else record.encoded()

        self._store.update(CLOCK_SAMPLES, _LAST, offered)
        if answer is SampleVerdict.ACCEPTED:
            self._store_entries(ClockSample(sample.wall_ms, sample.ts))
        return answer

    def _expected_ms(self, uptime: Uptime) -> int:
        """Return the time that the clock of a machine should show at least: the last sample, and the time that the
        machine has measured since its own."""
        record = self.clock_record()
        return record.limit_ms(uptime, 0) if record else 0

    def record(self, sample: ClockSample) -> None:
        """Record a given sample without checking the clock; the caller vouches for it."""
        checked_timestamp(sample.wall_ms, "wall_ms")
        checked_timestamp(sample.ts, "ts")
        overtaken_by: ClockSample | None = None

        def later(current: bytes | None) -> bytes:
            nonlocal overtaken_by
            last = ClockRecord.decoded(current) if current else None
            behind = last is not None and (sample.wall_ms <= last.wall_ms or sample.ts < last.ts)
            overtaken_by = ClockSample(last.wall_ms, last.ts) if last and behind else None
            if current and overtaken_by:
                return current
            return (last or ClockRecord(*sample)).with_sample(*sample, None).encoded()

        self._store.update(CLOCK_SAMPLES, _LAST, later)
        if overtaken_by is not None:
            raise BadValue(
                "wall_ms",
                f"{sample.wall_ms} with timestamp {sample.ts} is not after the last clock sample, "
                f"{overtaken_by.wall_ms} with {overtaken_by.ts}; give a later wall time, and a timestamp that is not "
                "lower",
            )
        self._store_entries(sample)

    def _store_entries(self, sample: ClockSample) -> None:
        """Store the entries of a sample that is already the last one.

        A process that dies before they are written leaves a gap: lookups within it return older timestamps than they
        could, which is safe. If the sample was discarded before its entries were written, they are removed again.
        """
        entries = _entries(sample)
        self._store.put_if_absent(CLOCK_SAMPLES, entries)
        last = self.last()
        if last is None or last.wall_ms < sample.wall_ms:
            self._store.remove(CLOCK_SAMPLES, [cell for cell in entries if cell.row != _DAYS])

    # --- accepted samples -----------------------------------------------------------------------------------------

    def clock_record(self) -> ClockRecord | None:
        """Return the last sample with what the next ones are measured by; None before the first."""
        return self._read_last()[1]

    def believed_ms(self, clock: Clock, step_max_s: int) -> int:
        """Return the wall time that retentions are counted back from.

        It is the current time, or the last sample if this clock is ahead.
        """
        uptime = clock.uptime()
        return believed_ms(self.clock_record(), clock.now_ms(), uptime, step_max_s * 1000)

    def confirm(self, boot: str, clock: Clock, step_max_s: int, force: bool = False) -> ClockSample:
        """Accept the refused sample of a machine, because an operator confirms that its clock is right. One that is
        ahead of the clock of this host too is accepted only by `force`."""
        _, current = self._read_last()
        pending = [each for each in current.pending() if each.uptime.boot == boot] if current else []
        hosts = {each.uptime.host for each in pending}
        ahead_s = max((ahead_of_here_s(each, clock) for each in pending), default=0)
        with self._journal.record("clock confirm", ", ".join(hosts), forced=force, ahead_s=ahead_s) as act:
            confirmed = self._confirm(boot, clock, step_max_s, force)
            act.add(**confirmed._asdict())
            return confirmed

    def _confirm(self, boot: str, clock: Clock, step_max_s: int, force: bool) -> ClockSample:
        while True:
            found, record = self._read_last()
            refused = next((each for each in record.pending() if each.uptime.boot == boot), None) if record else None
            if record is None or refused is None:
                raise NotFound(
                    "sample: no refused sample of that host is left; 'sweepflow clock show' lists the refused ones"
                )
            if not force:
                check_not_ahead(refused, clock, step_max_s)
            confirmed = confirm(record, refused)
            if confirmed is None:
                host = refused.uptime.host
                raise SweepflowError(
                    f"sample: the clock sample of {host} is older than samples that other hosts have recorded since; "
                    "check which host shows the right time and correct the others",
                    code="conflict",
                    reason="overtaken",
                    host=host,
                )
            if self._replace_last(found, confirmed):
                sample = ClockSample(refused.wall_ms, refused.ts)
                self._store_entries(sample)
                return sample

    def discard(self, above_ms: int, *, dry_run: bool = False) -> Discarded:
        """Remove the samples above a wall time. Lookups then return older timestamps, so sweeps remove less.

        The last sample is replaced first, by compare-and-set. A sample that is recorded at the same time is either
        discarded with the others or checked against the samples that remain.
        """
        if dry_run:
            return self._discard(above_ms, dry_run=True)
        with self._journal.record("clock discard", str(from_ms(above_ms))) as act:
            discarded = self._discard(above_ms, dry_run=False)
            act.add(samples=discarded.samples)
            return discarded

    def _discard(self, above_ms: int, *, dry_run: bool) -> Discarded:
        while True:
            found, record = self._read_last()
            above = self._entries_above(above_ms)
            is_above = record is not None and record.wall_ms > above_ms
            left = self._last_by(above_ms) if is_above else self.last()
            if dry_run:
                return Discarded(max(len(above), is_above), left)
            if record is None or not is_above:
                self._store.remove(CLOCK_SAMPLES, above)
                return Discarded(len(above), left)
            if self._replace_last(found, cut(record, above_ms, left)):
                # Read again: the entries of the last sample may have been stored while it was still the last one.
                # Samples that were recorded since have a higher timestamp.
                above = self._entries_above(above_ms, record.ts)
                self._store.remove(CLOCK_SAMPLES, above)
                return Discarded(max(len(above), 1), left)

    def _read_last(self) -> tuple[bytes | None, ClockRecord | None]:
        found = self._store.read(CLOCK_SAMPLES, [_LAST]).get(_LAST)
        return found, ClockRecord.decoded(found) if found else None

    def _replace_last(self, found: bytes | None, record: ClockRecord | None) -> bool:
        change = Change(found, record.encoded() if record else None)
        return self._store.compare_and_set(CLOCK_SAMPLES, _LAST.row, {_LAST.column: change})

    def _entries_above(self, wall_ms: int, up_to: int = MAX_TS) -> list[Cell]:
        """Return the cells of all samples above a wall time, with a timestamp of at most `up_to`.

        A day without samples stays in the index, which is harmless: a lookup then searches the day before.
        """
        days = [day for day, _ in self._days() if day >= var_long(max(0, wall_ms) // _DAY_MS)]
        return [
            cell
            for cell, ts in self._store.read_rows(CLOCK_SAMPLES, days).items()
            if read_var_long(cell.column)[0] > wall_ms and read_var_long(ts)[0] <= up_to
        ]

    # --- lookups ---------------------------------------------------------------------------------------------------

    def last(self) -> ClockSample | None:
        """Return the latest sample."""
        record = self.clock_record()
        return ClockSample(record.wall_ms, record.ts) if record else None

    def first(self) -> ClockSample | None:
        """Return the oldest sample."""
        for day in sorted(cell.column for cell in self._store.read_rows(CLOCK_SAMPLES, [_DAYS])):
            for cell, ts in self._store.read_rows(CLOCK_SAMPLES, [day]).items():
                return ClockSample(read_var_long(cell.column)[0], read_var_long(ts)[0])
        return self.last()

    def timestamp_at(self, wall_ms: int) -> int | None:
        """Return the greatest timestamp known to have been handed out by a wall time; None before the first sample."""
        last = self.last()
        if last is None or wall_ms < 0:
            return None
        if last.wall_ms <= wall_ms:
            return last.ts
        found = self._last_by(wall_ms)
        return found.ts if found else None

    def timestamp_before(self, wall_ms: int, back_ms: int) -> int | None:
        """Return `timestamp_at` of `back_ms` before a wall time, or before the last sample if that is earlier.

        The wall time was accepted because of samples that may have been discarded since. Against samples that another
        clock recorded afterwards, it would make timestamps look older than they are. So the last sample is read again
        after the lookup: only a discard moves it back.
        """
        while True:
            last = self.last()
            if last is None:
                return None
            found = self.timestamp_at(min(wall_ms, last.wall_ms) - back_ms)
            now_last = self.last()
            if now_last is not None and now_last.wall_ms >= last.wall_ms:
                return found

    def _last_by(self, wall_ms: int) -> ClockSample | None:
        """Return the last stored sample at or before a wall time."""
        if wall_ms < 0:
            return None
        moment = var_long(wall_ms)
        days = [cell.column for cell in self._store.read_rows(CLOCK_SAMPLES, [_DAYS])]
        for day in sorted((day for day in days if day <= var_long(wall_ms // _DAY_MS)), reverse=True):
            entries = self._store.read_rows(CLOCK_SAMPLES, [day])
            earlier = [cell for cell in entries if cell.column <= moment]
            if earlier:
                return ClockSample(read_var_long(earlier[-1].column)[0], read_var_long(entries[earlier[-1]])[0])
        return None

    def moment_of(self, ts: int) -> int | None:
        """Return the latest wall time, in milliseconds, at which `ts` had certainly not been passed.

        This is the last sample at or below `ts`; None if `ts` is older than the first sample.
        """
        return self.moments_of([ts])[ts]

    def moments_of(self, timestamps: Collection[int]) -> dict[int, int | None]:
        """Return `moment_of` for many timestamps, with as many reads as for one."""
        last = self.last()
        found: dict[int, int | None] = {ts: last.wall_ms if last and ts >= last.ts else None for ts in timestamps}
        days = self._days() if last and any(moment is None for moment in found.values()) else []
        firsts = [first for _, first in days]
        pending = {ts: bisect_right(firsts, ts) - 1 for ts, moment in found.items() if moment is None}
        while pending := {ts: day for ts, day in pending.items() if day >= 0 and found[ts] is None}:
            samples = self._samples(sorted({days[day][0] for day in pending.values()}))
            for ts, day in pending.items():
                earlier = [sample.wall_ms for sample in samples[days[day][0]] if sample.ts <= ts]
                found[ts] = earlier[-1] if earlier else None
            # A day indexed by an early version has no first timestamp, and may begin after the one that is wanted.
            pending = {ts: day - 1 for ts, day in pending.items()}
        return found

    def passed_at(self, ts: int) -> int | None:
        """Return the wall time by which `ts` had certainly been passed: the first sample above it, or None.

        A day whose first sample was discarded may be indexed with too low a timestamp. So days before the indexed one
        are searched, too, back to one that ends at or below `ts`.
        """
        last = self.last()
        if last is None or ts >= last.ts:
            return None
        days = self._days()
        at = max(0, bisect_right([first for _, first in days], ts) - 1)
        while at > 0 and not self._ends_by(days[at - 1][0], ts):
            at -= 1
        for day, _ in days[at:]:
            above = [sample.wall_ms for sample in self._samples([day])[day] if sample.ts > ts]
            if above:
                return above[0]
        return last.wall_ms

    def _ends_by(self, day: bytes, ts: int) -> bool:
        """Return whether a day has samples, and none above `ts`."""
        samples = self._samples([day])[day]
        return bool(samples) and samples[-1].ts <= ts

    def _days(self) -> list[tuple[bytes, int]]:
        """Return the indexed days, each with its first timestamp; 0 if none was stored."""
        found = self._store.read_rows(CLOCK_SAMPLES, [_DAYS])
        return sorted((cell.column, read_var_long(value)[0]) for cell, value in found.items())

    def _samples(self, days: Collection[bytes]) -> dict[bytes, list[ClockSample]]:
        samples: dict[bytes, list[ClockSample]] = {day: [] for day in days}
        for cell, value in self._store.read_rows(CLOCK_SAMPLES, days).items():
            samples[cell.row].append(ClockSample(read_var_long(cell.column)[0], read_var_long(value)[0]))
        return samples


def ahead_of_here_s(refused: RefusedSample, clock: Clock) -> int:
    """Return by how much a refused sample is ahead of this host's clock; negative if it is behind."""
    return (refused.wall_ms - clock.now_ms()) // 1000


def check_not_ahead(refused: RefusedSample, clock: Clock, step_max_s: int) -> None:
    """Raise `BadValue` if a refused sample is ahead of this host's clock too: one of the two clocks is wrong."""
    ahead_s = ahead_of_here_s(refused, clock)
    if ahead_s > step_max_s:
        raise BadValue(
            "host",
            f"the sample of {refused.uptime.host} is {duration(ahead_s)} ahead of this host's clock too; correct one "
            "of the two, or give --force",
            reason="ahead_of_here",
        )


def _entries(sample: ClockSample) -> dict[Cell, bytes]:
    day, ts = var_long(sample.wall_ms // _DAY_MS), var_long(sample.ts)
    return {Cell(_DAYS, day): ts, Cell(day, var_long(sample.wall_ms)): ts}
