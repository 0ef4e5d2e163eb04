"""The timestamp service: fresh timestamps, each greater than every timestamp handed out before by any process.

The greatest timestamp handed out is a register in the store. Threads that ask while a request is being prepared share
that request. Once it is sent, later callers wait for the next request. No timestamps are reserved in advance: one that
was taken before its caller asked could be lower than something that was already read or swept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, Cell, checked_timestamp
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import TIMESTAMP

MOST_AT_ONCE = 10**9
"""The maximum distance of one move. A mistyped timestamp must not exhaust the timestamps of a store."""
_GREATEST = Cell(b"t", b"v")


class TimestampService:
    """Hands out fresh timestamps of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        call_in_each_process(self, TimestampService._reset)

    def _reset(self) -> None:
        self._sending = threading.Lock()
        self._queueing = threading.Lock()
        self._asked: list[tuple[int, Future[range]]] = []

    def fresh(self) -> int:
        """Return a fresh timestamp."""
        return self.fresh_many(1).start

    def fresh_many(self, count: int) -> range:
        """Return `count` consecutive fresh timestamps."""
        if count < 1:
            raise BadValue("count", f"{count} is not a valid number of timestamps; ask for at least 1")
        if count > MOST_AT_ONCE:
            raise BadValue("count", f"{count} timestamps are too many for one call; ask for at most {MOST_AT_ONCE}")
        answer: Future[range] = Future()
        with self._queueing:
            self._asked.append((count, answer))
        with self._sending:
            if not answer.done():
                self._send()
        return answer.result()

    def _send(self) -> None:
        """Make one call to the store for all callers that are waiting."""
        with self._queueing:
            asked, self._asked = self._asked, []
        total = sum(count for count, _ in asked)
        try:
            last = self._move(lambda greatest: greatest + total)
        except BaseException as error:
            for _, answer in asked:
                answer.set_exception(error)
            return
        first = last - total + 1
        for count, answer in asked:
            answer.set_result(range(first, first + count))
            first += count

    @property
    def waiting(self) -> int:
        """The number of callers that the next call to the store will serve."""
        with self._queueing:
            return len(self._asked)

    def move_past(self, ts: int, *, any_distance: bool = False) -> None:
        """Make sure that `ts` and all lower timestamps are never handed out again.

        A value below the current one has no effect. `any_distance` is for a store that is restored from a backup, and
        for one with synthetic timestamps.
        """
        checked_timestamp(ts)

        def moved(greatest: int) -> int:
            if ts > greatest + MOST_AT_ONCE and not any_distance:
                raise BadValue(
                    "timestamp",
                    f"{ts} is more than {MOST_AT_ONCE} above the last timestamp, {greatest}; give a lower one",
                    reason="too_far",
                )
            return max(greatest, ts)

        self._move(moved)

    def greatest(self) -> int:
        """Return the last timestamp handed out; 0 if there was none."""
        return stored_long(self._store.read(TIMESTAMP, [_GREATEST]).get(_GREATEST))

    def _move(self, step: Callable[[int], int]) -> int:
        def moved(current: bytes | None) -> bytes:
            greatest = step(stored_long(current))
            if greatest > MAX_TS:
                raise BadValue(
                    "timestamp", "no timestamps are left below the greatest 64-bit integer", reason="exhausted"
                )
            return var_long(greatest)

        return stored_long(self._store.update(TIMESTAMP, _GREATEST, moved))
