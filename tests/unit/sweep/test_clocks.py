"""Hosts whose clocks differ by a day sweep one store."""

from __future__ import annotations

import pytest

from sweep_tasks.clock import Uptime
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.clock_problems import ClockCode, clock_problems
from sweep_tasks.coordination.clock_samples import ClockRecord, Sample, offer
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SnapshotSwept
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.parking import Quarantine, Quarantined
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.run import Sweeper, retry_quarantined
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock

CONSERVATIVE = SweepStrategy.CONSERVATIVE
HOUR_S, DAY_S = 3_600, 86_400
BEGIN_MS = 20_000 * DAY_S * 1000
SETTINGS = Settings()
ITEMS, INVOICES = TableRef.parse("shop.items"), TableRef.parse("shop.invoices")


class Shop:
    """An application on a host with a right clock writes every ten minutes, and any host may sweep."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.right = ManualClock(BEGIN_MS, "right")
        self.ahead = ManualClock(BEGIN_MS + DAY_S * 1000, "ahead")
        self.manager = TransactionManager(store, SETTINGS, clock=self.right, renew_leases=False)
        self.written: dict[int, int] = {}
        """By the true time in seconds: the timestamp at which everything written until then is visible."""
        Catalog(store).create(ITEMS, TableMetadata())
        Catalog(store).create(INVOICES, TableMetadata(retention_s=5 * HOUR_S))

    @property
    def seconds(self) -> int:
        return (self.right.now_ms() - BEGIN_MS) // 1000

    def advance(self, seconds: float) -> None:
        self.right.advance(seconds)
        self.ahead.advance(seconds)

    def write_for(self, seconds: int) -> None:
        for _ in range(seconds // 600):
            self.advance(600)
            with self.manager.transaction() as tx:
                for table in (ITEMS, INVOICES):
                    tx.put(table, b"row", b"c", b"%d" % self.seconds)
            self.written[self.seconds] = self.manager.timestamps.fresh()
            self.sample(self.right)

    def sample(self, clock: ManualClock) -> bool:
        return (
            ClockHistory(self.store).record_now(self.manager.timestamps, clock, SETTINGS.clock_step_max_s) is not None
        )

    def sweep(self, clock: ManualClock) -> int:
        """Return the sweep timestamp."""
        (summary,) = Sweeper(self.store, SETTINGS, clock).sweep([CONSERVATIVE])
        return summary.sweep_ts

    def lost(self, table: TableRef, retention_s: int) -> list[int]:
        """The times of snapshots that are swept although they are younger than the retention."""
        lost = []
        for second, ts in self.written.items():
            if second > self.seconds - retention_s:
                try:
                    assert self.manager.read_at(ts).get(table, b"row", b"c") == b"%d" % second
                except SnapshotSwept:
                    lost.append(second)
        return lost

    def problems(self, clock: ManualClock) -> list[tuple[ClockCode, str, int]]:
        record = ClockHistory(self.store).clock_record()
        found = clock_problems(record, clock.now_ms(), clock.uptime().host, SETTINGS.clock_step_max_s)
        return [(each.code, each.host, each.by_ms // 1000) for each in found]


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


class TestAHostThatIsADayAhead:
    def test_keeps_what_is_younger_than_the_retention_and_sweeps_the_rest(self, shop: Shop) -> None:
        shop.write_for(6 * HOUR_S)
        swept = shop.sweep(shop.ahead)
        assert (shop.lost(ITEMS, HOUR_S), shop.lost(INVOICES, 5 * HOUR_S)) == ([], [])
        assert swept == shop.sweep(shop.right), "its horizon is that of a host with a correct clock"
        assert shop.written[5 * HOUR_S - 600] < swept

    def test_does_not_keep_the_others_from_sweeping(self, shop: Shop) -> None:
        shop.write_for(2 * HOUR_S)
        shop.sweep(shop.ahead)
        shop.write_for(2 * HOUR_S)
        assert shop.sweep(shop.right) > shop.written[3 * HOUR_S - 600]
        assert shop.lost(ITEMS, HOUR_S) == []

    def test_is_reported_with_how_much_it_is_ahead(self, shop: Shop) -> None:
        shop.write_for(HOUR_S)
        shop.sweep(shop.ahead)
        assert shop.problems(shop.right) == [(ClockCode.AHEAD, "ahead", DAY_S)]

    def test_raises_neither_the_horizon_of_a_legacy_sweep_nor_of_a_given_interval(self, shop: Shop) -> None:
        shop.write_for(3 * HOUR_S)
        reach = shop.sweep(shop.right)
        order = LegacyOrder(ITEMS)
        assert order.horizon(CONSERVATIVE, shop.store, SETTINGS, shop.ahead).sweep_ts == reach
        interval = SweepOrder(CONSERVATIVE, 0, until_ms=shop.ahead.now_ms())
        assert interval.horizon(shop.store, SETTINGS, shop.ahead).sweep_ts == reach

    def test_keeps_the_retention_of_a_table_when_quarantined_entries_are_retried(self, shop: Shop) -> None:
        shop.write_for(6 * HOUR_S)
        shop.sweep(shop.right)
        broken = Quarantined(CONSERVATIVE, 0, None, Cell(b"row", b"column"), b"value", "for the test")
        Quarantine(shop.store, TimestampService(shop.store)).add([broken])
        retry_quarantined(shop.store, SETTINGS, shop.ahead)
        assert Thresholds(shop.store).of_tables([INVOICES])[INVOICES].for_readers < shop.written[HOUR_S + 600]
        assert shop.lost(INVOICES, 5 * HOUR_S) == []

    def test_that_was_the_first_of_all_sweeps_nothing_too_early(self, shop: Shop) -> None:
        """By its own clock the store is consistent. Right clocks are behind, and are reported."""
        assert shop.sample(shop.ahead)
        shop.write_for(2 * HOUR_S)
        for clock in (shop.ahead, shop.right):
            shop.sweep(clock)
            assert shop.lost(ITEMS, HOUR_S) == []
        assert {code for code, _, _ in shop.problems(shop.right)} == {ClockCode.FUTURE, ClockCode.BEHIND}

    def test_is_accepted_once_its_clock_is_right(self, shop: Shop) -> None:
        shop.write_for(HOUR_S)
        shop.sweep(shop.ahead)
        shop.ahead.step(-DAY_S)
        shop.advance(60)
        shop.sweep(shop.ahead)
        assert shop.problems(shop.right) == []


class TestAStoreThatWasLeftAlone:
    def test_is_swept_at_once_by_a_host_that_was_up_all_the_time(self, shop: Shop) -> None:
        shop.write_for(HOUR_S)
        shop.advance(10 * DAY_S)
        assert shop.sweep(shop.right) > shop.written[HOUR_S]

    def test_waits_for_a_confirmation_by_a_host_that_is_new(self, shop: Shop) -> None:
        shop.write_for(3 * HOUR_S)
        before = shop.sweep(shop.right)
        assert before > shop.written[2 * HOUR_S]
        shop.advance(10 * DAY_S)
        new = ManualClock(shop.right.now_ms(), "new")
        assert shop.sweep(new) == before
        assert shop.problems(new) == [(ClockCode.AHEAD, "new", 10 * DAY_S)]
        ClockHistory(shop.store).confirm("new", shop.right, SETTINGS.clock_step_max_s)
        new.advance(60)
        assert shop.sweep(new) > shop.written[3 * HOUR_S]
        assert shop.problems(new) == []


class TestASampleOfTomorrow:
    @pytest.fixture
    def polluted(self, shop: Shop) -> Shop:
        """As a host that was ahead left it, before there was a bound."""
        shop.write_for(2 * HOUR_S)
        assert ClockHistory(shop.store).record_now(shop.manager.timestamps, shop.ahead, step_max_s=0)
        shop.write_for(3 * HOUR_S)
        return shop

    def test_stalls_every_sweep_until_it_is_discarded(self, polluted: Shop) -> None:
        stalled = polluted.sweep(polluted.right)
        assert stalled < polluted.written[2 * HOUR_S + 600]
        ClockHistory(polluted.store).discard(polluted.right.now_ms())
        assert ClockHistory(polluted.store).record_now(polluted.manager.timestamps, polluted.right, step_max_s=0)
        assert polluted.problems(polluted.right) == []
        polluted.write_for(2 * HOUR_S)
        assert polluted.sweep(polluted.right) > polluted.written[5 * HOUR_S]
        assert polluted.lost(ITEMS, HOUR_S) == []

    def test_is_reported_although_nothing_was_refused_yet(self, shop: Shop) -> None:
        ClockHistory(shop.store).record_now(shop.manager.timestamps, shop.ahead, step_max_s=0)
        assert shop.problems(shop.right) == [(ClockCode.FUTURE, "right", DAY_S)]

    def test_discarding_a_sample_during_a_sweep_does_not_age_later_samples(self, shop: Shop) -> None:
        """The sweep has checked its clock against the samples; then those samples are discarded."""
        assert shop.sample(shop.ahead)
        shop.write_for(2 * HOUR_S)

        def discard(call: StoreCall) -> None:
            ClockHistory(shop.store).discard(shop.right.now_ms())
            ClockHistory(shop.store).record_now(shop.manager.timestamps, shop.right, step_max_s=0)

        store = FaultyStore(shop.store, before=on("read_rows", 1, discard))
        assert SweepOrder(CONSERVATIVE, 0).horizon(store, SETTINGS, shop.ahead).sweep_ts == 0

    def test_thresholds_that_were_published_stay(self, polluted: Shop) -> None:
        polluted.sweep(polluted.right)
        before = Thresholds(polluted.store).of_strategy(CONSERVATIVE)
        ClockHistory(polluted.store).discard(0)
        polluted.sweep(polluted.right)
        assert Thresholds(polluted.store).of_strategy(CONSERVATIVE) == before > 0


def test_without_a_bound_no_clock_is_wrong() -> None:
    _, record = offer(ClockRecord(BEGIN_MS, 1), Sample(BEGIN_MS + DAY_S * 1000, 2, Uptime("b", "b", 0)), 900_000)
    assert clock_problems(record, BEGIN_MS, "here", 900)
    assert clock_problems(record, BEGIN_MS, "here", 0) == []
