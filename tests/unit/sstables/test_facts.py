"""Facts about the tombstones of a file."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.sstables.tombstones import MOST_WRITE_TIMES, FileFacts, WrittenTombstones, join_write_times
from tests.unit.compaction.file_facts import facts, places


def test_it_is_parsed_from_its_own_json_unchanged() -> None:
    reported = facts("a", written={5: 7, 9: 1}, waiting=3, tombstones_at=[1, 2], partitions_at=[1, 2, 3])
    assert FileFacts.from_json(json.loads(json.dumps(reported.as_json()))) == reported


def test_tombstones_written_before_a_moment_are_those_strictly_before_it() -> None:
    reported = facts("a", written={5: 7, 9: 1})
    assert [reported.written_before(moment) for moment in (5, 6, 9, 10)] == [0, 7, 7, 8]
    assert (reported.tombstones, reported.last_written) == (8, 9)


def test_files_meet_where_one_has_tombstones_and_the_other_a_partition() -> None:
    one = facts("a", written={5: 1}, tombstones_at=[10], partitions_at=[10, 20])
    assert one.shares_partitions_with(facts("b", partitions_at=[10]))
    assert not one.shares_partitions_with(facts("b", partitions_at=[20])), "one has no tombstone there"


@given(st.dictionaries(st.integers(-(2**62), 2**62), st.integers(1, 1_000), max_size=200))
def test_joined_write_times_are_few_none_is_lost_and_none_counts_as_written_earlier(written: dict[int, int]) -> None:
    joined = join_write_times(written)
    assert len(joined) <= MOST_WRITE_TIMES
    assert sum(each.tombstones for each in joined) == sum(written.values())
    for moment in [each.at for each in joined]:
        claimed = sum(each.tombstones for each in joined if each.at <= moment)
        assert claimed <= sum(count for at, count in written.items() if at <= moment)
    if len(written) <= MOST_WRITE_TIMES:
        assert joined == [WrittenTombstones(at, written[at]) for at in sorted(written)]


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=40), st.sets(st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_disjoint_files_have_no_common_token(one: set[int], other: set[int]) -> None:
    meets = places(one, 8).meets(places(other, 3))
    assert meets or not one & other
    if len(one) <= 8 and len(other) <= 3:
        assert meets == bool(one & other)
