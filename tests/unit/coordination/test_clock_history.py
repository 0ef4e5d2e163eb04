from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.clock import from_ms, to_ms
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, NotFound, SweepflowError
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, StoreCall, crash, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import CLOCK_SAMPLES
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.simulation import Process

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def clock_history(store: Store) -> ClockHistory:
    return ClockHistory(store)


def test_a_moment_becomes_the_last_timestamp_sampled_by_then(clock_history: ClockHistory) -> None:
    for sample in (ClockSample(1_000, 10), ClockSample(2_000, 20), ClockSample(3_000, 30)):
        clock_history.record(sample)
    assert [clock_history.timestamp_at(ms) for ms in (999, 1_000, 1_999, 2_000, 3_000, 9_999_999)] == [
        None, 10, 10, 20, 30, 30,
    ]  # fmt: skip


def test_a_store_left_alone_for_months_still_answers(clock_history: ClockHistory) -> None:
    clock_history.record(ClockSample(5 * DAY, 10))
    clock_history.record(ClockSample(200 * DAY + HOUR, 20))
    clock_history.record(ClockSample(400 * DAY, 30))
    assert clock_history.timestamp_at(199 * DAY) == 10
    assert clock_history.timestamp_at(200 * DAY) == 10
    assert clock_history.timestamp_at(200 * DAY + HOUR) == 20
    assert clock_history.timestamp_at(399 * DAY) == 20


def test_before_the_first_clock_sample_nothing_is_known(clock_history: ClockHistory) -> None:
    assert clock_history.timestamp_at(1_000) is None
    clock_history.record(ClockSample(2_000, 5))
    assert clock_history.timestamp_at(1_000) is None
    assert clock_history.timestamp_at(-1) is None


def test_the_first_clock_sample_is_the_oldest_on_record(clock_history: ClockHistory) -> None:
    assert clock_history.first() is None
    for sample in (ClockSample(5 * DAY, 10), ClockSample(5 * DAY + HOUR, 20), ClockSample(200 * DAY, 30)):
        clock_history.record(sample)
        assert clock_history.first() == ClockSample(5 * DAY, 10)


def test_a_process_that_died_at_the_first_clock_sample_has_that_as_the_first(memory: MemoryStore) -> None:
    with pytest.raises(ProcessCrashed):
        ClockHistory(FaultyStore(memory, before=on("put_if_absent", 1, crash))).record(ClockSample(2_000, 20))
    assert ClockHistory(memory).first() == ClockSample(2_000, 20)


@pytest.mark.parametrize("sample", [ClockSample(1_000, 50), ClockSample(999, 50), ClockSample(2_000, 9)])
def test_a_clock_sample_that_moves_back_is_refused_and_changes_nothing(
    clock_history: ClockHistory, sample: ClockSample
) -> None:
    clock_history.record(ClockSample(1_000, 10))
    with pytest.raises(BadValue) as refused:
        clock_history.record(sample)
    assert refused.value.field == "wall_ms"
    assert clock_history.last() == ClockSample(1_000, 10)
    assert clock_history.timestamp_at(5_000) == 10


def test_recording_takes_the_timestamp_before_it_reads_the_clock(memory: MemoryStore) -> None:
    """Time passes while the timestamp is fetched: the later clock must be the one on record."""
    clock = ManualClock(1_000)
    slow = FaultyStore(memory, after=on("update", 1, lambda _: clock.advance(5)))
    sample = ClockHistory(memory).record_now(TimestampService(slow), clock, 900)
    assert sample == ClockSample(6_000, 1)


def test_a_stopped_clock_is_sampled_once(clock_history: ClockHistory, store: Store) -> None:
    clock = ManualClock(1_000)
    service = TimestampService(store)
    assert clock_history.record_now(service, clock, 900)
    assert clock_history.record_now(service, clock, 900) is None
    clock.advance(-0.5)
    assert clock_history.record_now(service, clock, 900) is None
    clock.advance(60)
    assert clock_history.record_now(service, clock, 900) == ClockSample(60_500, 4)


def test_a_process_that_dies_midway_leaves_older_answers_and_no_newer_ones(memory: MemoryStore) -> None:
    clock_history = ClockHistory(memory)
    clock_history.record(ClockSample(1_000, 10))
    with pytest.raises(ProcessCrashed):
        ClockHistory(FaultyStore(memory, before=on("put_if_absent", 1, crash))).record(ClockSample(2_000, 20))
    clock_history.record(ClockSample(3_000, 30))
    assert clock_history.timestamp_at(2_500) == 10


def test_moments_are_pendulum_values() -> None:
    moment = from_ms(1_700_000_000_123)
    assert moment.timezone_name == "UTC"
    assert to_ms(moment) == 1_700_000_000_123


@given(
    st.lists(st.tuples(st.integers(1, 3 * DAY), st.integers(0, 100)), max_size=30),
    st.lists(st.integers(0, 40 * DAY), min_size=1, max_size=10),
)
def test_answers_are_never_newer_than_the_moment_and_as_new_as_the_record_allows(
    steps: list[tuple[int, int]], moments: list[int]
) -> None:
    clock_history = ClockHistory(memory_store())
    wall_ms = ts = 0
    record: list[ClockSample] = []
    for wall_step, ts_step in steps:
        wall_ms, ts = wall_ms + wall_step, ts + ts_step
        record.append(ClockSample(wall_ms, ts))
        clock_history.record(record[-1])
    for moment in moments:
        assert clock_history.timestamp_at(moment) == max((p.ts for p in record if p.wall_ms <= moment), default=None)


STEP_S = 900


class Hosts:
    """Two of them, the second with its clock a day ahead."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.service = TimestampService(store)
        self.right = ManualClock(100 * DAY, "right")
        self.ahead = ManualClock(101 * DAY, "ahead")

    def advance(self, seconds: float) -> None:
        self.right.advance(seconds)
        self.ahead.advance(seconds)

    def record_now(self, clock: ManualClock, step_max_s: int = STEP_S) -> ClockSample | None:
        return ClockHistory(self.store).record_now(self.service, clock, step_max_s)


@pytest.fixture
def hosts(store: Store) -> Hosts:
    return Hosts(store)


class TestClocksThatDiffer:
    def test_a_host_that_is_ahead_is_not_recorded_and_does_not_block_the_other(
        self, hosts: Hosts, clock_history: ClockHistory
    ) -> None:
        for _ in range(3):
            assert hosts.record_now(hosts.right)
            assert hosts.record_now(hosts.ahead) is None
            hosts.advance(60)
        record = clock_history.clock_record()
        assert record
        assert [(each.uptime.host, each.above_ms) for each in record.pending()] == [("ahead", DAY)]
        assert clock_history.believed_ms(hosts.ahead, STEP_S) == record.wall_ms
        assert clock_history.timestamp_at(101 * DAY) == record.ts

    def test_an_idle_store_resumes_by_the_uptime_of_its_host(self, hosts: Hosts) -> None:
        assert hosts.record_now(hosts.right)
        hosts.advance(14 * 86_400)
        assert hosts.record_now(hosts.right)

    def test_a_refused_sample_is_accepted_once_it_is_confirmed(self, hosts: Hosts, clock_history: ClockHistory) -> None:
        hosts.record_now(hosts.right)
        hosts.record_now(hosts.ahead)
        confirmed = clock_history.confirm("ahead", hosts.ahead, STEP_S)
        assert (confirmed, clock_history.last()) == (ClockSample(101 * DAY, 2), ClockSample(101 * DAY, 2))
        assert clock_history.timestamp_at(101 * DAY - 1) == 1
        hosts.advance(60)
        assert hosts.record_now(hosts.ahead) == ClockSample(101 * DAY + 60_000, 3)

    def test_only_what_is_refused_can_be_confirmed(self, hosts: Hosts, clock_history: ClockHistory) -> None:
        for boot in ("right", "ahead", "missing"):
            with pytest.raises(NotFound):
                clock_history.confirm(boot, hosts.ahead, STEP_S)
            hosts.record_now(hosts.right)

    def test_what_others_have_overtaken_is_not_confirmed(self, hosts: Hosts, clock_history: ClockHistory) -> None:
        hosts.record_now(hosts.right)
        hosts.record_now(hosts.ahead)
        hosts.advance(60)
        hosts.record_now(hosts.right)
        with pytest.raises(SweepflowError, check=having(code="conflict")) as refused:
            clock_history.confirm("ahead", hosts.ahead, STEP_S)
        assert (refused.value.details["host"], refused.value.reason) == ("ahead", "overtaken")
        assert clock_history.last() == ClockSample(100 * DAY + 60_000, 3)


class TestDiscarding:
    @pytest.fixture
    def polluted(self, hosts: Hosts) -> Hosts:
        """As an earlier version left it: a sample of tomorrow, and no right clock is recorded any more."""
        hosts.record_now(hosts.right)
        hosts.advance(60)
        assert hosts.record_now(hosts.ahead, step_max_s=0)
        assert hosts.record_now(hosts.right) is None
        return hosts

    def test_a_wrong_sample_is_discarded_and_right_clocks_are_recorded_again(
        self, polluted: Hosts, clock_history: ClockHistory
    ) -> None:
        now = polluted.right.now_ms()
        assert clock_history.discard(now, dry_run=True) == (1, ClockSample(100 * DAY, 1))
        assert clock_history.last() == ClockSample(101 * DAY + 60_000, 2), "a dry run changes nothing"
        assert clock_history.discard(now) == (1, ClockSample(100 * DAY, 1))
        assert clock_history.last() == ClockSample(100 * DAY, 1)
        assert polluted.record_now(polluted.right)
        assert polluted.record_now(polluted.ahead) is None
        assert clock_history.discard(now) == (0, clock_history.last())

    def test_answers_only_become_older(self, polluted: Hosts, clock_history: ClockHistory) -> None:
        moments = [100 * DAY, 100 * DAY + 60_000, 101 * DAY, 102 * DAY]
        before = [clock_history.timestamp_at(each) or 0 for each in moments]
        clock_history.discard(polluted.right.now_ms())
        assert all((clock_history.timestamp_at(each) or 0) <= then for each, then in zip(moments, before, strict=True))

    def test_if_all_samples_are_discarded_the_next_is_the_first(
        self, polluted: Hosts, clock_history: ClockHistory
    ) -> None:
        assert clock_history.discard(0) == (2, None)
        assert (clock_history.last(), clock_history.first(), clock_history.timestamp_at(200 * DAY)) == (
            None,
            None,
            None,
        )
        assert polluted.record_now(polluted.right)

    def test_moments_of_timestamps_are_found_again_on_the_day_that_was_discarded(
        self, polluted: Hosts, clock_history: ClockHistory
    ) -> None:
        clock_history.discard(polluted.right.now_ms())
        for _ in range(4):
            polluted.record_now(polluted.right)
            polluted.advance(8 * 3_600)
        record = [ClockSample(100 * DAY + 60_000 + number * 8 * HOUR, 4 + number) for number in range(4)]
        assert clock_history.moments_of([each.ts for each in record]) == {each.ts: each.wall_ms for each in record}

    @pytest.mark.parametrize("days", [range(4, 16), [3, 7, 8, 15], [9, 15]])
    def test_the_time_by_which_a_timestamp_was_passed_is_found_again(
        self, clock_history: ClockHistory, days: Iterable[int]
    ) -> None:
        """The day of the wrong sample stays in the index, with a timestamp below those of the days before it."""
        right = [ClockSample(day * DAY, day * 100) for day in range(1, 4)]
        for each in [*right, ClockSample(8 * DAY, 310)]:
            clock_history.record(each)
        clock_history.discard(4 * DAY)
        for day in days:
            right.append(ClockSample(day * DAY + 1, day * 100 + 50))
            clock_history.record(right[-1])
        for ts in range(50, right[-1].ts):
            assert clock_history.passed_at(ts) == next(each.wall_ms for each in right if each.ts > ts)

    def test_one_recorded_at_the_same_time_is_discarded_too(self, memory: MemoryStore) -> None:
        """It was recorded between reading the last one and replacing it."""
        hosts = Hosts(memory)
        hosts.record_now(hosts.right)
        hosts.record_now(hosts.ahead, step_max_s=0)
        hosts.advance(60)

        def record_ahead(call: StoreCall) -> None:
            hosts.record_now(hosts.ahead, step_max_s=0)

        store = FaultyStore(memory, before=on("compare_and_set", 1, record_ahead, CLOCK_SAMPLES))
        assert ClockHistory(store).discard(hosts.right.now_ms()) == (2, ClockSample(100 * DAY, 1))
        assert ClockHistory(memory).timestamp_at(200 * DAY) == 1

    def test_a_sample_whose_entries_are_stored_during_its_discard_leaves_none(self, memory: MemoryStore) -> None:
        """They are stored while it is still the last one. A day that begins tomorrow would look as if it had passed."""
        hosts = Hosts(memory)
        hosts.record_now(hosts.right)
        recording = Process(
            memory, lambda own: ClockHistory(own).record_now(TimestampService(own), hosts.ahead, step_max_s=0)
        )
        recording.step_to("put_if_absent")
        store = FaultyStore(memory, before=on("compare_and_set", 1, lambda call: recording.run_to_end(), CLOCK_SAMPLES))
        assert ClockHistory(store).discard(hosts.right.now_ms()) == (1, ClockSample(100 * DAY, 1))
        ts = hosts.service.fresh()
        hosts.advance(60)
        assert hosts.record_now(hosts.right) == ClockSample(100 * DAY + 60_000, ts + 1)
        assert ClockHistory(memory).moment_of(ts) == 100 * DAY

    def test_a_sample_recorded_after_a_discard_stays(self, memory: MemoryStore) -> None:
        """Before the discard has removed the entries, and above the wall time that it was given."""
        hosts = Hosts(memory)
        hosts.record_now(hosts.right)
        hosts.record_now(hosts.ahead, step_max_s=0)
        hosts.advance(60)

        def record_right(call: StoreCall) -> None:
            hosts.record_now(hosts.right)

        store = FaultyStore(memory, after=on("compare_and_set", 1, record_right, CLOCK_SAMPLES))
        assert ClockHistory(store).discard(100 * DAY) == (1, ClockSample(100 * DAY, 1))
        hosts.advance(60)
        hosts.record_now(hosts.right)
        assert ClockHistory(memory).timestamp_at(100 * DAY + 60_000) == 3

    def test_a_sample_recorded_after_its_discard_is_removed_again(self, memory: MemoryStore) -> None:
        hosts = Hosts(memory)
        hosts.record_now(hosts.right)

        def discard(call: StoreCall) -> None:
            ClockHistory(memory).discard(hosts.right.now_ms())

        store = FaultyStore(memory, before=on("put_if_absent", 1, discard))
        ClockHistory(store).record_now(hosts.service, hosts.ahead, step_max_s=0)
        assert ClockHistory(memory).last() == ClockSample(100 * DAY, 1)
        ClockHistory(memory).record(ClockSample(103 * DAY, 50))
        assert ClockHistory(memory).timestamp_at(102 * DAY) == 1, "there is no trace of it"
