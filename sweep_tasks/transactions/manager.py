"""Begins transactions: the one object an application keeps for each store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.model import checked_timestamp
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.tracker import Tracker
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.leases import Leases
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commit import Committer, WriteQueue
from sweep_tasks.transactions.commits import CommitTable
from sweep_tasks.transactions.keeper import LeaseKeeper
from sweep_tasks.transactions.snapshot import Reading, Snapshot
from sweep_tasks.transactions.transaction import Transaction
from sweep_tasks.transactions.writers import Writers

T = TypeVar("T")

_PUNCH_EVERY_MS = 60_000


class TransactionManager:
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
        """Writes are announced in the sweep queue of the store, or in `queue` if one is given. Without `enqueue`
        nothing will ever sweep what they replace but a scan of the whole table."""
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
        self._puncher = Puncher(store)
        self._punch_after_ms = 0
        self._keeper = LeaseKeeper(self.leases, self.settings.lease_ttl_s / 3 if renew_leases else 0, self._punch)
        self.protections = ProtectionCatalog(store, self.settings, self._clock)
        tracker = Tracker(self.protections, self._clock, self.settings.protection_refresh_s)
        self._reading = Reading(store, writers, thresholds, tracker, self.settings.scan_page_cells)
        self._committer = Committer(store, self.timestamps, thresholds, commits, writers, queue)

    def transaction(self, *, read_only: bool = False) -> Transaction:
        """Begin. The lease is taken, at a fresh timestamp, before the start timestamp.

        A read-only transaction takes no lease: it holds no sweep back, so it is refused on thorough tables and fails
        on a conservative one if its snapshot was swept meanwhile.
        """
        lease = None if read_only else self._keeper.take(self.timestamps.fresh())
        try:
            start = self.timestamps.fresh()
        except BaseException:
            if lease:
                self._keeper.give_back(lease)
            raise
        return Transaction(
            self._reading,
            start,
            committer=self._committer,
            lease=lease,
            ended=self._keeper.give_back,
            protections=self.protections,
            max_value_bytes=self.settings.max_value_bytes,
        )

    def read_at(self, ts: int) -> Snapshot:
        """Read as of a timestamp handed out before. Fails where that was swept."""
        checked_timestamp(ts)
        greatest = self.timestamps.greatest()
        if ts > greatest:
            raise BadValue(
                "timestamp",
                f"{ts} has not been handed out yet, the last was {greatest}; what it shows could change",
                reason="in_the_future",
            )
        return Snapshot(self._reading, ts)

    def run(self, work: Callable[[Transaction], T], attempts: int | None = None) -> T:
        """Do `work` in a transaction and commit, again from the start as often as that can help.

        `work` may be called several times and must not keep anything from a failed call.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_worth_another_try),
            stop=tenacity.stop_after_attempt(attempts or self.settings.transaction_attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.005, max=1.0),
            sleep=self._clock.sleep,
            reraise=True,
        )
        result: T = retrying(self._run_once, work)
        return result

    def _run_once(self, work: Callable[[Transaction], T]) -> T:
        with self.transaction() as transaction:
            return work(transaction)

    def _punch(self) -> None:
        """About once a minute, so that sweeps can tell which timestamp an hour ago was."""
        if self._clock.now_ms() >= self._punch_after_ms:
            self._puncher.punch(self.timestamps, self._clock)
            self._punch_after_ms = self._clock.now_ms() + _PUNCH_EVERY_MS

    def close(self) -> None:
        """Stop renewing leases. The store stays open: it is the caller's."""
        self._keeper.close()

    def __enter__(self) -> TransactionManager:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _worth_another_try(error: BaseException) -> bool:
    return isinstance(error, SweepflowError) and error.retryable
