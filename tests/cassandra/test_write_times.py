"""Write times of versions, sentinels and tombstones, on a real Cassandra.

A version written at TS has write time TS; anything that covers versions has a fresh one. Each rule is shown with what
happens without it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, Version, VersionRange
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import Store
from tests.cassandra.places import Place, full_name, session_of, write_times

CELL, OTHER = Cell(b"row", b"column"), Cell(b"other", b"column")
ITEMS = TableRef.parse("app.items")
NEVER_AGAIN = VersionRange(CELL, -1, 2**62)


@pytest.fixture
def timestamps(cassandra: CassandraStore) -> TimestampService:
    return TimestampService(cassandra)


@pytest.fixture
def items(cassandra: CassandraStore) -> TableRef:
    cassandra.create_table(ITEMS, TableMetadata(strategy=SweepStrategy.CONSERVATIVE))
    return ITEMS


def put_fresh(store: Store, timestamps: TimestampService, cell: Cell = CELL) -> int:
    ts = timestamps.fresh()
    store.put(ts, {ITEMS: {cell: b"value"}})
    return ts


class TestWriteTimestamps:
    def test_a_version_is_written_at_its_own_timestamp(self, cassandra: CassandraStore, items: TableRef) -> None:
        cassandra.put(17, {items: {CELL: b"a", OTHER: b""}})
        assert write_times(cassandra, items) == {(*CELL, 17): 17, (*OTHER, 17): 17}

    def test_a_sentinel_is_written_at_a_fresh_timestamp(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService
    ) -> None:
        before = timestamps.fresh()
        cassandra.add_sentinels(items, [CELL, OTHER])
        after = timestamps.fresh()
        written = write_times(cassandra, items)
        assert set(written) == {(*CELL, -1), (*OTHER, -1)}
        assert all(before < each < after for each in written.values())

    @pytest.mark.parametrize(
        "bulk",
        [
            lambda store: store.add_sentinels(ITEMS, [CELL, OTHER]),
            lambda store: store.delete_versions(ITEMS, [(CELL, 1), (OTHER, 1)]),
            lambda store: store.delete_ranges(ITEMS, [VersionRange(CELL, 0, 9), VersionRange(OTHER, 0, 9)]),
            lambda store: store.delete_everywhere(ITEMS, [VersionRange(CELL, 0, 9), VersionRange(OTHER, 0, 9)]),
            lambda store: store.delete_rows(ITEMS, [CELL.row, OTHER.row]),
        ],
        ids=["sentinels", "versions", "ranges", "everywhere", "rows"],
    )
    def test_a_bulk_call_takes_one_fresh_timestamp_however_many_cells_it_has(
        self,
        cassandra: CassandraStore,
        items: TableRef,
        timestamps: TimestampService,
        bulk: Callable[[Store], None],
    ) -> None:
        assert items == ITEMS
        before = timestamps.fresh()
        bulk(cassandra)
        bulk(cassandra)
        assert timestamps.fresh() == before + 3

    def test_metadata_is_written_at_the_wall_clock(self, cassandra: CassandraStore, items: TableRef) -> None:
        query = (
            f'SELECT WRITETIME(metadata) AS written FROM {full_name(cassandra, items).partition(".")[0]}."_sweepflow"'
        )
        written = [row.written for row in session_of(cassandra).execute(query) if row.written]
        assert written
        assert all(each > 1_600_000_000_000_000 for each in written)

    def test_a_store_is_not_created_without_a_supplier_of_fresh_timestamps(self, place: Place) -> None:
        address = CassandraAddress.parse(place.url.removeprefix("cassandra:"))
        with pytest.raises(TypeError, match="fresh_timestamps"):
            CassandraStore(address, Settings())  # type: ignore[call-arg]


class TestATombstoneCoversTheVersionsBelowIt:
    """A tombstone or range tombstone over a cell written at TS has a greater write time."""

    @pytest.mark.parametrize("compacted", [False, True], ids=["in memory", "compacted"])
    def test_exactly_and_by_range(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService, place: Place, compacted: bool
    ) -> None:
        exact, ranged = put_fresh(cassandra, timestamps), put_fresh(cassandra, timestamps, OTHER)
        cassandra.delete_versions(items, [(CELL, exact)])
        cassandra.delete_ranges(items, [VersionRange(OTHER, 0, ranged + 1)])
        if compacted:
            place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL, OTHER]) == {}

    def test_with_a_memoised_timestamp_the_value_would_stay(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService
    ) -> None:
        memoised = timestamps.fresh()
        later = put_fresh(cassandra, timestamps)
        name = full_name(cassandra, items)
        cassandra.cells.delete_versions(name, [(CELL, later)], memoised)
        cassandra.cells.delete_ranges(name, [NEVER_AGAIN], memoised)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [later]}, "deleted, but still live"
        cassandra.delete_versions(items, [(CELL, later)])
        assert cassandra.timestamps(items, [CELL]) == {}


class TestATombstoneCoversTheSentinelsBelowIt:
    def test_a_sentinel_is_removed_by_a_range_from_minus_one(
        self, cassandra: CassandraStore, items: TableRef, place: Place
    ) -> None:
        cassandra.add_sentinels(items, [CELL])
        cassandra.delete_ranges(items, [VersionRange(CELL, -1, 5)])
        assert cassandra.timestamps(items, [CELL]) == {}
        place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {}

    def test_with_a_memoised_timestamp_the_sentinel_would_stay(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService
    ) -> None:
        memoised = timestamps.fresh()
        cassandra.add_sentinels(items, [CELL])
        cassandra.cells.delete_ranges(full_name(cassandra, items), [VersionRange(CELL, -1, 5)], memoised)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [-1]}


class TestASentinelIsAboveOlderTombstones:
    @pytest.mark.parametrize("compacted", [False, True], ids=["in memory", "compacted"])
    def test_conservative_then_thorough_then_conservative_leaves_readable_sentinels(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService, place: Place, compacted: bool
    ) -> None:
        first = put_fresh(cassandra, timestamps)
        cassandra.add_sentinels(items, [CELL])
        cassandra.delete_ranges(items, [VersionRange(CELL, 0, first)])
        second = put_fresh(cassandra, timestamps)
        cassandra.delete_ranges(items, [VersionRange(CELL, -1, second)])
        assert cassandra.timestamps(items, [CELL]) == {CELL: [second]}
        third = put_fresh(cassandra, timestamps)
        cassandra.add_sentinels(items, [CELL])
        cassandra.delete_ranges(items, [VersionRange(CELL, 0, third)])
        if compacted:
            place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [third, -1]}
        assert cassandra.get(items, {CELL: third}) == {CELL: Version(-1, b"")}

    def test_under_the_old_scheme_the_sentinel_would_not_be_seen(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService
    ) -> None:
        second = put_fresh(cassandra, timestamps)
        cassandra.delete_ranges(items, [VersionRange(CELL, -1, second)])
        old_sentinel(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [second]}
        cassandra.add_sentinels(items, [CELL])
        assert cassandra.timestamps(items, [CELL]) == {CELL: [second, -1]}


class TestWhatWasWrittenUnderTheOldScheme:
    """Sentinels at write time -1, tombstones at TS + 1, range tombstones at TS: all below any fresh timestamp."""

    def test_an_old_sentinel_is_removed_and_written_again(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService, place: Place
    ) -> None:
        timestamps.move_past(1_000)
        old_sentinel(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [-1]}
        cassandra.delete_ranges(items, [VersionRange(CELL, -1, 5)])
        assert cassandra.timestamps(items, [CELL]) == {}
        cassandra.add_sentinels(items, [CELL])
        place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [-1]}

    def test_a_sentinel_is_not_hidden_by_old_tombstones(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService, place: Place
    ) -> None:
        timestamps.move_past(1_000)
        old_sentinel(cassandra, items)
        old_range_tombstone(cassandra, items, -1, 500)
        old_tombstone(cassandra, items, -1)
        assert cassandra.timestamps(items, [CELL]) == {}
        cassandra.add_sentinels(items, [CELL])
        place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [-1]}

    def test_versions_beside_old_tombstones_are_covered_as_any_other(
        self, cassandra: CassandraStore, items: TableRef, timestamps: TimestampService, place: Place
    ) -> None:
        timestamps.move_past(1_000)
        for ts in (100, 200, 300):
            cassandra.put(ts, {items: {CELL: b"value"}})
        old_tombstone(cassandra, items, 100)
        old_range_tombstone(cassandra, items, 0, 200)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [300, 200]}
        cassandra.delete_ranges(items, [VersionRange(CELL, 0, 300)])
        place.compact(cassandra, items)
        assert cassandra.timestamps(items, [CELL]) == {CELL: [300]}


def test_a_value_written_too_late_stays_below_the_tombstone_of_its_cell(
    cassandra: CassandraStore, items: TableRef, timestamps: TimestampService
) -> None:
    """A writer that a sweep has passed leaves nothing; only `put_late` writes above the tombstone."""
    late = timestamps.fresh()
    cassandra.delete_versions(items, [(CELL, late)])
    cassandra.put(late, {items: {CELL: b"value"}})
    assert cassandra.timestamps(items, [CELL]) == {}
    cassandra.put_late(late, {items: {CELL: b"value"}})
    assert cassandra.timestamps(items, [CELL]) == {CELL: [late]}
    cassandra.delete_versions(items, [(CELL, late)])
    assert cassandra.timestamps(items, [CELL]) == {}


def old_sentinel(store: CassandraStore, table: TableRef) -> None:
    store.cells.put({full_name(store, table): {CELL: b""}}, ts=-1, write_time=-1)


def old_tombstone(store: CassandraStore, table: TableRef, ts: int) -> None:
    store.cells.delete_versions(full_name(store, table), [(CELL, ts)], ts + 1)


def old_range_tombstone(store: CassandraStore, table: TableRef, first: int, end: int) -> None:
    store.cells.delete_ranges(full_name(store, table), [VersionRange(CELL, first, end)], end)
