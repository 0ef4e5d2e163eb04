"""Versions that are read newest first, a page at a time."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.legacy.rules import Judged, ScanPosition, TableRules
from sweep_tasks.model import SENTINEL_TS, Cell, StoredVersion, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Mode, Protections, Record, Target
from sweep_tasks.sweep.rules import TableView
from sweep_tasks.transactions.outcomes import ABORTED

TABLE = TableRef.parse("app.items")
A, B, C = Cell(b"a", b"1"), Cell(b"a", b"2"), Cell(b"b", b"1")
CONSERVATIVE, THOROUGH, _ = SweepStrategy
S = 100


def rules(strategy: SweepStrategy = CONSERVATIVE, *records: Record, cap: int = 0, **view: Any) -> TableRules:
    return TableRules(TABLE, TableView(strategy, **view), S, Protections(records), cap)


def at(ts: int, mode: Mode = Mode.AT) -> Record:
    return Record(f"at {ts}", ts, mode, (Target(TABLE),))


def versions(cell: Cell, *starts: int, deletes: tuple[int, ...] = ()) -> list[StoredVersion]:
    return [StoredVersion(cell, ts, ts in deletes or ts == SENTINEL_TS) for ts in starts]


def judged(
    by: TableRules, found: list[StoredVersion], place: ScanPosition | None = None, at_end: bool = True, **commits: int
) -> Judged:
    """Everything commits one later, unless `_30=…` says otherwise."""
    outcomes = {ts: commits.get(f"_{ts}", ts + 1) for ts in by.starts(found)}
    return by.judged(place, found, outcomes, at_end)


def test_only_transactions_below_the_sweep_timestamp_are_asked_about() -> None:
    assert rules().starts(versions(A, 200, S, 99, 0, SENTINEL_TS)) == {99, 0}


def test_consecutive_removable_versions_are_one_range_and_a_single_one_is_deleted_exactly() -> None:
    found = judged(rules(), [*versions(A, 120, 30, 20, 10), *versions(B, 20, 10), *versions(C, 20)])
    assert found.plan.ranges == {TABLE: [VersionRange(A, 10, 21)]}
    assert found.plan.exact == {TABLE: [(B, 10)]}
    assert found.plan.sentinels == {TABLE: [A, B]}
    assert (found.counts.cells, found.counts.versions, found.counts.deleted, found.counts.sentinels) == (3, 7, 3, 2)
    assert found.place is None


def test_a_version_that_stays_cuts_a_range() -> None:
    """The record keeps the 20 in the middle, and nothing between 30 and 10 may be deleted across it."""
    found = judged(rules(CONSERVATIVE, at(25)), versions(A, 40, 35, 30, 20, 10, 5))
    assert found.plan.ranges == {TABLE: [VersionRange(A, 30, 36), VersionRange(A, 5, 11)]}
    assert found.counts.held == 1


def test_a_commit_at_or_above_the_sweep_timestamp_does_not_act_and_what_acts_takes_it_along() -> None:
    above = judged(rules(), versions(A, 30, 20, 10), _30=S)
    assert above.plan.exact == {TABLE: [(A, 10)]}
    below = judged(rules(), versions(A, 30, 20, 10), _20=S)
    assert below.plan.ranges == {TABLE: [VersionRange(A, 10, 21)]}


def test_an_aborted_version_is_deleted_exactly_and_needs_no_sentinel() -> None:
    found = judged(rules(), versions(A, 40, 30, 20), _40=ABORTED, _20=ABORTED)
    assert found.plan.exact == {TABLE: [(A, 40), (A, 20)]}
    assert (found.plan.sentinels, found.counts.aborted) == ({}, 2)


def test_a_marker_of_a_thorough_table_is_removed_at_the_end_of_its_cell_and_not_before() -> None:
    by = rules(THOROUGH)
    first = judged(by, versions(A, 30, 20, deletes=(30,)), at_end=False)
    assert first.plan.markers == {}
    assert first.plan.exact == {TABLE: [(A, 20)]}
    second = judged(by, [*versions(A, 10, SENTINEL_TS), *versions(B, 20)], first.place)
    (marker,) = second.plan.markers[TABLE]
    assert (marker.below, marker.itself) == (VersionRange(A, SENTINEL_TS, 30), VersionRange(A, 30, 31))
    assert second.with_marker == {A: 3}
    assert second.counts.cells == 1


def test_a_marker_at_the_very_end_of_a_page_is_removed_with_the_next() -> None:
    by = rules(THOROUGH)
    first = judged(by, versions(A, 30, deletes=(30,)), at_end=False)
    assert first.plan.markers == {}
    assert [each.entry.start for each in judged(by, [], first.place).plan.markers[TABLE]] == [30]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("strategy", [CONSERVATIVE, THOROUGH])
def test_pages_of_any_size_give_the_same_result(size: int, strategy: SweepStrategy) -> None:
    by = rules(strategy, at(45), at(25))
    found = [*versions(A, 120, 60, 50, 40, 30, 20, 10, SENTINEL_TS, deletes=(60, 20)), *versions(B, 50, 20, 10)]
    assert gone(by, found, size) == gone(by, found, len(found))


def gone(by: TableRules, found: list[StoredVersion], size: int) -> tuple[set[tuple[Cell, int]], int]:
    deleted: set[tuple[Cell, int]] = set()
    place, sentinels = None, 0
    for first in range(0, len(found), size):
        page = found[first : first + size]
        answer = judged(by, page, place, at_end=first + size >= len(found))
        place = answer.place
        sentinels += answer.counts.sentinels
        plan = answer.plan
        ranges = [
            *plan.ranges.get(TABLE, ()),
            *(part for marker in plan.markers.get(TABLE, ()) for part in (marker.below, marker.itself)),
        ]
        deleted |= {
            (each.cell, each.ts) for each in found for r in ranges if r.cell == each.cell and r.first <= each.ts < r.end
        }
        deleted |= set(plan.exact.get(TABLE, ()))
    return deleted, sentinels


def test_an_orphaned_sentinel_is_removed_from_emptied_tables_and_stays_in_other_conservative_ones() -> None:
    alone = versions(A, SENTINEL_TS)
    assert judged(rules(), alone).plan.exact == {}
    assert judged(rules(mark=50), alone).plan.exact == {TABLE: [(A, -1)]}
    assert judged(rules(mark=50), versions(A, 60, SENTINEL_TS)).plan.exact == {}


@pytest.mark.parametrize(
    ("beside", "commits"),
    [((), {}), ((120,), {}), ((40,), {"_40": ABORTED}), ((40,), {"_40": S}), ((90,), {}), ((40,), {})],
    ids=["alone", "above the sweep", "aborted", "commits above the sweep", "too young", "alive"],
)
def test_a_sentinel_is_removed_from_a_thorough_table_whatever_else_its_cell_holds(
    beside: tuple[int, ...], commits: dict[str, Any]
) -> None:
    found = judged(rules(THOROUGH, horizon=80), versions(A, *beside, SENTINEL_TS), **commits)
    assert (A, SENTINEL_TS) in found.plan.exact[TABLE]
    assert [start for _, start in found.plan.exact[TABLE] if commits.get(f"_{start}") != ABORTED] == [SENTINEL_TS]


def test_a_sentinel_is_removed_from_a_thorough_table_though_a_record_holds_what_is_above_it() -> None:
    assert judged(rules(THOROUGH, at(5)), versions(A, 40, SENTINEL_TS)).plan.exact == {TABLE: [(A, SENTINEL_TS)]}


@pytest.mark.parametrize(
    ("strategy", "found", "held"),
    [
        (CONSERVATIVE, versions(A, 40), 0),
        (CONSERVATIVE, versions(A, 40, SENTINEL_TS), 0),
        (CONSERVATIVE, versions(A, 40, 30), 0),
        (CONSERVATIVE, versions(A, 40, 30, 20), 1),
        (CONSERVATIVE, versions(A, 40, deletes=(40,)), 0),
        (THOROUGH, versions(A, 40), 0),
        (THOROUGH, versions(A, 40, 20), 1),
        (THOROUGH, versions(A, 120, 40, deletes=(40,)), 1),
        (THOROUGH, versions(A, 40, 30, deletes=(30,)), 0),
    ],
    ids=[
        "one-version", "one-version-and-a-sentinel", "what-lies-between-goes", "an-older-one-stays-for-the-record",
        "a-delete-marker-that-stays-anyway", "one-version-of-a-thorough-table", "an-older-one-of-a-thorough-table",
        "a-delete-marker-that-would-go", "a-delete-marker-that-goes-with-what-lies-between",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 9])
def test_a_cell_counts_as_held_only_if_versions_would_be_removed_without_the_record(
    strategy: SweepStrategy, found: list[StoredVersion], held: int, size: int
) -> None:
    by, place, counted = rules(strategy, at(25)), None, 0
    for first in range(0, len(found), size):
        answer = judged(by, found[first : first + size], place, at_end=first + size >= len(found))
        place, counted = answer.place, counted + answer.counts.held
    assert counted == held


def test_what_was_truncated_gets_no_sentinel() -> None:
    assert judged(rules(mark=50), versions(A, 30, 20)).plan.sentinels == {}
    assert judged(rules(mark=25), versions(A, 30, 20)).plan.sentinels == {}
    assert judged(rules(mark=25), versions(A, 30, 27, 20)).plan.sentinels == {TABLE: [A]}


@pytest.mark.parametrize("strategy", [SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH])
def test_all_that_started_below_the_mark_is_removed_whatever_protects_it(strategy: SweepStrategy) -> None:
    """An interrupted truncation has left it, or a replica that missed the deletes."""
    plan = judged(rules(strategy, at(25), mark=35), versions(A, 40, 30, 20)).plan
    assert (plan.ranges, plan.sentinels) == ({TABLE: [VersionRange(A, 20, 31)]}, {})
    plan = judged(rules(strategy, at(25), mark=35), versions(A, 30)).plan
    assert plan.exact == {TABLE: [(A, 30)]}


def test_what_is_too_young_for_its_table_does_not_act() -> None:
    assert judged(rules(horizon=31), versions(A, 30, 20, 10)).plan.exact == {TABLE: [(A, 10)]}


def test_a_row_gets_no_more_tombstones_than_it_may_and_the_rest_is_left() -> None:
    by = rules(CONSERVATIVE, cap=1)
    found = judged(by, [*versions(A, 30, 20), *versions(B, 30, 20), *versions(C, 30, 20)])
    assert found.plan.exact == {TABLE: [(A, 20), (C, 20)]}
    assert (found.counts.deleted, found.counts.left, found.counts.sentinels) == (2, 1, 2)
    cut = judged(by, versions(A, 30, 20), at_end=False)
    assert judged(by, versions(B, 30, 20), cut.place).counts.left == 1, "the row continues on the next page"


def test_a_record_that_is_released_when_the_scan_is_resumed_holds_nothing_any_more() -> None:
    """Nothing is deleted across the position: what was read before is left to the next scan."""
    cut = judged(rules(CONSERVATIVE, at(25)), versions(A, 40, 30), at_end=False)
    assert judged(rules(CONSERVATIVE, at(25)), versions(A, 20, 10), cut.place).plan.exact == {TABLE: [(A, 10)]}
    assert judged(rules(), versions(A, 20, 10), cut.place).plan.ranges == {TABLE: [VersionRange(A, 10, 21)]}
