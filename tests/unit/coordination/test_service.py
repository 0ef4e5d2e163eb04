from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import MOST_AT_ONCE, TimestampService
from sweep_tasks.errors import BadValue, OutcomeUnknown, StoreUnavailable
from sweep_tasks.model import MAX_TS
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, fail, lose_answer, on
from sweep_tasks.store.memory import MemoryStore
from tests.support.processes import in_processes


def take_some(_: int, url: str, times: int) -> list[int]:
    with open_store(url, Settings()) as store:
        service = TimestampService(store)
        return [ts for index in range(times) for ts in service.fresh_many(1 + index % 3)]


def test_timestamps_grow_strictly(store: Store) -> None:
    service = TimestampService(store)
    taken = [service.fresh() for _ in range(50)]
    assert all(a < b for a, b in pairwise(taken))
    assert taken[0] > 0


def test_many_timestamps_are_returned_by_one_call(memory: MemoryStore) -> None:
    counting = FaultyStore(memory)
    assert len(TimestampService(counting).fresh_many(1_000)) == 1_000
    assert counting.calls == 1


def test_two_services_on_one_store_never_give_out_the_same(store: Store) -> None:
    one, other = TimestampService(store), TimestampService(store)
    taken = [service.fresh() for _ in range(20) for service in (one, other)]
    assert all(a < b for a, b in pairwise(taken))


def test_eight_processes_never_give_out_the_same(sqlite_url: str) -> None:
    by_process = in_processes(8, take_some, sqlite_url, 60)
    taken = [ts for process in by_process for ts in process]
    assert len(set(taken)) == len(taken) == 8 * 120
    assert all(a < b for process in by_process for a, b in pairwise(process))


def test_after_a_restart_timestamps_are_above_all_handed_out_before(sqlite_url: str) -> None:
    with open_store(sqlite_url, Settings()) as store:
        last = TimestampService(store).fresh_many(10)[-1]
    with open_store(sqlite_url, Settings()) as store:
        assert TimestampService(store).fresh() > last


def test_it_is_moved_only_forward(store: Store) -> None:
    service = TimestampService(store)
    service.move_past(500)
    assert service.fresh() == 501
    service.move_past(100)
    assert service.fresh() == 502
    assert service.greatest() == 502


def test_a_lost_answer_skips_timestamps_and_repeats_none(memory: MemoryStore) -> None:
    faulty = FaultyStore(memory, after=on("update", 2, lose_answer))
    service = TimestampService(faulty)
    first = service.fresh()
    with pytest.raises(OutcomeUnknown):
        service.fresh()
    assert service.fresh() == first + 2


def test_a_failed_call_fails_only_the_callers_that_shared_it(memory: MemoryStore) -> None:
    service = TimestampService(FaultyStore(memory, before=on("update", 1, fail)))
    with pytest.raises(StoreUnavailable):
        service.fresh()
    assert service.fresh() > 0


def test_callers_share_a_call_only_if_it_has_not_been_sent(memory: MemoryStore) -> None:
    """The first call is held in the store; callers that ask meanwhile share the second, which is sent afterwards."""
    in_store, go_on = threading.Event(), threading.Event()

    def hold(_: StoreCall) -> None:
        in_store.set()
        assert go_on.wait(10)

    faulty = FaultyStore(memory, before=on("update", 1, hold))
    service = TimestampService(faulty)
    taken: list[int] = []
    first = threading.Thread(target=lambda: taken.append(service.fresh()))
    first.start()
    assert in_store.wait(10)
    others = [threading.Thread(target=lambda: taken.append(service.fresh())) for _ in range(20)]
    for other in others:
        other.start()
    while service.waiting < 20:
        threading.Event().wait(0.001)
    go_on.set()
    for thread in [first, *others]:
        thread.join()
    assert sorted(taken) == list(range(1, 22))
    assert faulty.calls == 2


@pytest.mark.parametrize("count", [0, -1, MOST_AT_ONCE + 1])
def test_asking_for_none_or_too_many_is_refused(store: Store, count: int) -> None:
    with pytest.raises(BadValue) as refused:
        TimestampService(store).fresh_many(count)
    assert refused.value.field == "count"


def test_a_negative_timestamp_is_refused(store: Store) -> None:
    service = TimestampService(store)
    with pytest.raises(BadValue) as refused:
        service.move_past(-5)
    assert (refused.value.field, refused.value.reason) == ("timestamp", "out_of_range")
    assert "-5" in str(refused.value)
    assert service.greatest() == 0


def test_it_moves_no_further_at_once_than_a_bounded_step_unless_a_store_is_restored(store: Store) -> None:
    service = TimestampService(store)
    service.move_past(MOST_AT_ONCE)
    with pytest.raises(BadValue) as refused:
        service.move_past(2 * MOST_AT_ONCE + 1)
    assert (refused.value.field, refused.value.reason) == ("timestamp", "too_far")
    assert service.greatest() == MOST_AT_ONCE
    service.move_past(2 * MOST_AT_ONCE + 1, any_distance=True)
    assert service.greatest() == 2 * MOST_AT_ONCE + 1


def test_running_out_is_an_error_and_not_a_wrap_around(store: Store) -> None:
    service = TimestampService(store)
    service.move_past(MAX_TS - 1, any_distance=True)
    assert service.fresh() == MAX_TS
    with pytest.raises(BadValue) as refused:
        service.fresh()
    assert (refused.value.field, refused.value.reason) == ("timestamp", "exhausted")
    assert service.greatest() == MAX_TS
