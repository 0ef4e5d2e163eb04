"""What is compacted on a node whose files are out of reach."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sweep_tasks.compaction.by_ranges import Swept, command_for, described, planned
from sweep_tasks.compaction.planning import Plan
from sweep_tasks.compaction.server import TableState
from sweep_tasks.compaction.thresholds import Thresholds
from sweep_tasks.model import LEAST_TOKEN, TableRef
from sweep_tasks.store.cassandra.options import PhysicalTable
from sweep_tasks.sweep.deletions import Left
from sweep_tasks.sweep.tally import Kind, TableTally
from tests.unit.compaction.proving import STCS

LCS = {"class": "org.apache.cassandra.db.compaction.LeveledCompactionStrategy"}
TWCS = {"class": "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy"}


def tally(**tokens: int) -> TableTally:
    made = TableTally()
    for token, count in tokens.items():
        made.by_kind[Kind.RANGES].add(int(token.removeprefix("t")) << 40, count)
    return made


def swept(name: str = "t", droppable: int = 2_000, waiting: int = 0, compaction: dict[str, str] | None = None) -> Swept:
    """Two rows apart from each other, with half of it each."""
    old = tally(t5=droppable // 2, t900000=droppable // 2)
    both = tally(t5=droppable // 2, t900000=droppable // 2)
    both.merge(tally(t5=waiting))
    table = PhysicalTable("ks", name, 60, compaction or STCS, TableRef("shop", name))
    ranges = [tuple(each.tombstone_histogram().dense_ranges(1_000)) for each in (both, old)]
    return Swept(table, Left(0, both, old, 0), *ranges)


def plan(*tables: Swept, budget: int = 1_000, off: bool = False, **state: object) -> Plan:
    by_name = {each.table.qualified: each for each in tables}
    thresholds = replace(Thresholds(), eligible_share=Fraction(0)) if off else Thresholds()
    states = dict.fromkeys(by_name, TableState(size=100, **state))  # type: ignore[arg-type]
    return planned(by_name, states, dict.fromkeys(by_name, thresholds), budget)


def blockers(found: Plan) -> list[str]:
    return [each.by.blocker.value for each in found.stopped]


def test_one_compaction_serves_all_ranges_of_a_table_and_costs_what_the_table_has_on_the_node() -> None:
    (found,) = plan(swept()).compactions
    assert (found.table, found.bytes, found.tombstones, found.files) == ("ks.t", 100, 2_000, ())
    first, last = swept().stretch
    assert found.candidate == f"{first} … {last}"
    assert first <= 5 << 40 < 900_000 << 40 <= last


def test_most_to_drop_goes_first_and_what_does_not_fit_any_more_waits() -> None:
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
def test_what_would_drop_nothing_or_do_harm_is_not_begun(table: Swept, blocker: str) -> None:
    found = plan(table)
    assert (found.compactions, blockers(found)) == ((), [blocker])


def test_a_table_larger_than_the_budget_is_left_alone() -> None:
    assert blockers(plan(swept(), budget=99)) == ["too_large"]


def test_one_that_somebody_has_switched_off_is_left_alone() -> None:
    assert blockers(plan(swept(), compacting=False)) == ["compaction_disabled"]
    assert plan(swept(), off=True) == Plan((), ())


def test_few_tombstones_are_no_reason() -> None:
    assert plan(swept(droppable=100)) == Plan((), ())


def test_each_range_is_told_with_the_command_for_it_the_worst_first() -> None:
    worst, other = described(swept(waiting=500))
    assert (worst["tombstones"], worst["droppable"], other["tombstones"]) == (1_500, 1_000, 1_000)
    assert worst["command"] == f"nodetool compact -st {worst['first_token'] - 1} -et {worst['last_token']} ks t"


def test_a_range_at_the_start_of_the_ring_has_nothing_before_it() -> None:
    assert command_for(swept().table, LEAST_TOKEN, 5) == f"nodetool compact -st {LEAST_TOKEN} -et 5 ks t"
