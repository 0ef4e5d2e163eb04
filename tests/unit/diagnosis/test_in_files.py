"""Versions in the files of a node that readers do not see, and the tombstones that hide them."""

from __future__ import annotations

from sweep_tasks.diagnosis.obstacles import Reason
from sweep_tasks.diagnosis.on_disk import Found, Remnant, find_remnants, read_dump
from sweep_tasks.sstables.dump import PARTITION, Bound, DeletionInfo, Dumped

COLUMN = b"col"
GC_GRACE_S = 100
DELETED_S = 1_000


def version(ts: int, column: bytes = COLUMN) -> Dumped:
    return "row", {"clustering": [f"0x{column.hex()}", ~ts], "liveness_info": {"tstamp": str(ts)}, "cells": []}


def deletion(at: int) -> DeletionInfo:
    return {"marked_deleted": str(at), "local_delete_time": str(DELETED_S)}


def range_of(first: int, end: int, at: int) -> list[Dumped]:
    """As a sweep deletes the versions from `first` up to, but not including, `end`."""
    start: Bound = {"type": "exclusive", "clustering": [f"0x{COLUMN.hex()}", ~end], "deletion_info": deletion(at)}
    stop: Bound = {"type": "inclusive", "clustering": [f"0x{COLUMN.hex()}", ~first], "deletion_info": deletion(at)}
    return [("range_tombstone_bound", {"start": start}), ("range_tombstone_bound", {"end": stop})]


def found(**files: list[Dumped]) -> Found:
    whole = Found([], [])
    for name, entries in files.items():
        one = read_dump([(PARTITION, {}), *entries], COLUMN, name)
        whole.versions.extend(one.versions)
        whole.tombstones.extend(one.tombstones)
    return whole


def left(whole: Found, visible: list[int], now_s: int) -> list[Remnant]:
    return find_remnants(whole, COLUMN, visible, GC_GRACE_S, now_s)


def test_what_is_visible_and_what_is_of_another_column_is_no_remain() -> None:
    assert left(found(a=[version(30), version(20, b"other")]), [30], DELETED_S) == []


def test_until_its_tombstone_is_old_enough_a_version_waits_for_gc_grace() -> None:
    whole = found(a=[version(20), version(10)], b=[version(30), *range_of(0, 30, at=40)])
    free_ms = (DELETED_S + GC_GRACE_S) * 1000
    assert left(whole, [30], DELETED_S + 5) == [
        Remnant(10, Reason.WAITING_GC_GRACE, free_ms, "a"),
        Remnant(20, Reason.WAITING_GC_GRACE, free_ms, "a"),
    ]


def test_afterwards_it_is_the_file_that_was_not_compacted_with_it() -> None:
    whole = found(a=[version(10)], b=[version(30), *range_of(0, 30, at=40)])
    assert left(whole, [30], DELETED_S + GC_GRACE_S + 1) == [Remnant(10, Reason.OVERLAPPING_SSTABLE, None, "a")]


def test_a_tombstone_hides_neither_what_it_ends_before_nor_what_was_written_after_it() -> None:
    whole = found(a=[version(30), version(10)], b=range_of(0, 30, at=5))
    assert left(whole, [], DELETED_S) == [
        Remnant(10, Reason.WAITING_GC_GRACE, None, "a"),
        Remnant(30, Reason.WAITING_GC_GRACE, None, "a"),
    ], "the write that hides them is in memory"
    assert not any(each.hides(COLUMN, stored) for each in whole.tombstones for stored in whole.versions)


def test_single_versions_and_whole_rows_are_deleted_too() -> None:
    single: Dumped = ("row", {"clustering": [f"0x{COLUMN.hex()}", ~10], "deletion_info": deletion(50)})
    (remain,) = left(found(a=[version(10)], b=[single]), [], DELETED_S + GC_GRACE_S + 1)
    assert remain.reason is Reason.OVERLAPPING_SSTABLE
    whole = found(a=[version(10)])
    gone = read_dump([(PARTITION, {"deletion_info": deletion(50)})], COLUMN, "b")
    (remain,) = left(whole._replace(tombstones=gone.tombstones), [], DELETED_S)
    assert remain.until_ms == (DELETED_S + GC_GRACE_S) * 1000
