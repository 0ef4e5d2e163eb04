from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sweep_tasks.coordination.leases import Lease, LeaseKeeper, Leases, immutable_timestamp
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SweepflowError
from sweep_tasks.store import Store
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.simulation import Process


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(store, ttl_s=60)


class TestLeases:
    def test_open_leases_are_listed_oldest_first(self, leases: Leases) -> None:
        for ts in (300, 7, 40):
            leases.take(ts, f"owner-{ts}")
        assert leases.open() == [Lease(ts, None, f"owner-{ts}") for ts in (7, 40, 300)]

    def test_a_released_lease_is_removed(self, leases: Leases) -> None:
        one, other = leases.take(7, "one"), leases.take(8, "other")
        leases.release([one])
        assert leases.open() == [other]

    def test_the_store_expires_a_lease_that_is_not_renewed(self, leases: Leases, clock: ManualClock) -> None:
        leases.take(7, "one")
        clock.advance(60)
        assert leases.open() == []

    def test_a_renewed_lease_lives_on(self, leases: Leases, clock: ManualClock) -> None:
        lease = leases.take(7, "one")
        clock.advance(59)
        assert leases.renew(lease)
        clock.advance(59)
        assert leases.open() == [lease]

    def test_a_lease_that_ran_out_stays_out(self, leases: Leases, clock: ManualClock) -> None:
        lease = leases.take(7, "one")
        clock.advance(60)
        assert not leases.renew(lease)
        assert leases.stamp(lease, 9) is None
        assert leases.open() == []

    def test_a_stamp_shows_which_start_is_committing(self, leases: Leases) -> None:
        stamped = leases.stamp(leases.take(7, "one"), 9)
        assert stamped == Lease(7, 9, "one")
        assert leases.open() == [stamped]
        assert leases.renew(stamped)


class TestTheKeeper:
    def test_renews_leases_whatever_becomes_of_clock_samples(self, leases: Leases) -> None:
        """A broken journal refuses a sample; transactions must not lose their leases by that."""
        attempts, enough = 0, threading.Event()

        def fail() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 3:
                enough.set()
            raise SweepflowError("journal: entry 7 is missing", code="journal_broken")

        keeper = LeaseKeeper(leases, 0.01, fail)
        keeper.take(7)
        try:
            assert enough.wait(10)
        finally:
            keeper.close()

    def test_the_thread_ends_with_its_store_and_logs_nothing(
        self, sqlite: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        renewed = threading.Event()

        def sample() -> None:
            sqlite.tables()
            renewed.set()

        keeper = LeaseKeeper(Leases(sqlite, 60), 0.01, sample)
        keeper.take(7)
        assert renewed.wait(10)
        thread = keeper._thread
        assert thread is not None
        sqlite.close()
        thread.join(10)
        assert not thread.is_alive()
        assert capsys.readouterr().out == ""


class TestImmutableTimestamp:
    def test_without_open_transactions_it_is_fresh(self, store: Store, leases: Leases) -> None:
        service = TimestampService(store)
        service.move_past(100)
        assert immutable_timestamp(service, leases) == 101

    def test_the_oldest_open_transaction_bounds_it(self, store: Store, leases: Leases) -> None:
        service = TimestampService(store)
        first = leases.take(service.fresh(), "one")
        leases.take(service.fresh(), "two")
        service.fresh()
        assert immutable_timestamp(service, leases) == first.ts
        leases.release([first])
        assert immutable_timestamp(service, leases) == first.ts + 1

    def test_an_expired_lease_no_longer_bounds_it(self, store: Store, leases: Leases, clock: ManualClock) -> None:
        service = TimestampService(store)
        lease = leases.take(service.fresh(), "one")
        clock.advance(61)
        assert immutable_timestamp(service, leases) > lease.ts

    def test_in_every_interleaving_it_is_at_or_below_the_start_of_a_new_transaction(self) -> None:
        """Both make a handful of calls; every order of them is run."""
        for order in interleavings(3, 2):
            start, immutable = begin_against(immutable_timestamp, order)
            assert immutable <= start, order

    def test_leases_before_fresh_would_let_a_transaction_slip_in_between(self) -> None:
        def wrong_order(timestamps: TimestampService, leases: Leases) -> int:
            seen = [lease.ts for lease in leases.open()]
            return min([timestamps.fresh(), *seen])

        outcomes = [begin_against(wrong_order, order) for order in interleavings(3, 2)]
        assert any(immutable > start for start, immutable in outcomes)


def begin_against(immutable: Callable[[TimestampService, Leases], int], order: tuple[int, ...]) -> tuple[int, int]:
    """A transaction begins (lease at a fresh timestamp, then start) while another computes the immutable one."""

    def begin(store: Store) -> int:
        service = TimestampService(store)
        Leases(store, 60).take(service.fresh(), "one")
        return service.fresh()

    def compute(store: Store) -> int:
        return immutable(TimestampService(store), Leases(store, 60))

    memory = memory_store()

    beginner, computer = Process(memory, begin), Process(memory, compute)
    for process in (beginner, computer):
        process.step()
    for index in order:
        (beginner, computer)[index].step()
    start, result = beginner.finish(), computer.finish()
    assert start is not None
    assert result is not None
    return start, result


def interleavings(zeros: int, ones: int) -> list[tuple[int, ...]]:
    if not zeros or not ones:
        return [(0,) * zeros + (1,) * ones]
    return [(0, *rest) for rest in interleavings(zeros - 1, ones)] + [
        (1, *rest) for rest in interleavings(zeros, ones - 1)
    ]
