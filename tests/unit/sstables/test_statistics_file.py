"""Statistics as they are written down, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.errors import EXIT_BAD_INPUT
from sweep_tasks.sstables.statistics import Block, FileStatistics, Spread
from sweep_tasks.sstables.statistics_file import BadLine, NotJson, RepeatedFile, UnknownLineField, read_statistics


def line(**fields: Any) -> str:
    return json.dumps({"file": "a", "blocks": [], **fields})


def test_a_line_has_its_fields_and_nothing_else() -> None:
    lines = ['{"file":"a","blocks":[[1,2,3],[0,0,0]]}\r\n', "\n", line(file="b", table="ks.t", pending=True)]
    assert list(read_statistics(lines)) == [
        FileStatistics("a", [Block(1, 2, 3), Block(0, 0, 0)]),
        FileStatistics("b", [], table="ks.t", pending=True),
    ]


def test_a_line_may_contain_more_statistics_of_the_file() -> None:
    more = line(longest_run=5, tombstones=4, keys=3, first_token=-(2**63), last_token=2**63 - 1)
    assert list(read_statistics([more])) == [
        FileStatistics("a", [], longest_run=5, tombstones=4, spread=Spread(3, -(2**63), 2**63 - 1))
    ]


def test_blocks_without_a_tombstone_may_be_counted_alone() -> None:
    (file,) = read_statistics([line(blocks=[[1, 2, 3]], clean_blocks=19)])
    assert (file.blocks, file.clean_blocks) == ([Block(1, 2, 3)], 19)


def test_numbers_of_any_size_are_accepted() -> None:
    (file,) = read_statistics([line(blocks=[[10**40, 10**50, 10**50]])])
    assert file.blocks == [Block(10**40, 10**50, 10**50)]


@pytest.mark.parametrize(
    ("bad", "code", "field", "reason"),
    [
        ("nonsense", "bad_json", "line", "not_json"),
        ("{", "bad_json", "line", "not_json"),
        ("[]", "bad_json", "line", "not_an_object"),
        ("null", "bad_json", "line", "not_an_object"),
        ("[" * 100_000, "bad_json", "line", "too_complex"),
        ("9" * 5_000, "bad_json", "line", "too_complex"),
        ("\ufeff{}", "bad_json", "line", "not_json"),
        ('{"file":"b","file":"c","blocks":[]}', "bad_json", "file", "duplicate"),
        (line(pendng=True), "unknown_field", "pendng", None),
        (line(**{"": 1}), "unknown_field", "", None),
        ('{"file":"b"}', "bad_value", "blocks", "missing"),
        ('{"blocks":[]}', "bad_value", "file", "missing"),
        (line(file=""), "bad_value", "file", "not_text"),
        (line(file=7), "bad_value", "file", "not_text"),
        (line(file="\ud800"), "bad_value", "file", "not_text"),
        (line(table=None), "bad_value", "table", "not_text"),
        (line(table=""), "bad_value", "table", "not_text"),
        (line(pending=1), "bad_value", "pending", None),
        (line(pending=None), "bad_value", "pending", None),
        (line(blocks={}), "bad_value", "blocks", "not_a_list"),
        (line(blocks=[[1, 2, 3], [1, 2]]), "bad_value", "blocks[1]", None),
        (line(blocks=[[1, 2, 3, 4]]), "bad_value", "blocks[0]", None),
        (line(blocks=["123"]), "bad_value", "blocks[0]", None),
        (line(blocks=[[-1, 0, 0]]), "bad_value", "blocks[0], tombstones", "not_a_count"),
        (line(blocks=[[0, 0, 1.0]]), "bad_value", "blocks[0], total_bytes", "not_a_count"),
        (line(blocks=[[0, True, 1]]), "bad_value", "blocks[0], tombstone_bytes", "not_a_count"),
        (line(blocks=[[0, float("nan"), 1]]), "bad_value", "blocks[0], tombstone_bytes", "not_a_count"),
        (line(blocks=[[1, 4, 3]]), "bad_value", "blocks[0], tombstone_bytes", "out_of_range"),
        (line(clean_blocks=-1), "bad_value", "clean_blocks", "not_a_count"),
        (line(longest_run=-1), "bad_value", "longest_run", "not_a_count"),
        (line(tombstones="1"), "bad_value", "tombstones", "not_a_count"),
        (line(keys=1), "bad_value", "first_token", "missing"),
        (line(first_token=1, last_token=2), "bad_value", "keys", "missing"),
        (line(keys=None, first_token=1, last_token=2), "bad_value", "keys", "not_a_count"),
        (line(keys=1, first_token=3, last_token=2), "bad_value", "last_token", "before_first"),
        (line(keys=1, first_token=3, last_token=2**63), "bad_value", "last_token", "out_of_range"),
    ],
)
def test_a_bad_line_is_named_with_the_field_and_what_is_wrong_with_it(
    bad: str, code: str, field: str, reason: str | None
) -> None:
    with pytest.raises(BadLine) as refused:
        list(read_statistics([line(file="good"), bad]))
    error = refused.value
    assert (error.code, error.exit_code) == (code, EXIT_BAD_INPUT)
    assert (error.line, error.field, error.reason) == (2, field, reason)


@pytest.mark.parametrize(("bad", "column"), [("nonsense", 1), ("{", 2)])
def test_invalid_json_is_reported_with_its_column(bad: str, column: int) -> None:
    with pytest.raises(NotJson) as refused:
        list(read_statistics([bad]))
    assert refused.value.column == column


def test_an_unknown_field_is_reported_with_the_known_ones() -> None:
    with pytest.raises(UnknownLineField) as refused:
        list(read_statistics([line(pendng=True)]))
    assert "pending" in refused.value.known
    assert all(name in str(refused.value) for name in ("pendng", *refused.value.known))


def test_a_name_that_is_not_fit_for_a_terminal_is_shown_so_that_it_is() -> None:
    with pytest.raises(UnknownLineField) as refused:
        list(read_statistics([line(**{"\x1b" * 100: 1})]))
    assert refused.value.field == "\x1b" * 37 + "..."
    assert "\x1b" not in str(refused.value)
    assert ascii(refused.value.field) in str(refused.value)


def test_a_duplicate_file_is_refused() -> None:
    with pytest.raises(RepeatedFile) as refused:
        list(read_statistics([line(), "", line(file="b"), line(table="ks.t")]))
    assert (refused.value.line, refused.value.field, refused.value.earlier) == (4, "file", 1)


def test_lines_are_read_one_at_a_time() -> None:
    taken: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(3):
            taken.append(number)
            yield line(file=str(number))

    files = read_statistics(lines())
    assert next(files).file == "0"
    assert taken == [0]


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists).map(
    lambda value: json.dumps({"file": "a", "blocks": value})
))  # fmt: skip
def test_any_line_is_read_or_refused(text: str) -> None:
    refused_in = 1
    try:
        files = list(read_statistics([text]))
    except BadLine as error:
        files, refused_in = [], error.line
    assert len(files) <= 1
    assert refused_in == 1
