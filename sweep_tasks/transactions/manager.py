"""The transaction manager: the object through which an application begins transactions on a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import LeaseKeeper, Leases
from sweep_tasks.coordination.thresholds import Announcements, Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.model import checked_timestamp
from sweep_tasks.protection.catalog import ProtectionCatalog, Tracker
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store.contract import Store
from sweep_tasks.transactions.commit import Committer, WriteQueue
from sweep_tasks.transactions.outcomes import CommitTable, Writers
from sweep_tasks.transactions.snapshot import Reading, Snapshot
from sweep_tasks.transactions.transaction import Transaction

T = TypeVar("T")

_SAMPLE_EVERY_MS = 60_000


class TransactionManager:
    """Begins transactions and renews their leases. An application keeps one for each store."""

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        *,
        enqueue: bool = True,
        queue: WriteQueue | None = None,
        clock: Clock | None = None,
        renew_leases: bool = True,
    ) -> None:
        """Writes are enqueued in the sweep queue of the store, or in `queue` if given.

        Without `enqueue`, only a scan of the whole table finds the versions that they replace.
        """
        self.settings = settings or Settings()
        if queue is None and enqueue:
            queue = QueueWriter(store, clock=clock)
        self.store = store
        self._clock = clock or SystemClock()
        self.timestamps = TimestampService(store)
        self.leases = Leases(store, self.settings.lease_ttl_s)
        thresholds = Thresholds(store)
        commits = CommitTable(store)
        writers = Writers(commits, self.leases, self._clock, self.settings.writer_wait_s)
        self._clock_history = ClockHistory(store)
        self._sample_after_ms = 0
        self._keeper = LeaseKeeper(
            self.leases, self.settings.lease_ttl_s / 3 if renew_leases else 0, self._record_clock_sample
        )
        self.protections = ProtectionCatalog(store, self.settings, self._clock)
        tracker = Tracker(self.protections, self._clock, self.settings.protection_refresh_s)
        announcements = Announcements(store, self._clock, self.settings.emptying_wait_s)
        self._reading = Reading(store, writers, announcements, tracker, self.settings.scan_page_cells)
        self._committer = Committer(store, self.timestamps, thresholds, commits, writers, queue, announcements)

    def transaction(self, *, read_only: bool = False) -> Transaction:
        """Begin a transaction. Its lease is taken, at a fresh timestamp, before the start timestamp.

        A read-only transaction takes no lease, so it does not delay sweeps. It is refused on thorough tables, and fails
        on a conservative table if its snapshot is swept meanwhile.
        """
        lease = None if read_only else self._keeper.take(self.timestamps.fresh())
        try:
            start = self.timestamps.fresh()
        except BaseException:
            if lease:
                self._keeper.release(lease)
            raise
        return Transaction(
            self._reading,
            start,
            committer=self._committer,
            lease=lease,
            ended=self._keeper.release,
            protections=self.protections,
            max_value_bytes=self.settings.max_value_bytes,
        )

    def read_at(self, ts: int) -> Snapshot:
        """Return a snapshot at a timestamp that was handed out before. Reads fail where it was swept."""
        checked_timestamp(ts)
        greatest = self.timestamps.greatest()
        if ts > greatest:
            raise BadValue(
                "timestamp",
                f"{ts} has not been handed out yet, and its snapshot could still change; give at most {greatest}",
                reason="in_the_future",
            )
        return Snapshot(self._reading, ts)

    def run(self, work: Callable[[Transaction], T], attempts: int | None = None) -> T:
        """Run `work` in a transaction and commit it; on a retryable error, retry from the beginning.

        `work` may be called several times and must not keep any state of a failed attempt.
        """
        retrying = retries.TRANSACTION.retrying(self._clock.sleep, attempts or self.settings.transaction_attempts)
        result: T = retrying(self._run_once, work)
        return result

    def _run_once(self, work: Callable[[Transaction], T]) -> T:
        with self.transaction() as transaction:
            return work(transaction)

    def _record_clock_sample(self) -> None:
        """Record a clock sample about once a minute, so that sweeps know which timestamp was current an hour ago."""
        if self._clock.now_ms() >= self._sample_after_ms:
            self._clock_history.record_now(self.timestamps, self._clock, self.settings.clock_step_max_s)
            self._sample_after_ms = self._clock.now_ms() + _SAMPLE_EVERY_MS

    def close(self) -> None:
        """Stop renewing leases. The store belongs to the caller and stays open."""
        self._keeper.close()

    def __enter__(self) -> TransactionManager:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
