"""The wall-clock map: which timestamp had been handed out by a given moment.

"An hour ago" is a wall-clock time, and a sweep needs a timestamp. About once a minute somebody punches: takes a fresh
timestamp, *then* looks at the clock, and records the pair. So whatever is on record for a moment was handed out
before that moment, and an answer is never newer than the moment asked for: an answer that is too old only sweeps
less, one that is too new would sweep what must be kept.

Punches of one day share a row; a row of days tells which exist and the first timestamp of each, so that a store left
alone for a year is searched as fast as a busy one, and many timestamps are looked up together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, checked_timestamp
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import PUNCHES
from sweep_tasks.timestamps.service import TimestampService

_DAY_MS = 86_400_000
_LAST = Cell(b"last", b"v")
_DAYS = b"days"


class Punch(NamedTuple):
    wall_ms: int
    ts: int


class Puncher:
    def __init__(self, store: Store) -> None:
        self._store = store

    def punch(self, timestamps: TimestampService, clock: Clock) -> Punch | None:
        """Record now; None if somebody else already recorded this moment or a later one."""
        ts = timestamps.fresh()
        punch = Punch(clock.now_ms(), ts)
        return punch if self._record(punch) is None else None

    def record(self, punch: Punch) -> None:
        """Put a pair on record, as a caller who knows it to be true."""
        checked_timestamp(punch.wall_ms, "wall_ms")
        checked_timestamp(punch.ts, "ts")
        last = self._record(punch)
        if last is not None:
            raise BadValue(
                "wall_ms",
                f"{punch.wall_ms} with timestamp {punch.ts} does not come after the last punch, "
                f"{last.wall_ms} with {last.ts}; both must not go back, and the wall clock must move",
            )

    def _record(self, punch: Punch) -> Punch | None:
        """The later punch that stands in the way, if one does.

        The last punch moves first. If we die before the entry is written, the next punch leaves a gap: answers
        within it are older than they could be, which is safe.
        """
        overtaken_by: Punch | None = None

        def later(current: bytes | None) -> bytes:
            nonlocal overtaken_by
            last = _decoded(current) if current else None
            overtaken_by = last if last and (punch.wall_ms <= last.wall_ms or punch.ts < last.ts) else None
            return current if overtaken_by and current else _encoded(punch)

        self._store.update(PUNCHES, _LAST, later)
        if overtaken_by is None:
            day = var_long(punch.wall_ms // _DAY_MS)
            self._store.put_if_absent(
                PUNCHES, {Cell(_DAYS, day): var_long(punch.ts), Cell(day, var_long(punch.wall_ms)): var_long(punch.ts)}
            )
        return overtaken_by

    def last(self) -> Punch | None:
        found = self._store.read(PUNCHES, [_LAST]).get(_LAST)
        return _decoded(found) if found else None

    def first(self) -> Punch | None:
        """The oldest pair on record."""
        for day in sorted(cell.column for cell in self._store.read_rows(PUNCHES, [_DAYS])):
            for cell, ts in self._store.read_rows(PUNCHES, [day]).items():
                return Punch(read_var_long(cell.column)[0], read_var_long(ts)[0])
        return self.last()

    def timestamp_at(self, wall_ms: int) -> int | None:
        """The greatest timestamp known to have been handed out by then; None if the record does not go back so far."""
        last = self.last()
        if last is None or wall_ms < 0:
            return None
        if last.wall_ms <= wall_ms:
            return last.ts
        moment = var_long(wall_ms)
        days = [cell.column for cell in self._store.read_rows(PUNCHES, [_DAYS])]
        for day in sorted((day for day in days if day <= var_long(wall_ms // _DAY_MS)), reverse=True):
            entries = self._store.read_rows(PUNCHES, [day])
            earlier = [cell for cell in entries if cell.column <= moment]
            if earlier:
                return read_var_long(entries[earlier[-1]])[0]
        return None

    def moment_of(self, ts: int) -> int | None:
        """The wall time, in milliseconds, by which `ts` had certainly not been passed: the last punch at or below it;
        None if the record does not go back so far."""
        return self.moments_of([ts])[ts]

    def moments_of(self, timestamps: Collection[int]) -> dict[int, int | None]:
        """As `moment_of`, many in as many reads as one takes."""
        last = self.last()
        found: dict[int, int | None] = {ts: last.wall_ms if last and ts >= last.ts else None for ts in timestamps}
        days = self._days() if last and any(moment is None for moment in found.values()) else []
        firsts = [first for _, first in days]
        looking = {ts: bisect_right(firsts, ts) - 1 for ts, moment in found.items() if moment is None}
        while looking := {ts: day for ts, day in looking.items() if day >= 0 and found[ts] is None}:
            punches = self._punches(sorted({days[day][0] for day in looking.values()}))
            for ts, day in looking.items():
                earlier = [punch.wall_ms for punch in punches[days[day][0]] if punch.ts <= ts]
                found[ts] = earlier[-1] if earlier else None
            # A day on record since before the first timestamp was noted may begin later than what is looked for.
            looking = {ts: day - 1 for ts, day in looking.items()}
        return found

    def passed_at(self, ts: int) -> int | None:
        """The wall time by which `ts` had certainly been passed: the first punch above it; None if none is yet."""
        last = self.last()
        if last is None or ts >= last.ts:
            return None
        days = self._days()
        at = max(0, bisect_right([first for _, first in days], ts) - 1)
        for day, _ in days[at:]:
            above = [punch.wall_ms for punch in self._punches([day])[day] if punch.ts > ts]
            if above:
                return above[0]
        return last.wall_ms

    def _days(self) -> list[tuple[bytes, int]]:
        """The days on record, each with the first timestamp noted for it; 0 if none was."""
        found = self._store.read_rows(PUNCHES, [_DAYS])
        return sorted((cell.column, read_var_long(value)[0]) for cell, value in found.items())

    def _punches(self, days: Collection[bytes]) -> dict[bytes, list[Punch]]:
        punches: dict[bytes, list[Punch]] = {day: [] for day in days}
        for cell, value in self._store.read_rows(PUNCHES, days).items():
            punches[cell.row].append(Punch(read_var_long(cell.column)[0], read_var_long(value)[0]))
        return punches


def _encoded(punch: Punch) -> bytes:
    return var_long(punch.wall_ms) + var_long(punch.ts)


def _decoded(value: bytes) -> Punch:
    wall_ms, at = read_var_long(value)
    return Punch(wall_ms, read_var_long(value, at)[0])
