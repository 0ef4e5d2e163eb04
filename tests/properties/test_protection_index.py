"""The index of protections against its definition, which visits every record for every entry."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.model import Span, TableRef
from sweep_tasks.protection.index import RangeIndex
from sweep_tasks.protection.records import Mode, Protection, Protections, Record, Target
from tests.properties.searching import Patch
from tests.support.protections import covering, holding

pytestmark = pytest.mark.properties

TABLES = [TableRef.parse(name) for name in ("app.items", "app.other", "shop.items")] + [TableRef("sweep", "items")]
NAMES = [*TABLES, TableRef("app", "*"), TableRef("*", "items"), TableRef("*", "*")]
KEYS = [b"", b"a", b"a\0", b"b", b"ba", b"c", b"\xff"]
MOST_TS = 12

keys = st.sampled_from(KEYS)
spans = st.builds(Span, keys, keys)
timestamps = st.integers(0, MOST_TS)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Whole tables, patterns, ranges with open ends, empty ranges, equal timestamps, and records that are moving."""
    targets = st.lists(st.builds(Target, st.sampled_from(NAMES), spans), min_size=1, max_size=3).map(tuple)
    kinds = st.tuples(timestamps, st.sampled_from(Mode), targets, st.none() | timestamps)
    found = draw(st.lists(kinds, max_size=8))
    return [
        Record(f"r{number}", ts, mode, targets, held_ts=None if moves is None else max(ts, moves))
        for number, (ts, mode, targets, moves) in enumerate(found)
    ]


def compare(records: list[Record]) -> None:
    index = Protections(records)
    for table in TABLES:
        for row in KEYS:
            covers = covering(records, table, row)
            for commit in range(-1, MOST_TS + 2):
                assert index.holding(table, row, commit) == holding(covers, commit)
                in_order, left = list(index.holding_in_order(table, row, commit)), list(covers)
                while applies := holding(left, commit):
                    assert in_order[:1] == [applies]
                    in_order.pop(0)
                    left.remove(applies)
                assert not in_order


@given(record_lists())
def test_an_entry_is_held_by_the_protection_of_the_definition(records: list[Record]) -> None:
    compare(records)


@given(record_lists(), spans)
def test_the_records_of_a_range_are_those_that_cover_some_of_its_rows(records: list[Record], rows: Span) -> None:
    index = Protections(records)
    for table in TABLES:
        expected = [
            record
            for record in records
            if any(
                target.covers(table) and target.rows.overlaps(rows) and not (target.rows.is_empty or rows.is_empty)
                for target in record.targets
            )
        ]
        assert index.intersecting(table, rows) == expected


def test_as_many_overlapping_ranges_as_are_allowed_take_little_memory() -> None:
    numbered = [
        (Span(b"%04d" % number, b"%04d" % (number + 4096)), Protection(number, Mode.AT, f"r{number}"))
        for number in range(4096)
    ]
    index = RangeIndex(numbered)
    assert len(pickle.dumps((index._covering, index._started))) < 16 * 1024 * 1024
    assert index.greatest(b"4095", 10_000) == numbered[-1][1]
    assert index.greatest(b"4096", 2_000) == numbered[2_000][1]
    assert index.greatest(b"8000", 3_000) is None


# --- and it can fail --------------------------------------------------------------------------------------------------


def notices() -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        test_an_entry_is_held_by_the_protection_of_the_definition()


def test_it_notices_a_commit_below_the_timestamp(monkeypatch: Patch) -> None:
    greatest = RangeIndex.greatest
    monkeypatch.setattr(RangeIndex, "greatest", lambda self, row, ts: greatest(self, row, ts - 1))
    notices()


def test_it_notices_that_modes_are_confused(monkeypatch: Patch) -> None:
    index = Protections._index

    def swapped(self: Protections, table: TableRef) -> object:
        found = index(self, table)
        self._indexes[table] = found._replace(at=found.after, after=found.at)
        return self._indexes[table]

    monkeypatch.setattr(Protections, "_index", swapped)
    notices()


def test_it_notices_that_patterns_are_forgotten(monkeypatch: Patch) -> None:
    index = Protections._index

    def without_patterns(self: Protections, table: TableRef) -> object:
        self._by_pattern.clear()
        return index(self, table)

    monkeypatch.setattr(Protections, "_index", without_patterns)
    notices()
