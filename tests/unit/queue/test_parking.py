from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, Cell, SweepStrategy
from sweep_tasks.queue.parking import WAITING_FOR_REPLICAS, Hold, HoldReason, ParkedEntry, Parking
from sweep_tasks.store import Store
from sweep_tasks.store.schema import PARKED
from tests.conftest import memory_store

CONSERVATIVE, THOROUGH, _ = SweepStrategy
CELL = Cell(b"row", b"col")
GRACE = Hold(HoldReason.GRACE, until_ms=5_000)
PROTECTED = Hold(HoldReason.PROTECTED, record="a", record_ts=50)
RETENTION = Hold(HoldReason.RETENTION, table_id=3)

numbers = st.integers(0, 2**60)
holds = st.one_of(
    numbers.map(lambda ms: Hold(HoldReason.GRACE, until_ms=ms)),
    st.just(WAITING_FOR_REPLICAS),
    numbers.map(lambda number: Hold(HoldReason.RETENTION, table_id=number)),
    st.tuples(st.text(max_size=5), numbers).map(
        lambda held: Hold(HoldReason.PROTECTED, record=held[0], record_ts=held[1])
    ),
)
entries = st.builds(
    ParkedEntry,
    holds,
    st.integers(1, 2**20),
    st.builds(Cell, st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=9)),
    st.integers(0, 2**60),
    st.integers(-1, 2**60),
    st.booleans(),
)


def parking_of(store: Store, strategy: SweepStrategy = CONSERVATIVE, shard: int = 0) -> Parking:
    return Parking(store, TimestampService(store), strategy, shard)


def parked(hold: Hold, start: int, cell: Cell = CELL, table_id: int = 1) -> ParkedEntry:
    return ParkedEntry(hold, table_id, cell, start, start + 1, False)


def test_an_entry_is_read_back_unchanged(store: Store) -> None:
    parking = parking_of(store)
    entry = ParkedEntry(PROTECTED, 7, CELL, 10, -1, True)
    parking.park([entry])
    assert list(parking.all()) == [entry]


@given(st.lists(entries, max_size=20), st.integers(1, 7))
def test_all_entries_are_read_back_with_any_page_size(given: list[ParkedEntry], page: int) -> None:
    parking = parking_of(memory_store())
    parking.park(given)
    by_column = {entry.column(): entry for entry in given}
    assert list(parking.all(page)) == [by_column[column] for column in sorted(by_column)]
    parking.remove(given)
    assert list(parking.all(page)) == []


@given(holds, entries, entries)
def test_reading_after_a_hold_skips_its_entries_and_returns_all_later_ones(
    hold: Hold, one: ParkedEntry, other: ParkedEntry
) -> None:
    parking = parking_of(memory_store())
    under = one._replace(hold=hold)
    parking.park([under, other])
    found = parking.page(Parking.behind(hold), 10).entries
    assert under not in found
    assert (other in found) == (other.hold.encoded() > hold.encoded())


def test_they_sort_by_hold_and_then_by_start(store: Store) -> None:
    parking = parking_of(store)
    expected = [
        parked(WAITING_FOR_REPLICAS, 1), parked(WAITING_FOR_REPLICAS, 2, table_id=9),
        parked(GRACE, 10), parked(GRACE, 300),
        parked(GRACE._replace(until_ms=6_000), 5),
        parked(PROTECTED, 20), parked(PROTECTED._replace(record_ts=60), 8), parked(PROTECTED._replace(record="b"), 1),
        parked(RETENTION, 2), parked(RETENTION, 200),
    ]  # fmt: skip
    parking.park(list(reversed(expected)))
    assert list(parking.all(2)) == expected


def test_a_hold_is_skipped_in_one_step(store: Store) -> None:
    parking = parking_of(store)
    parking.park([parked(PROTECTED, start) for start in range(50)] + [parked(RETENTION, 1)])
    assert parking.page(b"", 1).entries == [parked(PROTECTED, 0)]
    assert parking.page(Parking.behind(PROTECTED), 10).entries == [parked(RETENTION, 1)]
    assert parking.page(Parking.behind(RETENTION), 10).entries == []


def test_the_same_write_may_be_parked_under_several_holds(store: Store) -> None:
    parking = parking_of(store)
    parking.park([parked(PROTECTED, 10), parked(RETENTION, 10)])
    parking.remove([parked(PROTECTED, 10)])
    assert list(parking.all()) == [parked(RETENTION, 10)]


def test_parking_an_entry_twice_equals_parking_it_once(store: Store) -> None:
    parking = parking_of(store)
    for _ in range(2):
        parking.park([parked(GRACE, 10)])
    assert list(parking.all()) == [parked(GRACE, 10)]


def test_an_entry_may_be_parked_again_under_a_hold_it_was_released_from(store: Store) -> None:
    """In a store that keeps write times, what is put must be newer than the removal before."""
    timestamps = TimestampService(store)
    parking = Parking(store, timestamps, CONSERVATIVE, 0)
    parking.park([parked(PROTECTED, 10)])
    parking.remove([parked(PROTECTED, 10)])
    removed_at = timestamps.greatest()
    parking.park([parked(PROTECTED, 10)])
    assert list(parking.all()) == [parked(PROTECTED, 10)]
    (version,) = store.scan_versions(PARKED).items
    assert removed_at < version.ts < MAX_TS
    parking.remove([parked(PROTECTED, 10)])
    assert list(parking.all()) == []


def test_what_was_parked_again_since_it_was_seen_is_not_removed(store: Store) -> None:
    parking = parking_of(store)
    one, other = parked(WAITING_FOR_REPLICAS, 10), parked(WAITING_FOR_REPLICAS, 20)
    parking.park([one, other])
    seen = parking.page(b"", 10)
    parking.park([one])
    parking.remove(seen.entries, seen.as_of)
    assert list(parking.all()) == [one]


def test_every_shard_and_strategy_has_its_own(store: Store) -> None:
    parking_of(store).park([parked(GRACE, 1)])
    parking_of(store, THOROUGH).park([parked(GRACE, 2)])
    parking_of(store, shard=1).park([parked(GRACE, 3)])
    assert [entry.start for entry in parking_of(store).all()] == [1]
    assert [entry.start for entry in parking_of(store, THOROUGH).all()] == [2]
    assert [entry.start for entry in parking_of(store, shard=1).all()] == [3]


def test_nothing_to_park_takes_no_timestamp(store: Store) -> None:
    parking_of(store).park([])
    parking_of(store).remove([])
    assert TimestampService(store).greatest() == 0


def test_a_shard_out_of_range_is_refused(store: Store) -> None:
    with pytest.raises(BadValue) as refused:
        parking_of(store, shard=256)
    assert refused.value.field == "shard"
