"""Why `ReplicatedStore` brings back one version at a time: no other subset of what a replica holds shows a reader more.

A replica that was unavailable has missed puts as well as deletes, so it may hold any subset of what the others removed.
What it lacks and the others hold is not a separate case: a quorum read reaches a replica that has it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.model import seen_in

timestamps = st.integers(0, 12)
versions = st.dictionaries(timestamps, st.sampled_from([b"", b"1", b"2"]), max_size=4)


@pytest.mark.properties
@given(stored=versions, had=versions, took=st.dictionaries(timestamps, st.integers(-1, 5)), at=st.integers(0, 20))
def test_any_subset_of_versions_on_a_replica_reads_like_one_of_its_versions(
    stored: dict[int, bytes], had: dict[int, bytes], took: dict[int, int], at: int
) -> None:
    """`took` is how long each transaction took to commit; below one, it did not."""
    commits = {start: start + time if time > 0 else -1 for start, time in took.items()}
    gone = {ts: value for ts, value in had.items() if ts not in stored}
    one_at_a_time = {seen_in(stored, at, commits)}
    one_at_a_time |= {seen_in({ts: value} | stored, at, commits) for ts, value in gone.items()}
    assert seen_in(gone | stored, at, commits) in one_at_a_time
