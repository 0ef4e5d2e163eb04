"""Counting what is in a dump, and what of it may be dropped."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep_tasks.errors import BadValue
from sweep_tasks.sstables.dump import PARTITION, Dumped, Encoding, parsed
from sweep_tasks.sstables.files import Chunks, Identity, SSTable
from sweep_tasks.sstables.measuring import AGES_PER_BLOCK, counted
from sweep_tasks.sstables.statistics import Block
from sweep_tasks.sstables.statistics_file import read_statistics
from sweep_tasks.sstables.tombstones import MeasuredFile, SSTableStatistics, Total
from sweep_tasks.store.cassandra.ring import token_of
from tests.unit.sstables.dumps import (
    Entry,
    bound,
    boundary,
    dead,
    dead_cell,
    expiring,
    live,
    partition,
    reading,
    text,
)

NOW = 10_000
RUNS = {b"long": 40, b"longer": 60, b"short": 16}
ENCODING = Encoding(min_timestamp=10, min_deletion_s=500)
BOUND = ENCODING.marker(bound("start", 700), 20)
SSTABLE = SSTable("ks", "t", Path("/data/ks/t/nb-1-big-Data.db"), "nb", "1")


def measured(chunks: Chunks, *partitions: Entry, now_s: int = NOW) -> MeasuredFile:
    return counted(parsed(reading(text(*partitions))), chunks, ENCODING, "nb", now_s)


def statistics(found: MeasuredFile, gc_grace_s: int = 0, now_s: int = NOW) -> SSTableStatistics:
    return SSTableStatistics(SSTABLE, Identity(str(SSTABLE.data), "1", 77, 5), found, gc_grace_s, now_s)


def blocks(found: MeasuredFile) -> list[Block]:
    return statistics(found).blocks


class TestBlocks:
    def test_a_tombstone_takes_the_bytes_up_to_the_next_entry(self) -> None:
        found = measured(Chunks(100, 250), partition(0, live(20), dead(50, 700), live(62), dead(110, 700)))
        assert blocks(found) == [(1, 12, 100), (1, 90, 100), (0, 50, 50)], "the last reaches into a third block"

    def test_one_at_the_end_of_a_partition_ends_where_the_next_begins(self) -> None:
        found = measured(Chunks(100, 90), partition(0, dead(20, 700)), partition(35, live(60), key=b"z"))
        assert blocks(found) == [(1, 15, 90)]

    def test_one_across_an_edge_counts_where_it_begins_and_its_bytes_where_they_lie(self) -> None:
        found = measured(Chunks(100, 200), partition(0, live(20), dead(95, 700), live(115)))
        assert blocks(found) == [(1, 5, 100), (0, 15, 100)]

    def test_a_row_that_lives_has_tombstones_but_none_of_its_bytes_are_theirs(self) -> None:
        row = dead_cell(20, 700, liveness_info={"tstamp": "10"})
        assert blocks(measured(Chunks(100, 100), partition(0, row))) == [(1, 0, 100)]

    def test_a_deleted_partition_takes_its_head(self) -> None:
        found = measured(Chunks(100, 100), partition(0, live(17), deleted_s=700), partition(60, key=b"z", deleted_s=8))
        assert blocks(found) == [(2, 17 + 40, 100)]

    def test_those_without_a_tombstone_that_may_go_are_only_counted(self) -> None:
        found = measured(Chunks(100, 350), partition(0, live(20), dead(110, 700), live(130), dead(250, 9_999)))
        asked = statistics(found, gc_grace_s=10).for_plan()
        assert (asked.blocks, asked.clean_blocks) == ([(1, 20, 100)], 3)

    def test_of_a_file_larger_than_memory_no_more_is_held_than_where_its_tombstones_are(self) -> None:
        found = measured(Chunks(16_384, 100 * 2**30), partition(0, live(20), dead(40, 700), live(60)))
        tracemalloc.start()
        try:
            line = statistics(found).json_line()
            (read,) = read_statistics([line])
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (len(read.blocks), read.clean_blocks) == (1, 6_553_599)
        assert (most < 1_000_000, len(line) < 10_000) == (True, True)


class TestDeletedRanges:
    def test_their_bounds_have_no_position_and_lie_behind_the_row_before_them(self) -> None:
        rest = 60
        position = 20 + rest + 2 * BOUND
        entries = (live(20), bound("start", 700), bound("end", 700), live(position))
        found = measured(Chunks(20 + rest, 400), partition(0, *entries))
        assert found.piles.keys() == {1}, "the row has what is left of the distance to the next"
        assert blocks(found) == [(2, 2 * BOUND, 80)]

    def test_a_dead_row_before_them_has_its_own_bytes(self) -> None:
        found = measured(
            Chunks(1_000, 1_000), partition(0, dead(20, 600), bound("start", 700), bound("end", 700), live(90))
        )
        assert blocks(found) == [(3, 70, 1_000)]

    def test_at_the_end_and_alone_in_a_partition(self) -> None:
        ranges = (bound("start", 700), boundary(700, 700), bound("end", 700))
        found = measured(Chunks(1_000, 1_000), partition(0, *ranges), partition(500, live(520), *ranges, key=b"z"))
        assert found.bounds == 6
        assert statistics(found).droppable.tombstones == 6

    def test_more_than_are_kept_at_a_time_lie_one_behind_the_other(self) -> None:
        """As a sweep leaves them: many thousand, and not a row in between."""
        many = 5_000
        head = 2 + 3 + 12
        entries = [bound("start" if number % 2 == 0 else "end", 700) for number in range(many)]
        first = ENCODING.marker(entries[0], head)
        length = head + first + (many - 1) * BOUND + 1
        found = measured(Chunks(1_000, length), partition(0, *entries))
        each = blocks(found)
        assert sum(block[0] for block in each) == many
        assert sum(block[1] for block in each) == many * BOUND + first - BOUND
        assert all(block[1] == 1_000 for block in each[1:-1])


class TestDroppableTombstones:
    FOUND = measured(Chunks(100, 200), partition(0, dead(20, 700), dead(30, 800), live(40), dead(110, 900)))

    @pytest.mark.parametrize(
        ("gc_grace", "droppable", "waiting"),
        [
            (NOW - 700, Total(0, 0), Total(3, 110)),
            (NOW - 701, Total(1, 10), Total(2, 100)),
            (NOW - 901, Total(3, 110), Total(0, 0)),
        ],
    )
    def test_depends_on_the_moment_and_gc_grace_alone(self, gc_grace: int, droppable: Total, waiting: Total) -> None:
        asked = statistics(self.FOUND, gc_grace)
        assert (asked.droppable, asked.waiting) == (droppable, waiting)
        assert Total(*map(sum, zip(*((each[0], each[1]) for each in asked.blocks), strict=True))) == droppable

    def test_all_of_it_may_be_a_second_after_gc_grace_of_the_last(self) -> None:
        moment = statistics(self.FOUND, gc_grace_s=50).all_droppable_from_s
        assert moment == 951
        assert statistics(self.FOUND, 50, now_s=moment).waiting.tombstones == 0
        assert statistics(self.FOUND, 50, now_s=moment - 1).waiting.tombstones == 1

    def test_nothing_is_reported_for_a_file_without_tombstones(self) -> None:
        found = measured(Chunks(100, 200), partition(0, live(20)))
        assert statistics(found).all_droppable_from_s is None
        assert (found.first_deleted_s, found.last_deleted_s) == (None, None)

    def test_of_many_ages_in_a_block_none_counts_as_droppable_before_its_time(self) -> None:
        ages = [600 + 7 * number + number % 3 for number in range(100)]
        found = measured(Chunks(5_000, 5_000), partition(0, *(dead(20 + 10 * n, age) for n, age in enumerate(ages))))
        assert len(found.piles[0]) == AGES_PER_BLOCK
        assert (found.first_deleted_s, found.last_deleted_s) == (ages[0], ages[-1])
        for gc_grace in range(NOW - 1_400, NOW - 590, 10):
            at_most = sum(age + gc_grace < NOW for age in ages)
            asked = statistics(found, gc_grace)
            assert asked.droppable.tombstones <= at_most
            assert asked.droppable.tombstones + asked.waiting.tombstones == len(ages)
        assert statistics(found, NOW - ages[-1] - 1).droppable.tombstones == len(ages)


class TestRuns:
    @pytest.mark.parametrize(
        ("entries", "longest"),
        [
            ([], 0),
            ([live(20)], 0),
            ([dead(20, 7), dead(30, 7), live(40), dead(50, 7)], 2),
            ([live(20), dead(30, 7), bound("start", 7), bound("end", 7), dead_cell(80, 7)], 4),
            ([dead(20, 7), dead_cell(30, 7, liveness_info={"tstamp": "1"}), dead(40, 7)], 1),
            ([expiring(20, NOW, 5), expiring(30, NOW + 1, 5), expiring(40, NOW, 5), expiring(50, NOW, 5)], 2),
        ],
    )
    def test_a_run_continues_until_a_live_row(self, entries: list[Entry], longest: int) -> None:
        assert measured(Chunks(100, 100), partition(0, *entries)).longest_run == longest

    def test_a_run_ends_with_its_partition(self) -> None:
        found = measured(
            Chunks(100, 100),
            partition(0, dead(20, 7), dead(25, 7)),
            partition(30, dead(50, 7), dead(55, 7), dead(60, 7), key=b"z"),
        )
        assert found.longest_run == 3

    def test_of_each_partition_the_longest_run_is_kept_with_the_moment_of_its_youngest_tombstone(self) -> None:
        rows = {key: [dead(20 + place, 100 + place) for place in range(number)] for key, number in RUNS.items()}
        found = measured(
            Chunks(10_000, 10_000),
            *(partition(0, *rows[key], live(900), dead(950, 7), key=key) for key in sorted(RUNS, key=token_of)),
        )
        kept = {run.token: (run.longest, run.last_deleted_s) for run in found.runs}
        assert kept == {token_of(b"long"): (40, 139), token_of(b"longer"): (60, 159)}, "the short one is of no account"
        (longer, long) = statistics(found, gc_grace_s=NOW - 150).summary().runs
        assert longer.longest == 60
        assert 10 <= longer.held < 30, "no more of it than what waits for gc_grace in the file, about ten"
        assert (long.longest, long.held) == (40, 0), "gc_grace has passed for the last of them"


def test_values_that_expire_later_are_counted_again_after_expiry() -> None:
    found = measured(Chunks(100, 100), partition(0, expiring(20, NOW - 5, 60), expiring(40, NOW + 5, 60)))
    assert [found.holds_at(moment) for moment in (NOW - 6, NOW - 5, NOW + 4, NOW + 5)] == [False, True, True, False]
    assert measured(Chunks(100, 100), partition(0, dead(20, 700))).holds_at(0)


def test_keys_and_tokens_are_of_everything_in_the_file() -> None:
    found = measured(
        Chunks(100, 100),
        partition(0, live(20), dead(30, 7), bound("start", 7), bound("end", 7), key=b"first"),
        partition(50, key=b"middle", deleted_s=7),
        partition(80, live(90), key=b"last"),
    )
    assert (found.partitions, found.rows, found.bounds, found.deleted_partitions) == (3, 3, 2, 1)
    assert (found.first_token, found.last_token) == (token_of(b"first"), token_of(b"last"))
    assert statistics(found).keys == 6


def test_the_line_for_the_plan_is_what_the_plan_reads() -> None:
    low, high = sorted((b"a", b"b"), key=token_of)
    found = measured(Chunks(100, 150), partition(0, dead(20, 700), key=low), partition(70, live(90), key=high))
    asked = statistics(found)
    line = asked.json_line()
    assert list(read_statistics([line])) == [asked.for_plan()]
    line_without_proof = json.loads(line)
    proof = line_without_proof.pop("proof")
    assert (proof["droppable"], proof["waiting"], proof["run_token"]) == ([[100, 1]], 0, token_of(low))
    assert line_without_proof == {
        "file": str(SSTABLE.data),
        "table": "ks.t",
        "blocks": [[1, 50, 100]],
        "clean_blocks": 1,
        "longest_run": 1,
        "tombstones": 1,
        "keys": 2,
        "first_token": token_of(low),
        "last_token": token_of(high),
    }
    assert asked.blocks[0] == Block(1, 50, 100)


def test_a_table_whose_key_is_no_blob_is_refused() -> None:
    text_key = partition(0, live(20))
    text_key["partition"]["key"] = ["version"]
    with pytest.raises(BadValue) as refused:
        measured(Chunks(100, 100), text_key)
    assert refused.value.field == "table"


def test_a_partition_larger_than_memory_is_counted_within_bounds() -> None:
    each, apart = 5_000, 400

    def wide() -> Iterator[Dumped]:
        yield PARTITION, partition(0)["partition"]
        for number in range(each):
            yield "row", dead(20 + number * apart, 600 + number)
            yield "range_tombstone_bound", bound("start", 600 + number)
            yield "range_tombstone_bound", bound("end", 600 + number)

    chunks = Chunks(65_536, 20 + each * apart)
    tracemalloc.start()
    try:
        found = counted(wide(), chunks, ENCODING, "nb", NOW)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.rows + found.bounds == 3 * each
    assert statistics(found, gc_grace_s=10**9).waiting.tombstones == 3 * each
    assert most < 500_000, "some ages for each block, however many entries it has"
