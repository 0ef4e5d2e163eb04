"""Statistics as they are written down, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.compaction.overlaps import Spread
from sweep_tasks.compaction.rules import Block, FileStatistics
from sweep_tasks.compaction.statistics_file import read_statistics
from sweep_tasks.errors import EXIT_BAD_INPUT, BadValue, SweepflowError


def line(**fields: Any) -> str:
    return json.dumps({"file": "a", "blocks": [], **fields})


def test_a_line_has_what_it_says_and_nothing_else() -> None:
    lines = ['{"file":"a","blocks":[[1,2,3],[0,0,0]]}\r\n', "\n", line(file="b", table="ks.t", pending=True)]
    assert list(read_statistics(lines)) == [
        FileStatistics("a", [Block(1, 2, 3), Block(0, 0, 0)]),
        FileStatistics("b", [], table="ks.t", pending=True),
    ]


def test_a_line_may_tell_more_of_the_file() -> None:
    more = line(longest_run=5, tombstones=4, keys=3, first_token=-(2**63), last_token=2**63 - 1)
    assert list(read_statistics([more])) == [
        FileStatistics("a", [], longest_run=5, tombstones=4, spread=Spread(3, -(2**63), 2**63 - 1))
    ]


def test_blocks_without_a_tombstone_may_be_counted_alone() -> None:
    (file,) = read_statistics([line(blocks=[[1, 2, 3]], clean_blocks=19)])
    assert (file.blocks, file.clean_blocks) == ([Block(1, 2, 3)], 19)


def test_numbers_of_any_size_are_taken_as_they_are() -> None:
    (file,) = read_statistics([line(blocks=[[10**40, 10**50, 10**50]])])
    assert file.blocks == [Block(10**40, 10**50, 10**50)]


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        ("nonsense", "bad_json", "line 2: is not JSON: Expecting value at column 1; write one object a line"),
        ("{", "bad_json", "line 2: is not JSON: .* at column 2"),
        ("[]", "bad_json", "line 2: is not a JSON object; write one object a line"),
        ("null", "bad_json", "line 2: is not a JSON object"),
        ("[" * 100_000, "bad_json", "line 2: .*too many digits or brackets"),
        ("9" * 5_000, "bad_json", "line 2: .*too many digits or brackets"),
        ("\ufeff{}", "bad_json", "line 2: is not JSON"),
        ('{"file":"b","file":"c","blocks":[]}', "bad_json", "line 2, 'file': is given twice"),
        (line(pendng=True), "unknown_field", "line 2, 'pendng': is not a field; .*pending"),
        (line(**{"\x1b" * 100: 1}), "unknown_field", r"line 2, '(\\x1b){37}\.\.\.': is not a field"),
        ('{"file":"b"}', "bad_value", "line 2, blocks: is missing"),
        ('{"blocks":[]}', "bad_value", "line 2, file: is missing"),
        (line(file=""), "bad_value", "line 2, file: must be a string"),
        (line(file=7), "bad_value", "line 2, file: must be a string"),
        (line(file="\ud800"), "bad_value", "line 2, file: must be a string of Unicode"),
        (line(table=None), "bad_value", "line 2, table: must be a string"),
        (line(table=""), "bad_value", "line 2, table: must be a string"),
        (line(pending=1), "bad_value", "line 2, pending: must be true or false"),
        (line(pending=None), "bad_value", "line 2, pending: must be true or false"),
        (line(blocks={}), "bad_value", r"line 2, blocks: must be a list of \[tombstones"),
        (line(blocks=[[1, 2, 3], [1, 2]]), "bad_value", r"line 2, blocks\[1\]: must be \[tombstones"),
        (line(blocks=[[1, 2, 3, 4]]), "bad_value", r"line 2, blocks\[0\]: must be"),
        (line(blocks=["123"]), "bad_value", r"line 2, blocks\[0\]: must be"),
        (line(blocks=[[-1, 0, 0]]), "bad_value", r"line 2, blocks\[0\], tombstones: must be a whole number, 0 or more"),
        (line(blocks=[[0, 0, 1.0]]), "bad_value", r"line 2, blocks\[0\], total_bytes: must be a whole number"),
        (line(blocks=[[0, True, 1]]), "bad_value", r"line 2, blocks\[0\], tombstone_bytes: must be a whole number"),
        (line(blocks=[[0, float("nan"), 1]]), "bad_value", r"line 2, blocks\[0\], tombstone_bytes: must be a whole"),
        (line(blocks=[[1, 4, 3]]), "bad_value", r"line 2, blocks\[0\], tombstone_bytes: are more than total_bytes"),
        (line(clean_blocks=-1), "bad_value", "line 2, clean_blocks: must be a whole number, 0 or more"),
        (line(longest_run=-1), "bad_value", "line 2, longest_run: must be a whole number, 0 or more"),
        (line(tombstones="1"), "bad_value", "line 2, tombstones: must be a whole number"),
        (line(keys=1), "bad_value", "line 2, first_token: is missing; keys, first_token, last_token go together"),
        (line(first_token=1, last_token=2), "bad_value", "line 2, keys: is missing"),
        (line(keys=None, first_token=1, last_token=2), "bad_value", "line 2, keys: must be a whole number"),
        (line(keys=1, first_token=3, last_token=2), "bad_value", "line 2, last_token: is less than first_token"),
        (line(keys=1, first_token=3, last_token=2**63), "bad_value", "line 2, last_token: must be a whole number from"),
    ],
)
def test_a_bad_line_is_named_with_the_field_and_the_way_out(bad: str, code: str, message: str) -> None:
    with pytest.raises(SweepflowError, match=message) as caught:
        list(read_statistics([line(file="good"), bad]))
    assert (caught.value.code, caught.value.exit_code) == (code, EXIT_BAD_INPUT)


def test_a_file_is_given_once() -> None:
    with pytest.raises(BadValue, match="line 4, file: is the same as in line 1; give each file once"):
        list(read_statistics([line(), "", line(file="b"), line(table="ks.t")]))


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
def test_whatever_a_line_holds_it_is_read_or_refused(text: str) -> None:
    refused = ""
    try:
        files = list(read_statistics([text]))
    except BadValue as error:
        files, refused = [], str(error)
    assert len(files) <= 1
    assert not refused or refused.startswith("line 1")
