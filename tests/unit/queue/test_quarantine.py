from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.parking import Quarantine, Quarantined
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from tests.conftest import memory_store

CONSERVATIVE, THOROUGH, _ = SweepStrategy
ENTRY = Quarantined(CONSERVATIVE, 3, 10, Cell(b"row", b"col"), b"\x02garbage", "garbage in it")

quarantined = st.builds(
    Quarantined,
    st.sampled_from(QUEUES),
    st.integers(0, 255),
    st.none() | st.integers(0, 2**60),
    st.builds(Cell, st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=20)),
    st.binary(max_size=30),
    st.text(max_size=30),
)


def quarantine_of(store: Store) -> Quarantine:
    return Quarantine(store, TimestampService(store))


def test_a_quarantined_entry_is_returned_with_its_place_its_bytes_and_the_reason(store: Store) -> None:
    without_start = ENTRY._replace(start=None, place=Cell(b"row", b"\xff"), value=b"", reason="a bad column")
    quarantine_of(store).add([ENTRY, without_start])
    assert list(quarantine_of(store).all()) == [ENTRY, without_start]


@given(st.lists(quarantined, max_size=10, unique_by=lambda entry: entry.cell))
def test_any_entry_is_read_back_unchanged(entries: list[Quarantined]) -> None:
    quarantine = quarantine_of(memory_store())
    quarantine.add(entries)
    assert set(quarantine.all()) == set(entries)
    quarantine.remove(entries)
    assert list(quarantine.all()) == []


def test_quarantining_twice_keeps_the_last_reason(store: Store) -> None:
    quarantine = quarantine_of(store)
    quarantine.add([ENTRY])
    quarantine.add([ENTRY._replace(reason="an unknown id")])
    assert [entry.reason for entry in quarantine.all()] == ["an unknown id"]


def test_an_entry_that_was_removed_may_be_quarantined_again(store: Store) -> None:
    quarantine = quarantine_of(store)
    quarantine.add([ENTRY, ENTRY._replace(shard=4)])
    quarantine.remove([ENTRY])
    assert list(quarantine.all()) == [ENTRY._replace(shard=4)]
    quarantine.add([ENTRY])
    assert list(quarantine.all()) == [ENTRY, ENTRY._replace(shard=4)]


def test_more_than_a_page_is_read_back_completely(store: Store) -> None:
    many = [ENTRY._replace(place=Cell(b"row", b"%05d" % number), start=number) for number in range(2_500)]
    quarantine_of(store).add(many)
    assert list(quarantine_of(store).all()) == many


def test_quarantining_nothing_takes_no_timestamp(store: Store) -> None:
    quarantine_of(store).add([])
    quarantine_of(store).remove([])
    assert TimestampService(store).greatest() == 0
