"""Which parts of an entry are tombstones, and since when."""

from __future__ import annotations

import pytest

from sweep_tasks.sstables.measuring import DeadParts, Expiry, reading_of_marker, reading_of_partition, reading_of_row
from tests.unit.sstables.dumps import Entry, bound, boundary, dead, dead_cell, expiring, live, partition

NOW = 1_000
ALIVE = DeadParts((), alive=True)


def row_of(entry: Entry) -> DeadParts:
    return reading_of_row(entry, Expiry(NOW))


def test_a_row_with_a_value_is_alive() -> None:
    assert row_of(live(0)) == ALIVE


def test_a_sentinel_which_is_an_empty_value_is_alive() -> None:
    assert row_of(live(0, b"")) == ALIVE


def test_a_deleted_row_is_one_tombstone() -> None:
    assert row_of(dead(0, 700)) == DeadParts((700,), 100)


def test_a_row_that_was_deleted_and_written_again_is_alive_and_holds_a_tombstone() -> None:
    assert row_of({**live(0), **{"deletion_info": dead(0, 700)["deletion_info"]}}) == DeadParts((700,), 100, alive=True)


def test_a_deleted_cell_is_one_tombstone_and_its_row_is_dead_unless_something_else_lives() -> None:
    assert row_of(dead_cell(0, 700)) == DeadParts((700,), 11)
    assert row_of(dead_cell(0, 700, liveness_info={"tstamp": "10"})) == DeadParts((700,), 11, alive=True)


def test_each_deleted_cell_counts() -> None:
    two = dead_cell(0, 700)
    later = dead_cell(0, 800)["cells"][0] | {"tstamp": "12"}
    two["cells"] = [*two["cells"], later]
    assert row_of(two) == DeadParts((700, 800), written=12)


@pytest.mark.parametrize(
    ("expires", "expected"),
    [(NOW - 1, DeadParts((NOW - 61,), 10)), (NOW, DeadParts((NOW - 60,), 10)), (NOW + 1, ALIVE)],
)
def test_a_cell_whose_time_is_up_is_a_tombstone_since_it_was_written(expires: int, expected: DeadParts) -> None:
    assert row_of(expiring(0, expires, ttl=60)) == expected


def test_a_row_of_nothing_but_its_key_expires_too() -> None:
    assert row_of({**expiring(0, NOW, ttl=60), "cells": []}) == DeadParts((NOW - 60,), 10)


def test_a_cell_written_later_without_a_time_to_live_keeps_its_expired_row_alive() -> None:
    row = expiring(0, NOW, ttl=60)
    row["cells"][0]["tstamp"] = "12"
    assert row_of(row) == ALIVE


def test_a_cell_may_have_a_time_to_live_of_its_own() -> None:
    row = live(0)
    row["cells"][0] |= {"tstamp": "13", "ttl": 5, "expires_at": str(NOW), "expired": True}
    del row["liveness_info"]
    assert row_of(row) == DeadParts((NOW - 5,), 13)


def test_what_was_read_holds_from_the_last_expiry_to_the_next() -> None:
    expiry = Expiry(NOW)
    for expires in (900, NOW, 950, 1_200, 1_100, 1_300):
        reading_of_row(expiring(0, expires, ttl=10), expiry)
    assert (expiry.since_s, expiry.until_s) == (NOW, 1_100)


def test_bounds_of_deleted_ranges_are_tombstones() -> None:
    assert reading_of_marker(bound("start", 700)) == reading_of_marker(bound("end", 700)) == DeadParts((700,), 100)


def test_one_tombstone_between_adjacent_ranges_is_droppable_when_both_are() -> None:
    assert reading_of_marker(boundary(start_s=800, end_s=700)) == DeadParts((800,), 100)
    assert reading_of_marker(boundary(start_s=700, end_s=900)) == DeadParts((900,), 100)


def test_a_deleted_partition_is_a_tombstone_and_another_is_none() -> None:
    assert reading_of_partition(partition(0, deleted_s=700)["partition"]) == DeadParts((700,), 100)
    assert reading_of_partition(partition(0)["partition"]) == DeadParts()
