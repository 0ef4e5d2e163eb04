"""Entries that a later one of the same cell makes redundant are left out; the rules then decide as with all of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.protection.records import Protections, Record
from sweep_tasks.queue.encoding import read_write, write_bytes
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.sweep.rules import Entry, TableView, may_divide, plan
from sweep_tasks.sweep.summary import written
from sweep_tasks.sweep.superseded import without_superseded
from sweep_tasks.transactions.outcomes import ABORTED
from tests.unit.sweep.judged import TABLES, records, views

PLACE = Cell(b"row of the queue", b"column")


def raw(start: int, table_id: int, row: bytes, column: bytes, delete: bool = False) -> RawEntry:
    return RawEntry(start, PLACE, write_bytes(table_id, Cell(row, column), delete))


starts = st.integers(1, 20)
names = st.sampled_from([b"", b"a", b"b", b"a" * 130])
entries = st.lists(
    st.builds(raw, starts, st.sampled_from(sorted(TABLES)), names, st.sampled_from([b"c", b"d"]), st.booleans()),
    max_size=40,
    unique_by=lambda each: (each.start, each.value[:-1]),
)
commits = st.one_of(st.just(ABORTED), st.integers(1, 40))


@given(
    entries, st.lists(commits, min_size=21, max_size=21), st.tuples(views, views, views), records,
    st.sampled_from(QUEUES),
)  # fmt: skip
def test_the_rules_decide_the_same_with_and_without_them(
    found: list[RawEntry],
    gaps: list[int],
    of_tables: tuple[TableView, ...],
    held: list[Record],
    strategy: SweepStrategy,
) -> None:
    in_order = sorted(found, key=lambda each: each.start or 0)
    outcomes = {start: gap if gap == ABORTED else start + gap for start, gap in enumerate(gaps)}
    tables = dict(zip(TABLES.values(), of_tables, strict=True))
    protections = Protections(held)
    aborted = {start for start, outcome in outcomes.items() if outcome == ABORTED}

    def divided(each: RawEntry) -> bool:
        entry = entry_of(each, outcomes)
        return may_divide(entry.table, entry.cell.row, max(outcomes.values()), tables[entry.table], protections)

    acting = without_superseded(in_order, aborted, divided)

    def planned(chosen: list[RawEntry]) -> Any:
        decoded = [entry_of(each, outcomes) for each in chosen]
        made = asdict(plan(decoded, strategy, tables, protections, 0))
        found_by_table = {name: of_table for name, of_table in made.items() if name != "parked"}
        return {
            "parked": sorted(made["parked"]),
            "written": written(decoded),
            **{name: {table: sorted(each) for table, each in of.items()} for name, of in found_by_table.items()},
        }

    assert planned(acting) == planned(in_order)


def entry_of(each: RawEntry, outcomes: dict[int, int]) -> Entry:
    write = read_write(each.value)
    assert isinstance(write.table, int)
    assert each.start is not None
    return Entry(TABLES[write.table], write.table, write.cell, each.start, outcomes[each.start], write.delete)


class TestWithoutRules:
    def test_the_last_entry_of_a_cell_stays(self) -> None:
        writes = [raw(start, 1, b"a", b"c", delete=start == 3) for start in (1, 2, 3)]
        other = raw(2, 1, b"a", b"d")
        assert without_superseded([*writes[:2], other, writes[2]], ()) == [writes[2], other]

    def test_the_same_cell_of_another_table_stays(self) -> None:
        both = [raw(1, 1, b"a", b"c"), raw(2, 2, b"a", b"c")]
        assert without_superseded(both, ()) == both

    def test_an_entry_that_was_aborted_stays_and_replaces_none(self) -> None:
        writes = [raw(start, 1, b"a", b"c") for start in (1, 2, 3)]
        assert without_superseded(writes, {2}) == [writes[1], writes[2]]
        assert without_superseded(writes, {3}) == [writes[2], writes[1]]

    def test_what_can_not_be_read_stays_and_replaces_none(self) -> None:
        good, later = raw(1, 1, b"a", b"c"), raw(4, 1, b"a", b"c")
        bad = RawEntry(2, PLACE, good.value[:-1] + b"\x02")
        empty, lost = RawEntry(3, PLACE, b""), RawEntry(None, PLACE, good.value)
        assert without_superseded([lost, good, bad, empty], ()) == [lost, bad, empty, good]
        assert without_superseded([lost, good, bad, empty, later], ()) == [lost, bad, empty, later]

    def test_a_cell_that_is_divided_keeps_all_its_entries(self) -> None:
        asked: list[RawEntry] = []

        def is_divided(each: RawEntry) -> bool:
            asked.append(each)
            return each.value == first[0].value

        first, second = ([raw(start, 1, row, b"c") for start in (1, 2)] for row in (b"a", b"b"))
        only = raw(3, 1, b"only", b"c")
        found = without_superseded([first[0], second[0], first[1], second[1], only], (), is_divided)
        assert found == [*first, second[1], only]
        assert asked == [first[1], second[1], only]

    def test_what_is_judged_alone_stays_once_if_its_cell_is_divided(self) -> None:
        writes = [raw(start, 1, b"a", b"c") for start in (1, 2, 3)]
        bad = RawEntry(4, PLACE, writes[0].value[:-1] + b"\x02")
        assert without_superseded([*writes, bad], {2}, lambda _: True) == [writes[1], bad, writes[0], writes[2]]
