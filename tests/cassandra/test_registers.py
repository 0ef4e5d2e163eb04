"""Registers on a real Cassandra: values, times to live and concurrent changes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import Change
from sweep_tasks.store.schema import LEASES, THRESHOLDS, TRANSACTIONS
from tests.cassandra.places import Place, full_name, session_of

A = Cell(b"row", b"a")


def test_a_time_to_live_restarts_with_every_change(cassandra: CassandraStore) -> None:
    cassandra.put_if_absent(LEASES, {A: b"x"}, ttl_ms=8_000)
    time.sleep(5)
    assert cassandra.compare_and_set(LEASES, A.row, {A.column: Change(b"x", b"x")}, ttl_ms=8_000)
    time.sleep(5)
    assert cassandra.read(LEASES, [A]) == {A: b"x"}


def test_a_register_lives_at_least_as_long_as_was_asked_for(cassandra: CassandraStore) -> None:
    """Cassandra counts from the beginning of the second in which it was written."""
    cassandra.put_if_absent(LEASES, {A: b"x"}, ttl_ms=3_000)
    query = f"SELECT TTL(value) AS left FROM {full_name(cassandra, LEASES)}"
    assert next(row.left for row in session_of(cassandra).execute(query)) >= 3


def test_a_removed_register_leaves_its_place_to_the_next(cassandra: CassandraStore) -> None:
    for _ in range(3):
        assert cassandra.put_if_absent(LEASES, {A: b"x"}, ttl_ms=60_000) == {A: b"x"}
        cassandra.remove(LEASES, [A])
        assert cassandra.read(LEASES, [A]) == {}
    assert cassandra.compare_and_set(LEASES, A.row, {A.column: Change(None, b"y")})


def test_a_peek_finds_a_register_that_was_put_once(cassandra: CassandraStore) -> None:
    cells = {Cell(b"%04d" % number, b"t"): b"%d" % number for number in range(500)}
    cassandra.put_if_absent(TRANSACTIONS, cells)
    missing = Cell(b"nowhere", b"t")
    assert cassandra.peek(TRANSACTIONS, [*cells, missing]) == cells


def test_an_update_with_a_wrong_expectation_uses_the_stored_value(place: Place, cassandra: CassandraStore) -> None:
    with place.opened() as other:
        assert cassandra.update(THRESHOLDS, A, lambda _: b"1") == b"1"
        assert other.update(THRESHOLDS, A, lambda old: (old or b"") + b"2") == b"12"
        assert cassandra.update(THRESHOLDS, A, lambda old: (old or b"") + b"3") == b"123"


def test_an_update_that_would_change_nothing_reads_the_current_value_first(
    place: Place, cassandra: CassandraStore
) -> None:
    with place.opened() as other:
        cassandra.update(THRESHOLDS, A, lambda _: b"5")
        other.update(THRESHOLDS, A, lambda _: b"4")
        assert cassandra.update(THRESHOLDS, A, lambda old: max(old or b"", b"5")) == b"5"
        assert other.read(THRESHOLDS, [A]) == {A: b"5"}


def test_an_error_names_the_stored_value_and_not_the_expected_one(place: Place, cassandra: CassandraStore) -> None:
    def two_at_least(existing: bytes | None) -> bytes:
        if existing == b"9":
            raise ValueError("there are nine already")
        return b"2"

    with place.opened() as other:
        cassandra.update(THRESHOLDS, A, lambda _: b"9")
        with pytest.raises(ValueError, match="nine already"):
            cassandra.update(THRESHOLDS, A, two_at_least)
        other.remove(THRESHOLDS, [A])
        assert cassandra.update(THRESHOLDS, A, two_at_least) == b"2"


def test_timestamps_of_several_processes_are_never_the_same(place: Place, cassandra: CassandraStore) -> None:
    with place.opened() as other, ThreadPoolExecutor(8) as pool:
        services = [TimestampService(store) for store in (cassandra, other) for _ in range(4)]
        taken = [
            ts
            for each in [pool.submit(lambda service: [service.fresh() for _ in range(10)], one) for one in services]
            for ts in each.result()
        ]
    assert len(set(taken)) == len(taken) == 80


def test_of_many_processes_that_put_a_register_one_succeeds(place: Place, cassandra: CassandraStore) -> None:
    with place.opened() as other, ThreadPoolExecutor(8) as pool:
        stores = [cassandra, other] * 4
        wanted = [(store, b"%d" % number) for number, store in enumerate(stores)]
        existing = list(pool.map(lambda each: each[0].put_if_absent(TRANSACTIONS, {A: each[1]})[A], wanted))
    assert len(set(existing)) == 1
    assert cassandra.read(TRANSACTIONS, [A]) == {A: existing[0]}
