"""What is compacted on a node whose files are out of reach."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.compaction import ranges as by_ranges
from sweep_tasks.compaction import rounds
from sweep_tasks.compaction.documents import Measurement, RoundPlan, RoundResult
from sweep_tasks.compaction.node_files import RoundContext
from sweep_tasks.compaction.nodetool import NodeTableState
from sweep_tasks.compaction.planning import CompactionPlan
from sweep_tasks.compaction.ranges import SweptRanges, command_for, described, planned
from sweep_tasks.connections import open_store
from sweep_tasks.model import LEAST_TOKEN, TableRef
from sweep_tasks.sstables.statistics import FileThresholds
from sweep_tasks.store import initialise_store
from sweep_tasks.store.contract import PhysicalTable
from sweep_tasks.tables.deletions import DAY_MS, DeleteKind, DeleteTally, Deletions, Left, TableTally
from tests.unit.compaction.file_facts import STCS
from tests.unit.compaction.scripted_node import BUSY, IDLE, ScriptedNode

LCS = {"class": "org.apache.cassandra.db.compaction.LeveledCompactionStrategy"}
TWCS = {"class": "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy"}
MUCH, TODAY, DAY_S = 10**9, 40, 86_400


def tally(**tokens: int) -> TableTally:
    created = TableTally()
    for token, count in tokens.items():
        created.by_kind[DeleteKind.RANGES].add(int(token.removeprefix("t")) << 40, count)
    return created


def swept(
    name: str = "t", droppable: int = 2_000, waiting: int = 0, compaction: dict[str, str] | None = None
) -> SweptRanges:
    """Two rows apart from each other, with half of it each."""
    old = tally(t5=droppable // 2, t900000=droppable // 2)
    both = tally(t5=droppable // 2, t900000=droppable // 2)
    both.merge(tally(t5=waiting))
    table = PhysicalTable("ks", name, 60, compaction or STCS, TableRef("shop", name))
    ranges = [tuple(each.tombstone_histogram().dense_ranges(1_000)) for each in (both, old)]
    return SweptRanges(table, Left(0, both, old, 7_000_000), *ranges)


def plan(*tables: SweptRanges, budget: int = 1_000, off: bool = False, **state: object) -> CompactionPlan:
    by_name = {each.table.qualified: each for each in tables}
    thresholds = replace(FileThresholds(), eligible_share=Fraction(0)) if off else FileThresholds()
    states = dict.fromkeys(by_name, NodeTableState(size=100, **state))  # type: ignore[arg-type]
    return planned(by_name, states, dict.fromkeys(by_name, thresholds), budget)


def blockers(found: CompactionPlan) -> list[str]:
    return [each.by.blocker.value for each in found.blocked]


def test_one_compaction_serves_all_ranges_of_a_table_and_costs_what_the_table_has_on_the_node() -> None:
    (found,) = plan(swept()).compactions
    assert (found.table, found.bytes, found.tombstones, found.files) == ("ks.t", 100, 2_000, ())
    first, last = swept().token_range
    assert found.candidate == f"{first} … {last}"
    assert first <= 5 << 40 < 900_000 << 40 <= last


def test_tables_with_most_to_drop_are_first_and_those_over_the_budget_wait() -> None:
    found = plan(swept("a"), swept("b", 4_000), swept("c", compaction=LCS), budget=250)
    assert [each.table for each in found.compactions] == ["ks.b", "ks.a"]
    assert blockers(found) == ["budget"], "several files of levels are written twice"


@pytest.mark.parametrize(
    ("table", "blocker"),
    [
        (swept(droppable=0, waiting=2_000), "gc_grace"),
        (swept(compaction=TWCS), "time_windows"),
        (swept(compaction=STCS | {"only_purge_repaired_tombstones": "true"}), "only_purge_repaired"),
        (swept(compaction=STCS | {"enabled": "false"}), "compaction_disabled"),
        (swept(compaction={"class": "org.example.OwnStrategy"}), "strategy"),
    ],
)
def test_a_fruitless_or_harmful_compaction_is_not_started(table: SweptRanges, blocker: str) -> None:
    found = plan(table)
    assert (found.compactions, blockers(found)) == ((), [blocker])


def test_tombstones_within_gc_grace_are_reported_with_the_time_at_which_it_ends() -> None:
    (found,) = plan(swept(droppable=0, waiting=2_000)).blocked
    assert (found.by.until_s, found.waiting) == (7_000, 2_000)
    assert swept(waiting=0).waits_until_s is None


def test_a_table_that_the_server_failed_to_compact_does_not_delay_the_others() -> None:
    tables = {each.table.qualified: each for each in (swept("a"), swept("b"))}
    states, thresholds = dict.fromkeys(tables, NodeTableState(size=100)), dict.fromkeys(tables, FileThresholds())
    found = planned(tables, states, thresholds, 100, declined={"ks.a"})
    assert ([each.table for each in found.compactions], blockers(found)) == (["ks.b"], ["declined"])


def test_a_table_larger_than_the_budget_is_left_alone() -> None:
    assert blockers(plan(swept(), budget=99)) == ["too_large"]


def test_a_table_with_disabled_compaction_is_left_alone() -> None:
    assert blockers(plan(swept(), compacting=False)) == ["compaction_disabled"]
    assert plan(swept(), off=True) == CompactionPlan((), ())


def test_few_tombstones_do_not_justify_a_compaction() -> None:
    assert plan(swept(droppable=100)) == CompactionPlan((), ())


def test_each_range_is_reported_with_its_command_worst_first() -> None:
    worst, other = described(swept(waiting=500))
    assert (worst.tombstones, worst.droppable, other.tombstones) == (1_500, 1_000, 1_000)
    assert worst.command == f"nodetool compact -st {worst.first_token - 1} -et {worst.last_token} ks t"


def test_a_range_at_the_start_of_the_ring_has_nothing_before_it() -> None:
    assert command_for(swept().table, LEAST_TOKEN, 5) == f"nodetool compact -st {LEAST_TOKEN} -et 5 ks t"


class Far:
    """A node that only its nodetool is heard of; sweeps have deleted from its table a while ago, and today."""

    def __init__(self, tmp: Path) -> None:
        self.scripted = ScriptedNode(tmp)
        self.order = self.scripted.order_at(TODAY * DAY_S)
        self.settings = self.scripted.with_settings(store=f"sqlite:///{tmp / 'store.db'}")
        initialise_store(self.settings.store, self.settings)
        for day, count in ((2, 2_000), (TODAY, 30)):
            deleted = DeleteTally()
            deleted.add(TableRef("shop", "orders"), DeleteKind.RANGES, [5] * count)
            with open_store(self.settings.store, self.settings) as store:
                Deletions(store).add(deleted, day * DAY_MS)

    def measured(self) -> Measurement:
        return by_ranges.measure(self.order, self.settings)

    def plan(self, order: RoundContext | None = None, **settings: Any) -> RoundPlan:
        return by_ranges.plan(order or self.order, self.settings.model_copy(update=settings), MUCH)

    def carried_out(self) -> RoundResult:
        return rounds.compact_planned_ranges(self.order, self.settings, MUCH, self.plan())


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path)


class TestANodeOutOfReach:
    def test_is_measured_by_the_deletes_of_sweeps_and_reports_when_all_are_droppable(self, far: Far) -> None:
        found = far.measured()
        assert (found.droppable, found.waiting, found.statistics) == (2_000, 30, None)
        assert found.droppable_from_s == found.tables["ks.t"].droppable_from_s == (TODAY + 1) * DAY_S

    def test_is_compacted_once_without_a_claim_about_dropped_tombstones(self, far: Far) -> None:
        (done,) = far.carried_out().compactions
        assert (done.outcome, done.bytes_read, done.tombstones_expected) == ("unknown", 900, 2_000)
        unknown = ("dropped", "tombstones_before", "tombstones_after", "points_before", "points_after", "bytes_written")
        assert [getattr(done, name) for name in unknown] == [None] * len(unknown)
        assert (far.measured().droppable, far.plan().compactions) == (0, ())

    def test_is_left_alone_where_a_range_never_has_enough_to_be_compacted(self, far: Far) -> None:
        for off in (0, -1):
            found = far.plan(compaction_run_warn=off)
            assert (found.compactions, found.blocked) == ((), ())

    def test_is_not_asked_for_the_same_again_this_week_when_it_failed(self, far: Far) -> None:
        far.scripted.compactions([{"fail": "no room on the disk"}], [])
        done = far.carried_out()
        assert (done.stopped, done.compactions[0].outcome) == ("failed", "failed")
        assert "no room on the disk" in (done.compactions[0].problem or "")
        assert [each.blocker for each in far.plan().blocked] == ["declined"]
        next_week = far.plan(replace(far.order, now_s=far.order.now_s + 7 * DAY_S))
        assert len(next_week.compactions) == 1

    def test_that_is_busy_is_left_alone_and_nothing_is_flushed(self, far: Far) -> None:
        plan = far.plan()
        far.scripted.work(BUSY)
        done = rounds.compact_planned_ranges(far.order, far.settings, MUCH, plan)
        assert (done.stopped, [each.blocker for each in done.blocked]) == ("server_busy", ["server_busy"])
        assert not {"flush", "compact"} & set(far.scripted.asked)

    def test_a_node_that_becomes_busy_is_reported_with_the_command_to_run(self, far: Far) -> None:
        plan = far.plan()
        far.scripted.work(IDLE, BUSY)
        (kept,) = rounds.compact_planned_ranges(far.order, far.settings, MUCH, plan).blocked
        assert (kept.blocker, (kept.command or "").startswith("nodetool compact -st ")) == ("server_busy", True)
