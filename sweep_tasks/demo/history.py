"""Create hours of history in a few seconds: real transactions, on a clock that is moved manually.

Everything uses the transaction client, the queue, the clock samples and the leases, in the order of time, so that the
store ends up as after hours of real use. Processes that die do so inside a commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweep_tasks.clock import Clock, Uptime
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import LeaseKeeper, Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import WriteConflict
from sweep_tasks.model import DELETE_MARKER, Cell, TableRef
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, StoreCall, crash
from sweep_tasks.store.schema import TRANSACTIONS
from sweep_tasks.transactions import Transaction, TransactionManager

Writes = Mapping[TableRef, Mapping[Cell, bytes]]

MINUTE_MS = 60_000
TIMESTAMPS_A_MINUTE = 1_000
"""As in a busy application: six hours of history span several partitions of the queue."""
_LOADING_TTL_S = 3_600.0
"""History passes faster than leases expire, and no process renews them meanwhile."""


class HistoryClock:
    """A clock that shows a moment of the past until it is moved."""

    def __init__(self, now_ms: int, present: Clock) -> None:
        self._now_ms = now_ms
        self._present = present

    def now_ms(self) -> int:
        return self._now_ms

    def uptime(self) -> Uptime:
        """Return the uptime of the present, so that a demo can be continued at any later time."""
        return self._present.uptime()

    def sleep(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)

    def advance_to(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)


class LastingTransaction:
    """A transaction that stays open: it keeps its lease until this object is closed."""

    def __init__(self, store: Store, lease_ttl_s: float) -> None:
        self._keeper = LeaseKeeper(Leases(store, lease_ttl_s), lease_ttl_s / 3, also=lambda: None)
        timestamps = TimestampService(store)
        self._lease = self._keeper.take(timestamps.fresh())
        self.lease_ts = self._lease.ts
        self.start = timestamps.fresh()

    def close(self) -> None:
        self._keeper.release(self._lease)
        self._keeper.close()


class DemoHistory:
    """The past of a store, written minute by minute."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, minutes: int) -> None:
        """The history begins that many `minutes` ago."""
        self.store = store
        self._settings = settings.model_copy(update={"lease_ttl_s": _LOADING_TTL_S})
        self._begin_ms = clock.now_ms() - minutes * MINUTE_MS
        self._clock = HistoryClock(self._begin_ms, clock)
        self._timestamps = TimestampService(store)
        self._first_ts = self._timestamps.greatest()
        self._clock_history = ClockHistory(store)
        self._manager = self._manager_on(store)
        self.transactions = self.writes = 0

    def advance_to(self, minute: int) -> None:
        """Move the clock to a minute after the beginning, and record a clock sample."""
        self._clock.advance_to(self._begin_ms + minute * MINUTE_MS)
        self._timestamps.move_past(self._first_ts + minute * TIMESTAMPS_A_MINUTE)
        self._clock_history.record_now(self._timestamps, self._clock, step_max_s=0)

    def now_ts(self) -> int:
        """Return a timestamp at which everything committed so far is visible."""
        return self._timestamps.fresh()

    def protect(self, record: Record) -> None:
        self._manager.protections.protect(record)

    def write(self, writes: Writes) -> None:
        self.begin(writes).commit()

    def begin(self, writes: Writes) -> Transaction:
        """Start a transaction that the caller commits later."""
        return self._fill(self._manager.transaction(), writes)

    def lose_a_race(self, writes: Writes) -> bool:
        """Write the same cells in two concurrent transactions. Return True if the second was refused."""
        second = self.begin(writes)
        self.write(writes)
        try:
            second.commit()
        except WriteConflict:
            return True
        return False

    def die_committing(self, writes: Writes, *, values_written: bool) -> int:
        """Simulate a process that dies just before its values are stored, or with its values stored and just before its
        commit is decided. Its lease expires at once: that was long ago. Return its start timestamp."""
        last = "put_if_absent" if values_written else "put"
        process = FaultyStore(self.store)
        transaction = self._fill(self._manager_on(process).transaction(), writes)
        process.before = lambda call: _crash_at(call, last, writes)
        try:
            transaction.commit()
        except ProcessCrashed:
            leases = self._manager.leases
            leases.release([lease for lease in leases.open() if lease.start == transaction.start])
        return transaction.start

    def read(self, writes: Writes) -> None:
        """Read cells, which rolls back the dead writers of their values."""
        with self._manager.transaction() as reader:
            for table, values in writes.items():
                reader.get_many(table, list(values))

    def close(self) -> None:
        self._manager.close()

    def _manager_on(self, store: Store) -> TransactionManager:
        return TransactionManager(store, self._settings, clock=self._clock, renew_leases=False)

    def _fill(self, transaction: Transaction, writes: Writes) -> Transaction:
        self.transactions += 1
        for table, values in writes.items():
            self.writes += len(values)
            transaction.put_many(table, {cell: value for cell, value in values.items() if value != DELETE_MARKER})
            transaction.delete_many(table, [cell for cell, value in values.items() if value == DELETE_MARKER])
        return transaction


def _crash_at(call: StoreCall, last: str, writes: Writes) -> None:
    if call.name != last:
        return
    if last == "put_if_absent":
        at_last_step = call.arguments[0] == TRANSACTIONS
    else:
        at_last_step = not writes.keys().isdisjoint(call.arguments[1])
    if at_last_step:
        crash(call)
