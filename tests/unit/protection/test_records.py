from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.errors import BadValue
from sweep_tasks.model import EVERYTHING, MAX_TS, Span, TableRef
from sweep_tasks.protection.ledger import dump_record, load_record
from sweep_tasks.protection.records import (
    Mode,
    Protection,
    Protections,
    Record,
    State,
    Target,
)
from sweep_tasks.store.schema import SYSTEM_TABLES

AT, AFTER = Mode
PENDING, ACCEPTED = State
TABLE, OTHER = TableRef.parse("app.items"), TableRef.parse("app.other")
B_TO_D = Target(TABLE, Span(b"b", b"d"))


def record(*targets: Target, ts: int = 50, mode: Mode = AT, state: State = ACCEPTED, held: int | None = None) -> Record:
    return Record("a", ts, mode, targets or (Target(TABLE),), state, held)


def held_in(*found: Record, table: TableRef = TABLE, row: bytes = b"r") -> list[Protection]:
    return list(Protections(found).holding_in_order(table, row, 100))


spans = st.builds(Span, st.binary(max_size=5), st.binary(max_size=5))
targets = st.builds(Target, st.sampled_from([TABLE, OTHER]), spans)
records = st.builds(
    Record,
    st.text(min_size=1, max_size=9),
    st.integers(0, 2**63 - 1),
    st.sampled_from(Mode),
    st.lists(targets, min_size=1, max_size=4).map(tuple),
    st.sampled_from(State),
    st.none() | st.integers(0, 2**63 - 1),
    st.sampled_from(["manual", "airflow_run"]),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.integers(0, 2**50),
    st.none() | st.integers(0, 2**50),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)


@given(records)
def test_a_record_is_read_back_as_it_was_written(given: Record) -> None:
    assert load_record(given.id, dump_record(given)) == given


@given(records)
def test_the_same_record_has_the_same_bytes(given: Record) -> None:
    """A compare-and-set compares these bytes."""
    assert dump_record(load_record(given.id, dump_record(given))) == dump_record(given)


@pytest.mark.parametrize(
    ("table", "row", "covered"),
    [
        (TABLE, b"a\xff", False),
        (TABLE, b"b", True),
        (TABLE, b"c\xff", True),
        (TABLE, b"d", False),
        (TABLE, b"y", False),
        (TABLE, b"z", True),
        (TABLE, b"\xff\xff", True),
        (OTHER, b"b", False),
    ],
)
def test_which_rows_are_covered(table: TableRef, row: bytes, covered: bool) -> None:
    assert record(B_TO_D, Target(TABLE, Span(b"z"))).covers(table, row) is covered


@pytest.mark.parametrize(
    ("rows", "covered"),
    [
        (Span(b"b", b"d"), True),
        (Span(b"b\0", b"c"), True),
        (Span(b"a", b"c"), False),
        (Span(b"c", b"e"), False),
        (Span(b"c"), False),
        (EVERYTHING, False),
    ],
)
def test_a_range_is_covered_only_as_a_whole(rows: Span, covered: bool) -> None:
    assert record(B_TO_D).covers_all(TABLE, rows) is covered
    assert record().covers_all(TABLE, rows), "a whole table covers every range of it"
    assert not record(Target(OTHER)).covers_all(TABLE, rows)


class TestReaders:
    def test_at_permits_reads_at_its_timestamp_only(self) -> None:
        assert [record().lets_read(TABLE, EVERYTHING, at) for at in (49, 50, 51)] == [False, True, False]

    def test_after_permits_reads_from_its_timestamp_on(self) -> None:
        found = [record(mode=AFTER).lets_read(TABLE, EVERYTHING, at) for at in (49, 50, 51, 900)]
        assert found == [False, True, True, True]

    def test_a_pending_record_permits_no_read(self) -> None:
        assert not record(state=PENDING).lets_read(TABLE, EVERYTHING, 50)

    def test_the_target_of_an_unfinished_move_permits_no_read(self) -> None:
        moving = record(held=60)
        assert moving.lets_read(TABLE, EVERYTHING, 50)
        assert not moving.lets_read(TABLE, EVERYTHING, 60)

    def test_a_record_permits_no_reads_outside_its_ranges(self) -> None:
        assert record(B_TO_D).lets_read(TABLE, Span(b"b", b"c"), 50)
        assert not record(B_TO_D).lets_read(TABLE, Span(b"a", b"c"), 50)


class TestSweeps:
    def test_pending_and_accepted_hold_alike(self) -> None:
        for state in State:
            assert held_in(record(state=state)) == [Protection(50, AT, "a")]

    def test_a_record_that_moves_holds_both_timestamps(self) -> None:
        assert [protection.ts for protection in held_in(record(held=60))] == [60, 50]

    def test_a_row_is_held_by_those_that_cover_it(self) -> None:
        found = record(B_TO_D), Record("b", 70, AFTER, (Target(TABLE), Target(OTHER)))
        assert held_in(*found, row=b"c") == [Protection(70, AFTER, "b"), Protection(50, AT, "a")]
        assert held_in(*found, row=b"e") == [Protection(70, AFTER, "b")]
        assert held_in(*found, table=TableRef.parse("app.third"), row=b"c") == []
        assert held_in(*found, table=OTHER) == [Protection(70, AFTER, "b")]

    def test_a_pattern_holds_every_table_it_matches_and_none_of_the_system(self) -> None:
        found = record(Target.parse("app.it*"), Target.parse("*.other"))
        tables = (TABLE, OTHER, TableRef.parse("shop.other"), TableRef.parse("app.third"))
        assert [bool(held_in(found, table=table)) for table in tables] == [True, True, True, False]
        everything = record(Target.parse("*.*"))
        assert not any(held_in(everything, table=table) for table in SYSTEM_TABLES)


class TestReleasedEntries:
    def test_an_unchanged_record_releases_nothing(self) -> None:
        assert Protections([record()]).frees_below("a", 50) == 50

    def test_a_removed_record_releases_everything(self) -> None:
        assert Protections([record()]).frees_below("b", 50) == MAX_TS

    def test_a_moved_record_releases_everything_below_its_timestamp(self) -> None:
        moved = Protections([replace(record(ts=80), origin_ts=50)])
        assert [moved.frees_below("a", ts) for ts in (50, 60, 80)] == [80, 80, 80]

    def test_a_moving_record_releases_nothing(self) -> None:
        moving = Protections([replace(record(ts=60, held=80), origin_ts=50)])
        assert [moving.frees_below("a", ts) for ts in (50, 60, 80)] == [60, 60, 60]

    def test_a_record_replaced_under_its_name_releases_everything(self) -> None:
        assert Protections([record(ts=80)]).frees_below("a", 50) == MAX_TS
        assert Protections([record(ts=30)]).frees_below("a", 50) == MAX_TS


class TestTargetsAsText:
    @pytest.mark.parametrize(
        "text", ["app.items", "app.*", "*.*", "a*b.c_*", "app.items[61:7a)", "app.*[:7a)", "app.items[61:)"]
    )
    def test_they_are_read_as_they_are_written(self, text: str) -> None:
        assert str(Target.parse(text)) == text

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "items",
            "app.it/ems",
            "app.*.x",
            "app.items[6:7a)",
            "app.items[7a:61)",
            "app.items[61:7a]",
            "*",
            "a.[61:)",
        ],
    )
    def test_invalid_text_is_refused(self, text: str) -> None:
        with pytest.raises(BadValue):
            Target.parse(text)

    def test_an_open_range_of_rows_is_the_whole_table(self) -> None:
        assert Target.parse("app.items[:)") == Target(TABLE)
