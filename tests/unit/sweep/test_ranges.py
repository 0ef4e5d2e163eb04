"""What was deleted where on the ring, stored compactly and by many tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.errors import BadValue
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN
from sweep_tasks.tables.deletions import DeletedRange, TokenHistogram

PART = 2**48
"""One of the 65 536 parts of the ring that are used by default."""

tokens = st.integers(LEAST_TOKEN, GREATEST_TOKEN) | st.integers(-20, 20)
deletes = st.lists(st.tuples(tokens, st.integers(0, 9)), max_size=40)
sizes = st.integers(1, 12)


def histogram(deleted: list[tuple[int, int]], most: int = 4_096) -> TokenHistogram:
    counted = TokenHistogram(most)
    for token, count in deleted:
        counted.add(token, count)
    return counted


def merged(*parts: TokenHistogram) -> dict[str, Any]:
    whole = TokenHistogram.of(parts[0].document())
    for part in parts[1:]:
        whole.merge(part)
    return whole.document()


def test_dense_neighbours_are_one_range_and_the_others_are_left_out() -> None:
    counted = histogram([(0, 600), (1, 400), (PART, 1_000), (2 * PART, 999), (-1, 5), (GREATEST_TOKEN, 2_000)])
    assert counted.dense_ranges(1_000) == [
        DeletedRange(0, 2 * PART - 1, 2_000),
        DeletedRange(GREATEST_TOKEN - PART + 1, GREATEST_TOKEN, 2_000),
    ]
    assert counted.dense_ranges(1_000, bits=64) == [
        DeletedRange(PART, PART, 1_000),
        DeletedRange(GREATEST_TOKEN, GREATEST_TOKEN, 2_000),
    ]


@pytest.mark.parametrize("off", [0, -1])
def test_nothing_is_dense_where_that_is_switched_off(off: int) -> None:
    assert histogram([(0, 10**9)]).dense_ranges(off) == []


def test_both_ends_of_the_ring_have_their_place() -> None:
    counted = histogram([(LEAST_TOKEN, 1), (GREATEST_TOKEN, 2)], most=1)
    assert counted.deleted_between(LEAST_TOKEN, LEAST_TOKEN) == 3, "one range for the whole ring can't distinguish them"
    assert counted.dense_ranges(1) == [DeletedRange(LEAST_TOKEN, GREATEST_TOKEN, 3)]


@pytest.mark.parametrize("token", [LEAST_TOKEN - 1, GREATEST_TOKEN + 1])
def test_a_token_off_the_ring_is_refused(token: int) -> None:
    with pytest.raises(BadValue) as refused:
        TokenHistogram().add(token)
    assert refused.value.field == "token"


def test_a_negative_count_and_no_space_at_all_are_refused() -> None:
    with pytest.raises(BadValue) as negative:
        TokenHistogram().add(0, -1)
    assert negative.value.field == "count"
    with pytest.raises(BadValue) as none:
        TokenHistogram(0)
    assert none.value.field == "most_ranges"


@given(deletes, sizes)
def test_it_never_holds_more_ranges_than_it_may_and_loses_nothing(deleted: list[tuple[int, int]], most: int) -> None:
    counted = histogram(deleted, most)
    assert len(counted.document()["deleted"]) <= most
    assert counted.deleted == sum(count for _, count in deleted)
    assert sum(each.deleted for each in counted.dense_ranges(1)) == counted.deleted


@given(deletes, sizes, st.randoms(use_true_random=False))
def test_the_order_of_deletes_makes_no_difference(deleted: list[tuple[int, int]], most: int, random: Any) -> None:
    shuffled = random.sample(deleted, len(deleted))
    assert histogram(shuffled, most).document() == histogram(deleted, most).document()


@given(deletes, deletes, deletes, sizes)
def test_merged_is_what_one_task_would_have_counted(
    a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]], most: int
) -> None:
    one, two, three = (histogram(part, most) for part in (a, b, c))
    whole = histogram(a + b + c, most).document()
    assert merged(one, two, three) == merged(three, one, two) == whole
    assert merged(one, TokenHistogram.of(merged(two, three))) == whole


@given(deletes, sizes, sizes)
def test_the_smaller_size_holds_when_two_are_merged(deleted: list[tuple[int, int]], most: int, other: int) -> None:
    whole = histogram(deleted + deleted, min(most, other)).document()
    assert merged(histogram(deleted, most), histogram(deleted, other)) == whole


@given(deletes, sizes, tokens, tokens)
def test_between_two_tokens_it_never_counts_too_little(
    deleted: list[tuple[int, int]], most: int, one: int, other: int
) -> None:
    first, last = sorted((one, other))
    there = sum(count for token, count in deleted if first <= token <= last)
    assert histogram(deleted, most).deleted_between(first, last) >= there
    assert histogram(deleted).deleted_between(first, last) == there, "exact while every token has a range"


@given(deletes, sizes)
def test_it_is_serialised_unchanged(deleted: list[tuple[int, int]], most: int) -> None:
    document = histogram(deleted, most).document()
    again = TokenHistogram.of(json.loads(json.dumps(document)))
    again.add(0, 0)
    assert again.document() == document


def test_merging_leaves_the_other_as_it_was() -> None:
    one, two = histogram([(0, 1)]), histogram([(0, 2), (9, 1)])
    one.merge(two)
    one.add(9, 5)
    assert (one.deleted, two.deleted) == (9, 3)


@given(st.lists(tokens, max_size=40), sizes)
def test_many_at_once_are_the_same_as_one_by_one(given_tokens: list[int], most: int) -> None:
    at_once = TokenHistogram(most)
    at_once.add_all(given_tokens)
    assert at_once.document() == histogram([(token, 1) for token in given_tokens], most).document()


@pytest.mark.parametrize("token", [LEAST_TOKEN - 1, GREATEST_TOKEN + 1])
def test_of_many_none_may_lie_beyond_the_ring(token: int) -> None:
    counted = TokenHistogram()
    with pytest.raises(BadValue) as refused:
        counted.add_all([0, token])
    assert refused.value.field == "tokens"
    assert counted.deleted == 0


@given(deletes, sizes, tokens, tokens)
def test_of_what_is_compacted_nothing_beyond_it_counts(
    deleted: list[tuple[int, int]], most: int, one: int, other: int
) -> None:
    first, last = sorted((one, other))
    inside = sum(count for token, count in deleted if first <= token <= last)
    assert histogram(deleted, most).within(first, last).deleted <= inside
    assert histogram(deleted).within(first, last).deleted == inside, "exact while every token has a range"
    whole = histogram(deleted, most)
    assert whole.within(LEAST_TOKEN, GREATEST_TOKEN).document() == whole.document()


@given(deletes, deletes, sizes, sizes)
def test_merged_ranges_can_be_removed_at_any_resolution(
    one: list[tuple[int, int]], other: list[tuple[int, int]], fine: int, coarse: int
) -> None:
    part, whole = histogram(one, fine), histogram([*one, *other], coarse)
    assert whole.less(part).deleted == sum(count for _, count in other)
    assert part.less(whole).deleted == 0
