from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.clock import from_ms, to_ms
from sweep_tasks.errors import BadValue
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, crash, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from tests.conftest import memory_store
from tests.support.clock import ManualClock

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def puncher(store: Store) -> Puncher:
    return Puncher(store)


def test_a_moment_becomes_the_last_timestamp_punched_by_then(puncher: Puncher) -> None:
    for punch in (Punch(1_000, 10), Punch(2_000, 20), Punch(3_000, 30)):
        puncher.record(punch)
    assert [puncher.timestamp_at(ms) for ms in (999, 1_000, 1_999, 2_000, 3_000, 9_999_999)] == [
        None, 10, 10, 20, 30, 30,
    ]  # fmt: skip


def test_a_store_left_alone_for_months_still_answers(puncher: Puncher) -> None:
    puncher.record(Punch(5 * DAY, 10))
    puncher.record(Punch(200 * DAY + HOUR, 20))
    puncher.record(Punch(400 * DAY, 30))
    assert puncher.timestamp_at(199 * DAY) == 10
    assert puncher.timestamp_at(200 * DAY) == 10
    assert puncher.timestamp_at(200 * DAY + HOUR) == 20
    assert puncher.timestamp_at(399 * DAY) == 20


def test_before_the_first_punch_nothing_is_known(puncher: Puncher) -> None:
    assert puncher.timestamp_at(1_000) is None
    puncher.record(Punch(2_000, 5))
    assert puncher.timestamp_at(1_000) is None
    assert puncher.timestamp_at(-1) is None


def test_the_first_punch_is_the_oldest_on_record(puncher: Puncher) -> None:
    assert puncher.first() is None
    for punch in (Punch(5 * DAY, 10), Punch(5 * DAY + HOUR, 20), Punch(200 * DAY, 30)):
        puncher.record(punch)
        assert puncher.first() == Punch(5 * DAY, 10)


def test_a_puncher_that_died_at_the_first_punch_has_that_as_the_first(memory: MemoryStore) -> None:
    with pytest.raises(ProcessCrashed):
        Puncher(FaultyStore(memory, before=on("put_if_absent", 1, crash))).record(Punch(2_000, 20))
    assert Puncher(memory).first() == Punch(2_000, 20)


@pytest.mark.parametrize("punch", [Punch(1_000, 50), Punch(999, 50), Punch(2_000, 9)])
def test_a_punch_that_goes_back_is_refused_and_changes_nothing(puncher: Puncher, punch: Punch) -> None:
    puncher.record(Punch(1_000, 10))
    with pytest.raises(BadValue) as refused:
        puncher.record(punch)
    assert refused.value.field == "wall_ms"
    assert puncher.last() == Punch(1_000, 10)
    assert puncher.timestamp_at(5_000) == 10


def test_punching_takes_the_timestamp_before_it_looks_at_the_clock(memory: MemoryStore) -> None:
    """Time passes while the timestamp is fetched: the later clock must be the one on record."""
    clock = ManualClock(1_000)
    slow = FaultyStore(memory, after=on("update", 1, lambda _: clock.advance(5)))
    punch = Puncher(memory).punch(TimestampService(slow), clock)
    assert punch == Punch(6_000, 1)


def test_a_clock_that_stands_still_is_punched_once(puncher: Puncher, store: Store) -> None:
    clock = ManualClock(1_000)
    service = TimestampService(store)
    assert puncher.punch(service, clock)
    assert puncher.punch(service, clock) is None
    clock.advance(-0.5)
    assert puncher.punch(service, clock) is None
    clock.advance(60)
    assert puncher.punch(service, clock) == Punch(60_500, 4)


def test_a_puncher_that_dies_midway_leaves_older_answers_and_no_newer_ones(memory: MemoryStore) -> None:
    puncher = Puncher(memory)
    puncher.record(Punch(1_000, 10))
    with pytest.raises(ProcessCrashed):
        Puncher(FaultyStore(memory, before=on("put_if_absent", 1, crash))).record(Punch(2_000, 20))
    puncher.record(Punch(3_000, 30))
    assert puncher.timestamp_at(2_500) == 10


def test_moments_go_in_and_out_as_pendulum_values() -> None:
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
    puncher = Puncher(memory_store())
    wall_ms = ts = 0
    record: list[Punch] = []
    for wall_step, ts_step in steps:
        wall_ms, ts = wall_ms + wall_step, ts + ts_step
        record.append(Punch(wall_ms, ts))
        puncher.record(record[-1])
    for moment in moments:
        assert puncher.timestamp_at(moment) == max((p.ts for p in record if p.wall_ms <= moment), default=None)
