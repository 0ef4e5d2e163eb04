"""What a sweep deletes is counted by table and range, kept by days, and subtracted after a node was compacted."""

from __future__ import annotations

from random import Random

import pytest

from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN, Cell, TableRef
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.store.schema import DELETIONS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.tables.deletions import DAY_MS, MOST_DAYS, DeleteKind, DeleteTally, Deletions, Left
from tests.support.clock import ManualClock
from tests.unit.sweep.ring_store import RingStore, ring_store
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, A, B, C, World, sweep

GRACE_S = 10 * 86_400
LATER_MS = 1_000 * DAY_MS


@pytest.fixture
def ringed(clock: ManualClock) -> RingStore:
    return ring_store(clock)


def tally(table: TableRef = TABLE, kind: DeleteKind = DeleteKind.RANGES, *tokens: int) -> DeleteTally:
    created = DeleteTally()
    created.add(table, kind, list(tokens) or [0])
    return created


def numbers(left: Left | None) -> dict[str, int]:
    assert left
    return {kind.value: left.tally.by_kind[kind].deleted for kind in DeleteKind}


class TestWhatASweepCounts:
    def test_ranges_single_versions_and_sentinels_are_counted_at_the_tokens_of_their_rows(
        self, ringed: RingStore, clock: ManualClock
    ) -> None:
        world = World(ringed, clock)
        for start in (10, 20, 30):
            world.write(start, start + 1, [A, B])
        world.write(40, -1, [C])
        summary = world.sweep(100)
        left = Deletions(ringed).left(TABLE, GRACE_S, clock.now_ms())
        assert numbers(left) == {"ranges": 2, "versions": 1, "sentinels": 2}
        assert left
        for cell, kind in ((A, DeleteKind.RANGES), (B, DeleteKind.SENTINELS), (C, DeleteKind.VERSIONS)):
            assert left.tally.by_kind[kind].deleted_between(token_of(cell.row), token_of(cell.row)) == 1
        assert summary.tombstones == {str(TABLE): 3}

    def test_a_delete_marker_takes_two_range_tombstones(self, ringed: RingStore, clock: ManualClock) -> None:
        world = World(ringed, clock)
        for start, delete in ((10, False), (20, True)):
            world.write(start, start + 1, [A], table=THOROUGH_TABLE, delete=delete)
        assert world.sweep(100, THOROUGH).tombstones == {str(THOROUGH_TABLE): 2}

    def test_aborted_writes_that_are_deleted_again_are_counted(self, ringed: RingStore, clock: ManualClock) -> None:
        world = World(ringed, clock)
        world.write(10, -1, [A])
        world.sweep(1_000, grace_s=0)
        assert world.sweep(60_000).tombstones[str(TABLE)] > 0

    def test_shards_of_one_day_add_up(self, ringed: RingStore, clock: ManualClock) -> None:
        world = World(ringed, clock)
        Progress(ringed).raise_shards(2)
        cells = [Cell(b"row-%d" % number, b"c") for number in range(40)]
        for start in (10, 20):
            world.write(start, start + 1, cells)
        for shard in (0, 1):
            ShardSweep(ringed, CONSERVATIVE, shard, Horizon(100, clock.now_ms()), clock).run()
        assert numbers(Deletions(ringed).left(TABLE, GRACE_S, clock.now_ms()))["ranges"] == 40

    def test_a_dry_run_counts_nothing(self, ringed: RingStore, clock: ManualClock) -> None:
        world = World(ringed, clock)
        for start in (10, 20):
            world.write(start, start + 1)
        assert world.sweep(100, dry_run=True).tombstones == {}
        assert ringed.scan_registers(DELETIONS).items == []

    def test_a_store_without_a_ring_has_nothing_to_count(self, world: World, store: Store) -> None:
        for start in (10, 20):
            world.write(start, start + 1)
        assert world.sweep(100).tombstones == {}
        assert store.scan_registers(DELETIONS).items == []

    def test_statistics_that_can_not_be_written_do_not_stop_a_sweep(
        self, ringed: RingStore, clock: ManualClock
    ) -> None:
        def refuse(call: StoreCall) -> None:
            if call.name == "update" and call.arguments[0] == DELETIONS:
                raise StoreUnavailable("store: refused")

        world = World(ringed, clock)
        for start in (10, 20):
            world.write(start, start + 1)
        assert sweep(FaultyStore(ringed, before=refuse), clock, 100).progress == 99
        assert world.progress(CONSERVATIVE) == 99


class TestDays:
    def test_what_is_older_than_gc_grace_can_be_dropped(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(TABLE, DeleteKind.RANGES, 1, 2, 3), LATER_MS - 12 * DAY_MS)
        deletions.add(tally(TABLE, DeleteKind.VERSIONS, 4), LATER_MS - 2 * DAY_MS)
        left = deletions.left(TABLE, GRACE_S, LATER_MS)
        assert left
        assert (left.tally.tombstones, left.droppable.tombstones) == (4, 3)
        assert left.since_ms == LATER_MS - 12 * DAY_MS

    def test_old_days_are_merged_and_never_count_as_older(self, memory: Store) -> None:
        deletions = Deletions(memory)
        days = MOST_DAYS + 10
        for day in range(days):
            deletions.add(tally(), day * DAY_MS)
        assert len(memory.scan_registers(DELETIONS).items) == MOST_DAYS
        left = deletions.left(TABLE, 0, days * DAY_MS)
        assert left
        assert left.tally.tombstones == days
        assert left.since_ms == 10 * DAY_MS


class TestCompactedSince:
    def test_only_that_node_only_there_and_only_what_could_be_dropped_then(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(TABLE, DeleteKind.RANGES, -5, 5, 50), LATER_MS - 12 * DAY_MS)
        deletions.add(tally(TABLE, DeleteKind.RANGES, 5), LATER_MS - 2 * DAY_MS)
        deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS, 0, 10)
        assert numbers(deletions.left(TABLE, GRACE_S, LATER_MS, "one"))["ranges"] == 3
        assert numbers(deletions.left(TABLE, GRACE_S, LATER_MS, "two"))["ranges"] == 4
        assert numbers(deletions.left(TABLE, GRACE_S, LATER_MS))["ranges"] == 4

    def test_a_node_that_was_compacted_everywhere_has_nothing_left(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(), LATER_MS - 12 * DAY_MS)
        deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS, LEAST_TOKEN, GREATEST_TOKEN)
        assert deletions.left(TABLE, GRACE_S, LATER_MS, "one") is None

    def test_however_many_compactions_there_were_none_is_forgotten(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(TABLE, DeleteKind.RANGES, *range(100)), 0)
        for number in range(99):
            deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS + number, number, number)
        assert numbers(deletions.left(TABLE, GRACE_S, 2 * LATER_MS, "one"))["ranges"] == 1

    def test_what_is_deleted_where_it_was_compacted_before_is_left_there(self, memory: Store) -> None:
        deletions = Deletions(memory)
        for day in (0, 20):
            deletions.add(tally(TABLE, DeleteKind.RANGES, 5), day * DAY_MS)
            deletions.record_compaction(TABLE, "one", GRACE_S, 15 * DAY_MS, 0, 10)
        assert numbers(deletions.left(TABLE, GRACE_S, LATER_MS, "one"))["ranges"] == 1

    def test_it_stays_so_though_gc_grace_is_longer_by_now(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(), 0)
        deletions.record_compaction(TABLE, "one", GRACE_S, 11 * DAY_MS, 0, 0)
        assert deletions.left(TABLE, 20 * GRACE_S, 12 * DAY_MS, "one") is None

    def test_a_list_of_compactions_in_the_old_format_is_ignored(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(), 0)
        deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS, 0, 0)
        (kept,) = [cell for cell, _ in memory.scan_registers(DELETIONS).items if cell.column == b"none"]
        memory.update(DELETIONS, kept, lambda _: b"[[0, 0, 7]]")
        assert numbers(deletions.left(TABLE, GRACE_S, LATER_MS, "one"))["ranges"] == 1
        deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS, 0, 0)
        assert deletions.left(TABLE, GRACE_S, LATER_MS, "one") is None

    def test_a_table_that_is_dropped_is_forgotten(self, memory: Store) -> None:
        deletions = Deletions(memory)
        deletions.add(tally(), LATER_MS)
        deletions.add(tally(THOROUGH_TABLE), LATER_MS)
        deletions.record_compaction(TABLE, "one", GRACE_S, LATER_MS, 0, 0)
        deletions.forget(TABLE)
        assert deletions.left(TABLE, GRACE_S, LATER_MS) is None
        assert deletions.left(THOROUGH_TABLE, GRACE_S, LATER_MS)


class TestManyDays:
    DAYS = 120

    def test_a_burst_is_compacted_once_and_not_again_when_its_day_is_put_together_with_later_ones(
        self, memory: Store
    ) -> None:
        deletions, compacted = Deletions(memory), []
        for day in range(self.DAYS):
            deletions.add(tally(TABLE, DeleteKind.RANGES, *[0] * (10 if day else 50_000)), day * DAY_MS)
            left = deletions.left(TABLE, GRACE_S, day * DAY_MS, "one")
            if left and left.droppable.tombstone_histogram().dense_ranges(1_000):
                deletions.record_compaction(TABLE, "one", GRACE_S, day * DAY_MS, LEAST_TOKEN, GREATEST_TOKEN)
                compacted.append(day)
        assert compacted == [11, 111], "on the second of these days a hundred days have added up"

    def test_a_hot_row_is_compacted_once_though_all_days_together_are_known_in_coarse_ranges_only(
        self, memory: Store
    ) -> None:
        deletions = Deletions(memory)
        lower = [LEAST_TOKEN + number * (2**63 // 300) for number in range(300)]
        upper = [token + 2**63 for token in lower]
        deletions.add(tally(TABLE, DeleteKind.RANGES, *lower), 0)
        deletions.record_compaction(TABLE, "one", GRACE_S, 11 * DAY_MS, LEAST_TOKEN, -1)
        deletions.add(tally(TABLE, DeleteKind.RANGES, *upper, *[upper[7]] * 2_000), 12 * DAY_MS)
        left = deletions.left(TABLE, GRACE_S, 30 * DAY_MS, "one")
        assert left
        ((first, last, _),) = left.droppable.tombstone_histogram().dense_ranges(1_000)
        deletions.record_compaction(TABLE, "one", GRACE_S, 30 * DAY_MS, first, last)
        left = deletions.left(TABLE, GRACE_S, 30 * DAY_MS, "one")
        assert left
        assert left.droppable.tombstones == 299

    def test_each_node_has_what_a_record_of_every_day_would_have(self, memory: Store) -> None:
        deletions, chance = Deletions(memory), Random(7)
        deleted: list[tuple[int, int]] = []
        existing: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
        for day in range(self.DAYS):
            tokens = [chance.randrange(20) for _ in range(chance.randrange(30))]
            deletions.add(tally(TABLE, DeleteKind.VERSIONS, *tokens) if tokens else DeleteTally(), day * DAY_MS)
            deleted += ((day, token) for token in tokens)
            for node, kept in existing.items():
                kept += ((day, token) for token in tokens)
                first, last = sorted(chance.randrange(20) for _ in range(2))
                if chance.random() < 0.2:
                    deletions.record_compaction(TABLE, node, GRACE_S, day * DAY_MS, first, last)
                    kept[:] = [each for each in kept if each[0] + 11 > day or not first <= each[1] <= last]
                left = deletions.left(TABLE, GRACE_S, day * DAY_MS, node)
                assert (left.tally.tombstones if left else 0) == len(kept)
                may_go = sum(deleted_on + 11 <= day for deleted_on, _ in kept)
                assert (left.droppable.tombstones if left else 0) == may_go
        left = deletions.left(TABLE, GRACE_S, self.DAYS * DAY_MS)
        assert left
        assert left.tally.tombstones == len(deleted), "a node that was never compacted has all of it"


def test_the_moment_at_which_all_of_it_can_be_dropped_is_that_of_the_last_day(memory: Store) -> None:
    deletions = Deletions(memory)
    for day in (3, 5):
        deletions.add(tally(), day * DAY_MS + 7)
    left = deletions.left(TABLE, GRACE_S, 6 * DAY_MS)
    assert left
    assert left.all_from_ms == 16 * DAY_MS
    assert deletions.left(TABLE, GRACE_S, 16 * DAY_MS - 1).droppable.tombstones == 1  # type: ignore[union-attr]
    assert deletions.left(TABLE, GRACE_S, 16 * DAY_MS).droppable.tombstones == 2  # type: ignore[union-attr]


def test_a_tally_is_serialised_unchanged_and_stays_small() -> None:
    created = DeleteTally()
    for number in range(5_000):
        created.add(TABLE, DeleteKind.RANGES, [token_of(b"%d" % number)])
    again = DeleteTally.of(created.document())
    again.merge(DeleteTally.of(created.document()))
    [(table, counts)] = again
    assert (table, counts.tombstones) == (TABLE, 10_000)
    assert len(counts.document()["ranges"]["deleted"]) <= 512
