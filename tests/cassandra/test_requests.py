"""How requests reach the cluster: a few at a time, in batches, and counted."""

from __future__ import annotations

import threading

import prometheus_client
from cassandra.cluster import ResponseFuture

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, TableMetadata, TableRef, VersionRange
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place, session_of
from tests.support.waiting import eventually

ITEMS = TableRef.parse("app.items")
CELLS = [Cell(b"%04d" % number, b"column") for number in range(300)]


class Watched:
    """How many requests of a store were not answered yet, at most, and how many there were."""

    def __init__(self, store: CassandraStore) -> None:
        self.most = self.total = 0
        self._session = session_of(store)
        self._lock = threading.Lock()
        self._session.add_request_init_listener(self._began)

    def _began(self, _: ResponseFuture) -> None:
        """Called right before a request is sent."""
        with self._lock:
            self.total += 1
            sent = sum(sum(pool["in_flights"]) for pool in self._session.get_pool_state().values())
            self.most = max(self.most, sent + 1)


def test_no_more_requests_are_in_flight_than_allowed(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(ITEMS, TableMetadata())
    with place.opened(cassandra_in_flight=3, cassandra_batch_statements=1) as store:
        watched = Watched(store)
        store.put(5, {ITEMS: dict.fromkeys(CELLS, b"value")})
        store.timestamps(ITEMS, CELLS)
    assert watched.total > 300
    assert 1 < watched.most <= 3


def test_many_cells_are_sent_in_few_requests(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(ITEMS, TableMetadata())
    with place.opened() as store:
        TimestampService(store).move_past(100)
        store.put(5, {ITEMS: {CELLS[0]: b"value"}})
        watched = Watched(store)
        store.put(6, {ITEMS: dict.fromkeys(CELLS, b"value")})
        store.get(ITEMS, dict.fromkeys(CELLS, 9))
        store.delete_ranges(ITEMS, [VersionRange(cell, 0, 9) for cell in CELLS])
        assert watched.total < len(CELLS) / 10
        assert store.timestamps(ITEMS, CELLS) == {}


def test_a_page_of_a_scan_is_one_request(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(ITEMS, TableMetadata())
    with place.opened(cassandra_page_rows=200) as store:
        store.put(5, {ITEMS: dict.fromkeys(CELLS, b"value")})
        store.scan(ITEMS, 9, limit=1)  # from here on the statement is prepared
        watched = Watched(store)
        assert len(store.scan(ITEMS, 9, limit=200).items) == 200
        assert watched.total == 1


def test_a_value_above_the_limit_of_a_batch_is_sent_alone(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(ITEMS, TableMetadata())
    values = {cell: b"v" * (100_000 if number % 10 == 0 else 10) for number, cell in enumerate(CELLS)}
    cassandra.put(5, {ITEMS: values})
    assert {cell: version.value for cell, version in cassandra.get(ITEMS, dict.fromkeys(CELLS, 9)).items()} == values


def test_every_request_is_counted_for_prometheus(cassandra: CassandraStore) -> None:
    def answered() -> float:
        return prometheus_client.REGISTRY.get_sample_value("sweepflow_cassandra_requests_total", {"outcome": "ok"}) or 0

    before, own = answered(), cassandra.request_counts().get("ok", 0)
    cassandra.tables()
    # The driver's own thread counts, and may come after the answer.
    assert eventually(lambda: answered() - before) == 1
    assert eventually(lambda: cassandra.request_counts()["ok"] - own) == 1
    assert prometheus_client.REGISTRY.get_sample_value("sweepflow_cassandra_request_seconds_count")
