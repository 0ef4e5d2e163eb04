"""What sweeps leave on Cassandra's ring, counted by them, and the command that shows it."""

from __future__ import annotations

from typing import Any

from sweep_tasks.clock import SystemClock
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.tables.deletions import DAY_MS, DeleteKind, DeleteTally, Deletions
from tests.cassandra.places import Place
from tests.support.clock import ManualClock
from tests.support.command import sweepflow
from tests.unit.sweep.world import World

TABLE = TableRef.parse("app.items")
HOT = b"queue"


def reported(place: Place, *words: str) -> dict[str, Any]:
    answer = sweepflow("compaction", "ranges", "--json", "--store", place.url, *words)
    assert answer.code == 0, answer.out
    return answer.document


def test_a_row_with_frequent_deletes_is_found_on_the_ring(place: Place, cassandra: CassandraStore) -> None:
    clock = SystemClock()
    world = World(cassandra, ManualClock(clock.now_ms()))
    hot = [Cell(HOT, b"%04d" % number) for number in range(60)]
    cold = [Cell(b"row-%d" % number, b"c") for number in range(30)]
    for start in (10, 20):
        world.write(start, start + 1, [*hot, *cold])
    summary = ShardSweep(cassandra, SweepStrategy.CONSERVATIVE, 0, Horizon(100, clock.now_ms()), clock).run()
    assert summary.tombstones == {"app.items": 90}

    [found] = reported(place, "--at-least", "50")["tables"]
    assert {kind.value: found[kind.value] for kind in DeleteKind} == {"ranges": 90, "versions": 0, "sentinels": 90}
    [dense] = found["dense"]
    assert dense["first_token"] <= token_of(HOT) <= dense["last_token"]
    assert (dense["tombstones"] >= 60, dense["droppable"]) == (True, 0)
    assert (dense["last_token"] - dense["first_token"]) < 2**64 // 1_000

    shown = sweepflow("compaction", "ranges", "--at-least", "50", "--store", place.url).out
    assert f"{dense['first_token']} … {dense['last_token']}" in shown
    assert shown.split().count("90") >= 2


def test_compacted_ranges_of_a_node_are_no_longer_shown(place: Place, cassandra: CassandraStore) -> None:
    cassandra.create_table(TABLE, TableMetadata())
    tally = DeleteTally()
    tally.add(TABLE, DeleteKind.RANGES, [5] * 100)
    long_ago = SystemClock().now_ms() - place.settings.cassandra_gc_grace_s * 1000 - 3 * DAY_MS
    Deletions(cassandra).add(tally, long_ago)
    [found] = reported(place, "--at-least", "100", "--node", "one", "--done")["tables"]
    assert found["dense"][0]["droppable"] == 100
    assert reported(place, "--node", "one")["tables"] == []
    assert len(reported(place, "--node", "two")["tables"]) == 1


def test_cassandra_has_nothing_to_vacuum(place: Place) -> None:
    answer = sweepflow("compaction", "vacuum", "--store", place.url)
    assert answer.error is not None
    assert (answer.code, answer.error.field, answer.error.reason) == (2, "store", "has_tombstones")
