"""First contact with a store on a real Cassandra, whose tables are sampled by scan_ranges of the ring."""

from __future__ import annotations

from sweep_tasks.clock import SystemClock
from sweep_tasks.diagnosis.doctor import Doctor
from sweep_tasks.diagnosis.findings import Level, findings
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import StoreLocation
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.places import Place

T = TableRef.parse("app.large")
ROWS = 4_000


def test_a_table_from_before_the_queue_is_estimated_from_a_few_parts(cassandra: CassandraStore, place: Place) -> None:
    Catalog(cassandra).create(T, TableMetadata(SweepStrategy.THOROUGH))
    with TransactionManager(cassandra, place.settings, enqueue=False) as manager:
        for value in (b"1", b"2"):
            with manager.transaction() as tx:
                tx.put_many(T, {Cell(b"%d" % row, b"c"): value for row in range(ROWS)})
    facts = Doctor(cassandra, place.settings, SystemClock(), 60).examine(StoreLocation.parse(place.url))
    (table,) = facts.tables
    assert table.sample
    assert table.sample.share < 1
    assert ROWS < table.sample.of_all(table.sample.versions) < 4 * ROWS
    assert ROWS / 2 < table.sample.of_all(table.sample.goes_later) < 2 * ROWS
    assert "compaction" in facts.tombstones
    assert [each.level for each in findings(facts) if each.about == str(T)] == [Level.DO]
