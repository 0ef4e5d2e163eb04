"""What a table scan asks of a real Cassandra: no values, a page at a time, inside a partition and inside a cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cassandra.cluster import ResponseFuture

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Runs
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, StoredVersion, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import every
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.deletions import Deletions
from sweep_tasks.transactions.outcomes import CommitTable
from tests.cassandra.places import Place, session_of

TABLE = TableRef.parse("app.items")
WIDE, OTHER = Cell(b"wide", b"c1"), Cell(b"other", b"c")
VERSIONS, PAGE = 120, 25
SETTINGS = Settings(legacy_versions_per_s=0, legacy_batch_versions=PAGE, legacy_ranges=4)


class Pages:
    """The rows of every answer to a scan, as the driver got them."""

    def __init__(self, store: CassandraStore) -> None:
        self.found: list[list[Any]] = []
        session_of(store).add_request_init_listener(self._asked)

    def _asked(self, future: ResponseFuture) -> None:
        if "hashed" in str(
            getattr(future.query, "prepared_statement", None) and future.query.prepared_statement.query_string
        ):
            future.add_callback(lambda rows: self.found.append(list(rows or ())))


@pytest.fixture
def watched(place: Place, cassandra: CassandraStore) -> Iterator[tuple[CassandraStore, Pages]]:
    """A cell with very many versions, beside others in its row, and values that are large."""
    cassandra.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
    for ts in range(1, VERSIONS):
        cassandra.put(ts, {TABLE: {WIDE: b"v" * 10_000}})
    last = {WIDE: b"", Cell(b"wide", b"c0"): b"v" * 100_000, Cell(b"wide", b"c2"): b"", OTHER: b"v"}
    cassandra.put(VERSIONS, {TABLE: last})
    commits = CommitTable(cassandra)
    commits.decide(VERSIONS, VERSIONS + 1)
    commits.abort(range(1, VERSIONS - 1))
    commits.decide(VERSIONS - 1, VERSIONS + 2)
    TimestampService(cassandra).move_past(VERSIONS + 10)
    with place.opened() as store:
        yield store, Pages(store)


def test_a_scan_gets_no_values_and_no_more_than_a_page(watched: tuple[CassandraStore, Pages]) -> None:
    store, pages = watched
    found = list(every(lambda after: store.scan_versions(TABLE, limit=PAGE, after=after)))
    assert len(found) == VERSIONS + 3
    assert [each for each in found if each.empty] == [
        StoredVersion(cell, VERSIONS, True)
        for cell in sorted((WIDE, Cell(b"wide", b"c2")), key=lambda cell: (store.row_order(cell.row), cell.column))
    ]
    assert len(pages.found) >= VERSIONS // PAGE
    assert max(map(len, pages.found)) <= PAGE + 1
    sizes = [sum(len(field) for field in row if isinstance(field, bytes)) for page in pages.found for row in page]
    assert max(sizes) <= len(WIDE.row) + len(WIDE.column) + len(OTHER.row)


def test_a_cell_of_many_pages_is_swept_and_its_marker_is_removed_last(watched: tuple[CassandraStore, Pages]) -> None:
    store, pages = watched
    legacy = LegacySweep(store, SETTINGS, SystemClock())
    order = LegacyOrder(TABLE, max_cells=1)
    summary = legacy.work(legacy.start(order, Horizon(VERSIONS + 5, SystemClock().now_ms())), order)
    while summary.stopped:
        summary = legacy.work(legacy.resume(TABLE), order)
    assert summary.counts.cells == 4
    assert (summary.counts.deleted, summary.counts.waiting) == (VERSIONS + 1, 0)
    left = store.scan_versions(TABLE).items
    assert sorted(each.cell for each in left) == sorted([OTHER, Cell(b"wide", b"c0")])
    assert max(map(len, pages.found)) <= PAGE + 1
    counted = Deletions(store).left(TABLE, 0, SystemClock().now_ms())
    assert counted
    assert counted.tally.tombstones == summary.counts.tombstones > 0, (
        "what scans delete is counted for compactions, too"
    )
    existing = Runs(store).progress(TABLE)
    assert existing
    assert (existing.done, len(existing.ranges)) == (4, 4)
