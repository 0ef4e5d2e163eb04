"""Keys in the same place as a file's tombstones."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN
from sweep_tasks.sstables.statistics import Spread, keys_in_reach, overlap

spreads = st.tuples(st.integers(0, 9), st.integers(-9, 9), st.integers(-9, 9)).map(
    lambda drawn: Spread(drawn[0], min(drawn[1:]), max(drawn[1:]))
)


def test_files_that_share_an_end_overlap_and_those_side_by_side_do_not() -> None:
    files = [Spread(1, 0, 10), Spread(20, 10, 20), Spread(300, 21, 30), Spread(4_000, LEAST_TOKEN, GREATEST_TOKEN)]
    assert keys_in_reach(files) == [4_021, 4_021, 4_300, 4_321]


@given(st.lists(spreads, max_size=20))
def test_the_lookups_find_what_comparing_with_every_file_would(files: list[Spread]) -> None:
    assert keys_in_reach(files) == [
        sum(
            other.keys
            for other in files
            if other.first_token <= file.last_token and file.first_token <= other.last_token
        )
        for file in files
    ]


@pytest.mark.parametrize(
    ("tombstones", "keys", "share"),
    [(0, 0, 0), (5, 0, 0), (0, 5, 0), (1, 4, Fraction(1, 4)), (4, 4, 1), (10**400, 4, 1)],
)
def test_never_more_than_all_of_the_keys_are_dead(tombstones: int, keys: int, share: Fraction) -> None:
    assert overlap(tombstones, keys) == share
