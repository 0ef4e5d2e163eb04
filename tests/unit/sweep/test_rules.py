"""The rules for an entry: tables of cases, no store."""

from __future__ import annotations

import random

import pytest

from sweep_tasks.model import Cell, Span, SweepStrategy, TableRef, VersionRange
from sweep_tasks.protection.records import Mode, Protection, Protections, Record, State, Target
from sweep_tasks.queue.parking import Hold, HoldReason
from sweep_tasks.sweep.rules import (
    Entry,
    Marker,
    Plan,
    Removal,
    TableView,
    after_check,
    parked,
    plan,
    removable,
)
from sweep_tasks.transactions.outcomes import ABORTED

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
AT, AFTER = Mode
TABLE, OTHER = TableRef.parse("app.items"), TableRef.parse("app.other")
CELL, SECOND = Cell(b"row", b"col"), Cell(b"row", b"second")
GRACE_UNTIL = 5_000


def entry(start: int, commit: int | None = None, *, cell: Cell = CELL, delete: bool = False) -> Entry:
    return Entry(TABLE, 1, cell, start, start + 1 if commit is None else commit, delete)


def protections(*held: tuple[int, Mode], rows: Span | None = None, table: TableRef = TABLE) -> Protections:
    target = Target(table, rows) if rows else Target(table)
    return Protections([Record(f"p{ts}", ts, mode, (target,), State.ACCEPTED) for ts, mode in held])


def planned(
    *entries: Entry,
    strategy: SweepStrategy = CONSERVATIVE,
    view: TableView | None = None,
    protected: Protections | None = None,
) -> Plan:
    views = {TABLE: view or TableView(strategy)}
    return plan(entries, strategy, views, protected or Protections.none(), GRACE_UNTIL)


def ranges(of: Plan) -> list[tuple[int, int]]:
    return [(first, end) for _, first, end in of.ranges.get(TABLE, [])]


def held(of: Plan) -> list[tuple[int, str]]:
    return [(each.start, each.hold.record) for each in of.parked]


class TestUnprotected:
    def test_conservative_puts_a_sentinel_and_deletes_what_is_older(self) -> None:
        decided = planned(entry(20))
        assert decided.sentinels == {TABLE: [CELL]}
        assert ranges(decided) == [(0, 20)]
        assert decided.parked == []

    def test_a_delete_on_a_conservative_table_stays(self) -> None:
        assert ranges(planned(entry(20, delete=True))) == [(0, 20)]

    def test_thorough_deletes_what_is_older_and_the_sentinel_too(self) -> None:
        decided = planned(entry(20), strategy=THOROUGH)
        assert ranges(decided) == [(-1, 20)]
        assert (decided.sentinels, decided.markers) == ({}, {})

    def test_a_thorough_delete_is_removed_separately_after_everything_below_it(self) -> None:
        marker = entry(20, delete=True)
        decided = planned(marker, strategy=THOROUGH)
        assert decided.markers == {TABLE: [Marker(marker, VersionRange(CELL, -1, 20))]}
        assert decided.markers[TABLE][0].itself == VersionRange(CELL, 20, 21)
        assert (decided.sentinels, decided.ranges, decided.parked) == ({}, {}, [])

    def test_of_a_cell_only_the_greatest_start_acts(self) -> None:
        entries = [entry(20, delete=True), entry(30, delete=True), entry(10), entry(15, cell=SECOND)]
        decided = planned(*entries, strategy=THOROUGH)
        assert decided.markers == {TABLE: [Marker(entries[1], VersionRange(CELL, -1, 30))]}
        assert decided.ranges == {TABLE: [VersionRange(SECOND, -1, 15)]}

    def test_a_later_start_acts_even_if_it_committed_earlier(self) -> None:
        assert ranges(planned(entry(10, 40), entry(20, 25))) == [(0, 20)]

    def test_the_order_of_entries_does_not_matter(self) -> None:
        entries = [entry(start, cell=cell) for start in range(10, 60, 5) for cell in (CELL, SECOND)]
        held_at = protections((22, AT), (41, AT))
        expected = planned(*entries, protected=held_at)
        random.Random(1).shuffle(entries)
        shuffled = planned(*entries, protected=held_at)
        assert sorted(shuffled.ranges[TABLE]) == sorted(expected.ranges[TABLE])
        assert sorted(shuffled.parked) == sorted(expected.parked)

    def test_without_entries_there_is_no_plan(self) -> None:
        assert planned() == Plan()


class TestAborted:
    @pytest.mark.parametrize("strategy", [CONSERVATIVE, THOROUGH])
    def test_exactly_its_version_is_deleted_and_the_entry_waits_for_a_slow_writer(
        self, strategy: SweepStrategy
    ) -> None:
        decided = planned(entry(20, ABORTED, delete=True), strategy=strategy)
        assert decided.exact == {TABLE: [(CELL, 20)]}
        assert (decided.ranges, decided.sentinels, decided.to_check) == ({}, {}, {})
        assert decided.parked == [parked(entry(20, ABORTED, delete=True), Hold(HoldReason.GRACE, until_ms=GRACE_UNTIL))]

    def test_it_hides_nothing(self) -> None:
        decided = planned(entry(10), entry(20, ABORTED))
        assert ranges(decided) == [(0, 10)]

    def test_no_protection_or_retention_keeps_it(self) -> None:
        decided = planned(
            entry(20, ABORTED), view=TableView(CONSERVATIVE, horizon=5), protected=protections((1, AFTER), (2, AT))
        )
        assert decided.exact == {TABLE: [(CELL, 20)]}
        assert [each.hold.why for each in decided.parked] == [HoldReason.GRACE]


class TestProtectedAt:
    def test_what_was_visible_stays_and_what_came_between_is_removed(self) -> None:
        decided = planned(entry(70, 72), protected=protections((50, AT)))
        assert ranges(decided) == [(50, 70)]
        assert decided.sentinels == {}, "the older version is still there to be read"
        assert decided.parked == [parked(entry(70, 72), Hold(HoldReason.PROTECTED, record="p50", record_ts=50))]

    def test_a_delete_over_a_protected_version_stays(self) -> None:
        decided = planned(entry(70, 72, delete=True), strategy=THOROUGH, protected=protections((50, AT)))
        assert ranges(decided) == [(50, 70)]
        assert decided.markers == {}
        assert held(decided) == [(70, "p50")]

    @pytest.mark.parametrize(("start", "commit"), [(40, 60), (50, 60), (49, 50)])
    def test_an_entry_that_is_open_at_the_protection_deletes_nothing(self, start: int, commit: int) -> None:
        decided = planned(entry(start, commit), protected=protections((50, AT)))
        assert decided.ranges == {}
        assert held(decided) == [(start, "p50")]

    def test_a_protection_above_the_commit_does_not_hold_it(self) -> None:
        decided = planned(entry(40, 49), protected=protections((50, AT)))
        assert ranges(decided) == [(0, 40)]
        assert decided.parked == []

    def test_at_its_commit_timestamp_a_write_is_not_visible_yet(self) -> None:
        assert held(planned(entry(40, 50), protected=protections((50, AT)))) == [(40, "p50")]
        assert held(planned(entry(40, 49), protected=protections((50, AT)))) == []

    def test_of_several_the_greatest_below_the_commit_counts(self) -> None:
        decided = planned(entry(70, 72), protected=protections((10, AT), (50, AT), (60, AT), (90, AT)))
        assert ranges(decided) == [(60, 70)]
        assert held(decided) == [(70, "p60")]

    def test_between_two_protections_only_the_greatest_start_acts(self) -> None:
        entries = [entry(start) for start in (10, 20, 55, 65, 75, 85)]
        decided = planned(*entries, protected=protections((30, AT), (70, AT)))
        assert sorted(ranges(decided)) == [(0, 20), (30, 65), (70, 85)]
        assert sorted(held(decided)) == [(65, "p30"), (85, "p70")]

    def test_the_example_of_the_rfc(self) -> None:
        """put foo at 1, delete at 2, protected at 3, put bar at 4, put baz at 5: foo and bar are removed, the rest
        stays."""
        history = [
            Entry(TABLE, 1, CELL, start * 10, start * 10 + 1, delete)
            for start, delete in ((1, False), (2, True), (4, False), (5, False))
        ]
        decided = planned(*history, protected=protections((30, AT)))
        gone = {
            version for version in (10, 20, 40, 50) for first, end in ranges(decided) if first <= version < end
        }  # fmt: skip
        assert gone == {10, 40}
        assert held(decided) == [(50, "p30")]

    def test_without_exactness_only_what_is_older_is_removed(self) -> None:
        history = [entry(start) for start in (10, 20, 40, 50)]
        decided = planned(*history, protected=protections((30, AFTER)))
        assert ranges(decided) == [(0, 20)]

    def test_rows_outside_the_range_are_not_held(self) -> None:
        inside = protections((50, AT), rows=Span(b"row", b"rox"))
        outside = protections((50, AT), rows=Span(b"s", b""))
        assert held(planned(entry(70), protected=inside)) == [(70, "p50")]
        assert held(planned(entry(70), protected=outside)) == []

    def test_other_tables_are_not_held(self) -> None:
        assert held(planned(entry(70), protected=protections((50, AT), table=OTHER))) == []


class TestProtectedAfter:
    def test_nothing_is_removed_and_the_entry_waits(self) -> None:
        decided = planned(entry(70, 72), protected=protections((50, AFTER)))
        assert (decided.ranges, decided.sentinels) == ({}, {})
        assert held(decided) == [(70, "p50")]

    def test_what_committed_before_it_acts_as_ever(self) -> None:
        assert ranges(planned(entry(40, 49), protected=protections((50, AFTER)))) == [(0, 40)]

    def test_at_and_after_together_keep_what_after_keeps(self) -> None:
        decided = planned(entry(70, 72), protected=protections((50, AFTER), (60, AT)))
        assert decided.ranges == {}
        assert held(decided) == [(70, "p50")]


@pytest.mark.parametrize(
    ("given", "commit", "expected"),
    [
        ([], 100, None),
        ([(50, AT)], 49, None),
        ([(50, AT)], 50, (50, AT)),
        ([(50, AT), (60, AT)], 100, (60, AT)),
        ([(50, AT), (60, AT)], 59, (50, AT)),
        ([(50, AFTER), (60, AT)], 100, (50, AFTER)),
        ([(60, AFTER), (50, AT)], 55, (50, AT)),
        ([(50, AFTER), (60, AFTER)], 100, (60, AFTER)),
        ([(50, AT), (50, AFTER)], 100, (50, AFTER)),
    ],
)
def test_which_protection_holds_an_entry(
    given: list[tuple[int, Mode]], commit: int, expected: tuple[int, Mode] | None
) -> None:
    found = protections(*given).holding(TABLE, CELL.row, commit)
    assert (found and (found.ts, found.mode)) == expected


@pytest.mark.parametrize(
    ("delete", "held_by", "strategy", "expected"),
    [
        (False, None, CONSERVATIVE, (0, 70)),
        (True, None, CONSERVATIVE, (0, 70)),
        (False, None, THOROUGH, (-1, 70)),
        (True, None, THOROUGH, (-1, 71)),
        (False, (50, AT), CONSERVATIVE, (50, 70)),
        (True, (50, AT), THOROUGH, (50, 70)),
        (False, (69, AT), THOROUGH, (69, 70)),
        (False, (70, AT), CONSERVATIVE, None),
        (False, (71, AT), CONSERVATIVE, None),
        (True, (71, AT), THOROUGH, None),
        (False, (50, AFTER), CONSERVATIVE, None),
        (True, (50, AFTER), THOROUGH, None),
    ],
)
def test_which_versions_may_go(
    delete: bool, held_by: tuple[int, Mode] | None, strategy: SweepStrategy, expected: tuple[int, int] | None
) -> None:
    protection = Protection(*held_by, "r") if held_by else None
    found = removable(entry(70, 72, delete=delete), protection, strategy)
    assert found == (VersionRange(CELL, *expected) if expected else None)


class TestRetention:
    def test_what_is_too_young_for_its_table_waits(self) -> None:
        decided = planned(entry(20, 25), view=TableView(CONSERVATIVE, horizon=25))
        assert decided.ranges == {}
        assert decided.parked == [parked(entry(20, 25), Hold(HoldReason.RETENTION, table_id=1))]

    def test_what_is_old_enough_acts(self) -> None:
        decided = planned(entry(20, 24), view=TableView(CONSERVATIVE, horizon=25))
        assert ranges(decided) == [(0, 20)]
        assert decided.parked == []

    def test_every_young_entry_waits_by_itself(self) -> None:
        """The greatest start may be old enough last: the others must act before it."""
        decided = planned(entry(10), entry(20), entry(30), view=TableView(CONSERVATIVE, horizon=15))
        assert ranges(decided) == [(0, 10)]
        assert [each.start for each in decided.parked] == [20, 30]

    def test_retention_is_applied_before_protection(self) -> None:
        decided = planned(
            entry(20, 25), view=TableView(CONSERVATIVE, horizon=22), protected=protections((15, AT))
        )  # fmt: skip
        assert [each.hold.why for each in decided.parked] == [HoldReason.RETENTION]


class TestTablesThatAreNotSwept:
    def test_a_table_set_to_nothing_is_left_alone(self) -> None:
        assert planned(entry(20), entry(30, ABORTED), view=TableView(NOTHING)) == Plan()

    def test_a_dropped_table_is_left_alone(self) -> None:
        assert plan([entry(20)], CONSERVATIVE, {}, Protections.none(), GRACE_UNTIL) == Plan()


class TestCheckingFirst:
    def test_where_a_table_requests_it_ranges_are_checked_before(self) -> None:
        decided = planned(entry(20), view=TableView(CONSERVATIVE, check_first=True))
        assert (decided.ranges, decided.sentinels) == ({}, {})
        assert decided.to_check == {TABLE: [Removal(VersionRange(CELL, 0, 20), True, False)]}

    def test_a_thorough_check_puts_no_sentinel(self) -> None:
        decided = planned(entry(20, delete=True), strategy=THOROUGH, view=TableView(THOROUGH, check_first=True))
        marker = Marker(entry(20, delete=True), VersionRange(CELL, -1, 20))
        assert decided.to_check == {TABLE: [Removal(VersionRange(CELL, -1, 21), False, False, marker)]}
        assert decided.markers == {}, "it is removed only if something is there"

    def test_a_thorough_delete_older_than_a_truncation_is_checked_as_well(self) -> None:
        decided = planned(entry(20, delete=True), strategy=THOROUGH, view=TableView(THOROUGH, mark=21))
        assert decided.to_check == {TABLE: [Removal(VersionRange(CELL, 0, 21), False, True)]}

    @pytest.mark.parametrize("strategy", [CONSERVATIVE, THOROUGH])
    def test_neither_a_protection_nor_a_retention_keeps_what_started_below_the_mark(
        self, strategy: SweepStrategy
    ) -> None:
        view = TableView(strategy, mark=21, horizon=5)
        decided = planned(entry(20, 22), strategy=strategy, view=view, protected=protections((15, Mode.AT)))
        assert (decided.to_check, decided.parked) == ({TABLE: [Removal(VersionRange(CELL, 0, 21), False, True)]}, [])

    @pytest.mark.parametrize(("mark", "checked"), [(20, False), (21, True)])
    def test_an_entry_older_than_a_truncation_is_checked_and_puts_no_sentinel(self, mark: int, checked: bool) -> None:
        decided = planned(entry(20), view=TableView(CONSERVATIVE, mark=mark))
        assert decided.to_check == ({TABLE: [Removal(VersionRange(CELL, 0, mark), False, True)]} if checked else {})
        assert bool(decided.sentinels) is not checked

    @pytest.mark.parametrize(
        ("first", "sentinel", "truncated", "versions", "expected_ranges", "expected_sentinel"),
        [
            # what the table requests
            (0, True, False, [], [], False),
            (0, True, False, [20], [], False),
            (0, True, False, [20, -1], [], False),
            (0, True, False, [30, 20], [], False),
            (0, True, False, [20, 10], [(0, 20)], True),
            (0, True, False, [20, 0], [(0, 20)], True),
            (-1, False, False, [20, -1], [(-1, 20)], False),
            (-1, False, False, [20], [], False),
            # what a truncation requires
            (0, False, True, [], [], False),
            (0, False, True, [-1], [(-1, 0)], False),
            (0, False, True, [10, -1], [(0, 20), (-1, 0)], False),
            (0, False, True, [10], [(0, 20)], False),
            (0, False, True, [20, -1], [], False),
            (0, False, True, [20, 10, -1], [(0, 20)], False),
            (-1, False, True, [-1], [(-1, 20)], False),
        ],
    )
    def test_what_is_removed_of_what_is_stored(
        self,
        first: int,
        sentinel: bool,
        truncated: bool,
        versions: list[int],
        expected_ranges: list[tuple[int, int]],
        expected_sentinel: bool,
    ) -> None:
        look = Removal(VersionRange(CELL, first, 20), sentinel, truncated)
        found, puts_sentinel = after_check(look, versions)
        assert [(each.first, each.end) for each in found] == expected_ranges
        assert puts_sentinel is expected_sentinel
