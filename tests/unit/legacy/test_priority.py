"""Which table is scanned next: tables of cases, no store."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.legacy.priority import Candidate, FinishedScan, Policy, ScanCause, reason, scheduled_scans
from sweep_tasks.model import ScanDue, ScanReason, SweepStrategy, TableRef
from sweep_tasks.protection.records import Target
from sweep_tasks.tables.activity import WriteCounts

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
POLICY = Policy(pause_ms=7 * DAY_MS)


class Known(NamedTuple):
    """The facts about a table in one round."""

    was_scanned: bool
    writes: int
    due: int | None
    running: bool
    rests: bool

    def candidate(self, name: str, last_scheduled_ms: int, now_ms: int) -> Candidate:
        last = FinishedScan(100, now_ms - (1 if self.rests else 8) * DAY_MS, 1_000, 500) if self.was_scanned else None
        return table(
            name, last, writes=self.writes, due=self.due, running=self.running, last_scheduled_ms=last_scheduled_ms
        )


known = st.builds(
    Known,
    st.booleans(),
    st.sampled_from([0, 5, 10**9]),
    st.sampled_from([None, 500]),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
)


def scanned(days_ago: int, *, found: float = 0.5, sweep_ts: int = 100) -> FinishedScan:
    return FinishedScan(sweep_ts, NOW_MS - days_ago * DAY_MS, 1_000, int(1_000 * found))


def table(
    name: str,
    last: FinishedScan | None = None,
    *,
    writes: int = 0,
    deletes: int = 0,
    strategy: SweepStrategy = CONSERVATIVE,
    due: int | None = None,
    sweep_ts: int = 1_000,
    last_scheduled_ms: int | None = None,
    running: bool = False,
    cancelled: bool = False,
    lacks: bool | None = None,
    stale: int = 0,
) -> Candidate:
    """What is due can't be done while it is not reachable, unless stated otherwise."""
    each_scan = last_scheduled_ms if last_scheduled_ms is not None else last.ended_ms if last else 0
    scan = ScanDue(ScanReason.UNQUEUED, due) if due is not None else None
    too_early = due is not None and sweep_ts < due if lacks is None else lacks
    written = WriteCounts(writes, deletes)
    return Candidate(
        TableRef("app", name), strategy, last, each_scan, written, scan, sweep_ts, running, cancelled, too_early, stale
    )


def order(*tables: Candidate, policy: Policy = POLICY) -> list[str]:
    return [each_scan.table.name for each_scan in scheduled_scans(tables, policy, 3_600, NOW_MS)]


class TestOrder:
    def test_tables_that_were_never_scanned_are_first(self) -> None:
        assert order(table("busy", scanned(30), writes=10**9), table("new")) == ["new", "busy"]

    def test_tables_with_a_due_scan_of_a_strategy_change_are_second(self) -> None:
        changed = table("changed", scanned(1, sweep_ts=100), due=500)
        assert order(table("busy", scanned(30), writes=10**9), changed) == ["changed", "busy"]

    def test_tables_are_ordered_by_writes_weighed_by_the_last_scan(self) -> None:
        much_of_little = table("clean", scanned(30, found=0.01), writes=10_000)
        little_of_much = table("dirty", scanned(30, found=0.9), writes=1_000)
        assert order(much_of_little, little_of_much) == ["dirty", "clean"]

    def test_a_delete_of_a_thorough_table_leaves_a_marker_whatever_the_last_scan_found(self) -> None:
        clean = scanned(30, found=0)
        assert order(
            table("conservative", clean, deletes=100), table("thorough", clean, deletes=100, strategy=THOROUGH)
        ) == ["thorough", "conservative"]

    def test_very_many_writes_are_worth_a_scan_even_where_the_last_one_found_nothing(self) -> None:
        assert order(table("quiet", scanned(90)), table("busy", scanned(30, found=0), writes=10**6)) == [
            "busy",
            "quiet",
        ]

    def test_tables_are_ordered_by_time_last(self) -> None:
        assert order(table("young", scanned(10)), table("old", scanned(90))) == ["old", "young"]

    def test_a_requested_scan_is_first(self) -> None:
        policy = POLICY._replace(first=[Target.parse("app.wanted*")])
        assert order(table("new"), table("wanted_too", scanned(30)), policy=policy) == ["wanted_too", "new"]


class TestFairness:
    def test_an_hour_is_divided_among_the_scheduled_tables(self) -> None:
        found = scheduled_scans([table(str(n)) for n in range(3)], POLICY, 3_600, NOW_MS)
        assert [each_scan.seconds for each_scan in found] == [1_200, 1_200, 1_200]

    def test_no_more_tables_than_the_policy_says_share_an_hour(self) -> None:
        found = scheduled_scans([table(str(n)) for n in range(20)], POLICY._replace(tables_per_slot=4), 3_600, NOW_MS)
        assert [(len(found), each_scan.seconds) for each_scan in found[:1]] == [(4, 900)]

    def test_a_table_that_never_finishes_alternates_with_the_others(self) -> None:
        last_scheduled = dict.fromkeys("abcde", 0)
        had: list[list[str]] = []
        for hour in range(12):
            tables = [
                table(name, last_scheduled_ms=at, writes=10**6 if name == "a" else 0)
                for name, at in last_scheduled.items()
            ]
            had.append(order(*tables, policy=POLICY._replace(tables_per_slot=2)))
            last_scheduled |= dict.fromkeys(had[-1], hour + 1)
        for three_hours in zip(had, had[1:], had[2:], strict=False):
            assert set().union(*three_hours) == set("abcde"), "two scans an hour, so every table within three hours"

    def test_the_last_of_several_slots_is_for_the_table_that_waits_longest(self) -> None:
        new = [table(f"new_{n}", last_scheduled_ms=NOW_MS - n) for n in range(6)]
        assert order(*new, table("busy", scanned(30), writes=5), policy=POLICY._replace(tables_per_slot=3)) == [
            "new_5", "new_4", "busy"
        ]  # fmt: skip
        assert order(*new, policy=POLICY._replace(tables_per_slot=3)) == ["new_5", "new_4", "new_3"]

    def test_a_single_slot_is_for_the_best_candidate_until_a_table_has_waited_for_too_long(self) -> None:
        alone = POLICY._replace(tables_per_slot=1, patience_ms=40 * DAY_MS)
        new = table("new", last_scheduled_ms=NOW_MS)
        assert order(new, table("busy", scanned(39)), policy=alone) == ["new"]
        assert order(new, table("busy", scanned(40)), policy=alone) == ["busy"]

    @given(
        usual=st.lists(known, min_size=6, max_size=6),
        unusual=st.lists(st.dictionaries(st.integers(0, 5), known, max_size=2), min_size=20, max_size=40),
        scheduled_each=st.integers(1, 4),
    )
    def test_under_any_history_each_table_is_scheduled_within_as_many_rounds_as_there_are_tables(
        self, usual: list[Known], unusual: list[dict[int, Known]], scheduled_each: int
    ) -> None:
        """Rounds in which it could be scanned; with one slot in each, those after it has waited too long."""
        hour_ms, patience = 3_600_000, 5
        policy = POLICY._replace(tables_per_slot=scheduled_each, patience_ms=patience * hour_ms)
        last_scheduled = {f"t{number}": 0 for number in range(6)}
        waited = dict.fromkeys(last_scheduled, 0)
        for number, others in enumerate(unusual, 1):
            history = [others.get(each, usual[each]) for each in range(6)]
            now_ms = NOW_MS + number * hour_ms
            tables = [
                each.candidate(name, last_scheduled[name], now_ms)
                for name, each in zip(last_scheduled, history, strict=True)
            ]
            had = {each_scan.table.name for each_scan in scheduled_scans(tables, policy, 3_600, now_ms)}
            for each in tables:
                name = each.table.name
                waited[name] += reason(each, policy, now_ms) is not None
                if name in had:
                    last_scheduled[name], waited[name] = now_ms, 0
            assert max(waited.values()) < len(tables) + (patience if scheduled_each == 1 else 0)

    def test_without_candidates_nothing_is_scheduled(self) -> None:
        assert scheduled_scans([], POLICY, 3_600, NOW_MS) == []


class TestCandidates:
    @pytest.mark.parametrize(
        ("waits", "why"),
        [
            (table("t", running=True), None),
            (table("t", strategy=NOTHING), None),
            (table("t", scanned(1), writes=10**9), None),
            (table("t", scanned(8)), ScanCause.WRITTEN),
            (table("t", scanned(1, sweep_ts=100), due=500, sweep_ts=400), None),
            (table("t", scanned(1, sweep_ts=100), due=500, sweep_ts=500), ScanCause.STRATEGY_CHANGED),
            (table("t", scanned(1, sweep_ts=600), due=500, sweep_ts=700), None),
            (table("t", due=500, sweep_ts=400), ScanCause.NEVER_SCANNED),
            (table("t", scanned(1, sweep_ts=100), due=500, lacks=True), None),
            (
                table("t", scanned(1, sweep_ts=600)._replace(lacked=True), due=500, sweep_ts=700),
                ScanCause.STRATEGY_CHANGED,
            ),
            (table("t", cancelled=True), None),
            (table("t", sweep_ts=0), None),
            (table("t", scanned(30), sweep_ts=0), None),
            (table("t", scanned(1, sweep_ts=15), sweep_ts=700, stale=500), ScanCause.WRITTEN),
            (table("t", scanned(1, sweep_ts=15), sweep_ts=15, stale=500), None),
            (table("t", scanned(1, sweep_ts=600), sweep_ts=700, stale=500), None),
        ],
        ids=[
            "a-worker-is-scanning-it", "swept-by-nothing", "scanned-not-long-ago", "scanned-long-ago",
            "what-is-due-cant-be-reached-yet", "what-is-due-can-be-reached",
            "the-last-scan-went-far-enough-and-something-was-held-back", "never-scanned-whatever-is-due",
            "what-is-due-waits-for-the-queue", "the-last-scan-went-far-enough-before-the-queue-did",
            "an-operator-cancelled-it", "nothing-is-old-enough-yet", "nothing-is-old-enough-any-more",
            "scanned-not-long-ago-and-far-short-of-what-may-be-swept", "as-high-as-an-open-transaction-allows",
            "scanned-not-long-ago-and-far-enough",
        ],
    )  # fmt: skip
    def test_whether_and_why_a_table_waits(self, waits: Candidate, why: ScanCause | None) -> None:
        assert reason(waits, POLICY, NOW_MS) is why

    def test_an_excluded_table_is_never_chosen(self) -> None:
        policy = POLICY._replace(never=[Target.parse("app.*")], first=[Target.parse("app.t")])
        assert reason(table("t"), policy, NOW_MS) is None

    def test_a_requested_scan_has_a_minimum_interval_too(self) -> None:
        policy = POLICY._replace(first=[Target.parse("app.t")])
        assert reason(table("t", scanned(1)), policy, NOW_MS) is None
