"""Fresh timestamps: each strictly greater than every one handed out before, by any process.

The greatest one handed out is a register in the store. Threads that ask while a request is being prepared share it;
once it is sent, later askers wait for the next. Nothing is reserved for later: a timestamp that was taken before its
asker existed could be lower than something already read or swept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, Cell, checked_timestamp
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import TIMESTAMP

_GREATEST = Cell(b"t", b"v")


class TimestampService:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._sending = threading.Lock()
        self._queueing = threading.Lock()
        self._asked: list[tuple[int, Future[range]]] = []

    def fresh(self) -> int:
        return self.fresh_many(1).start

    def fresh_many(self, count: int) -> range:
        """`count` timestamps in a row."""
        if count < 1:
            raise BadValue("count", f"{count} is not a number of timestamps; ask for at least one")
        answer: Future[range] = Future()
        with self._queueing:
            self._asked.append((count, answer))
        with self._sending:
            if not answer.done():
                self._send()
        return answer.result()

    def _send(self) -> None:
        """One call to the store for everyone who asked before it."""
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
        """How many callers the next call to the store will answer."""
        with self._queueing:
            return len(self._asked)

    def move_past(self, ts: int) -> None:
        """Never hand out `ts` or anything below it again. A lower value than today's has no effect."""
        checked_timestamp(ts)
        self._move(lambda greatest: max(greatest, ts))

    def greatest(self) -> int:
        """The last one handed out; 0 if there was none."""
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
