"""Sweeps and transactions while nodes are killed or stopped: three nodes, three replicas."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from sweep_tasks.clock import SystemClock
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import OutcomeUnknown, StoreError, StoreUnavailable
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.queue.parking import HoldReason
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.invariants import CELLS, GOING, KEPT, TABLES, Invariants, Position
from tests.cassandra.places import Place, full_name, physical_name, session_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spread(three_nodes: LocalCluster) -> Place:
    """A keyspace with three replicas, and short timeouts."""
    return Place(three_nodes, "faults", cassandra_timeout_s=6.0)


@pytest.fixture
def nodes(spread: Place) -> Iterator[LocalCluster]:
    """All three nodes are up before and after each test."""
    yield spread.cluster
    for number in (1, 2, 3):
        if number in spread.cluster.running:
            spread.cluster.resume(number)
        else:
            spread.cluster.restart(number)


@pytest.fixture
def invariants(spread: Place, nodes: LocalCluster) -> Iterator[Invariants]:
    assert nodes.running == [1, 2, 3]
    with spread.emptied() as store:
        yield Invariants(spread, store, seed=7)


class TestOneNodeIsKilled:
    def test_the_sweep_finishes_and_delete_markers_wait_for_the_missing_replica(
        self, invariants: Invariants, nodes: LocalCluster, spread: Place
    ) -> None:
        invariants.write(25)
        killer = threading.Timer(0.5, nodes.kill, [3])
        killer.start()
        summaries = invariants.sweep()
        killer.join()
        while 3 in nodes.running:
            time.sleep(0.1)
        invariants.write(10)
        summaries += invariants.sweep()

        assert {summary.stopped for summary in summaries} == {None}
        waiting = invariants.parked()
        assert waiting
        assert {entry.hold.why for entry in waiting} == {HoldReason.REPLICAS}
        invariants.check()

        nodes.restart(3)
        nodes.nodetool(
            3, "repair", "--full", spread.keyspace, *(physical_name(invariants.store, table) for table in TABLES)
        )
        invariants.sweep()
        invariants.check()
        invariants.check_nothing_is_left_over()
        for number in (1, 2, 3):
            assert_no_replica_is_behind(spread, invariants, number)

    @pytest.mark.long
    def test_a_deletion_that_a_replica_missed_is_not_undone(
        self, invariants: Invariants, nodes: LocalCluster, spread: Place
    ) -> None:
        """The marker stays until every replica has removed what is below it, so purging it can't bring that back."""
        invariants.write(30)
        nodes.kill(2)
        invariants.write(30)
        invariants.sweep()
        invariants.check()
        nodes.restart(2)
        invariants.sweep()
        for number in nodes.running:
            nodes.nodetool(number, "flush", spread.keyspace)
            nodes.nodetool(number, "compact", spread.keyspace)
        invariants.check()


def test_with_two_nodes_down_a_run_fails_and_moves_nothing(invariants: Invariants, nodes: LocalCluster) -> None:
    invariants.write(10)
    before = invariants.position()
    nodes.kill(2)
    nodes.kill(3)
    with pytest.raises(StoreError) as failed:
        invariants.sweep()
    assert failed.value.exit_code == 4
    assert failed.value.reason in ("too_few_replicas", "timed_out")
    a_bulk_call_gives_up_early(invariants.store)
    nodes.restart(2)
    nodes.restart(3)
    assert invariants.position() == before
    assert eventually(lambda: swept_further(invariants, before), patience_s=60), sweep_state(invariants.store)
    invariants.check()
    invariants.check_nothing_is_left_over()


def swept_further(invariants: Invariants, before: Position) -> bool:
    """Sweep, and return whether every shard and every threshold has advanced. A clock sample that is not above the
    last one, on a machine whose clock was set back, moves nothing: the next sweep does."""
    invariants.sweep()
    progress, thresholds = invariants.position()
    return all(progress[shard] > before.progress[shard] for shard in progress) and all(
        now > then for now, then in zip(thresholds, before.thresholds, strict=True)
    )


def sweep_state(store: CassandraStore) -> str:
    """What a horizon is computed from, for the message of a failed test."""
    history, leases = ClockHistory(store), Leases(store, 20)
    return f"now {SystemClock().now_ms()}, record {history.clock_record()}, leases {leases.open()}"


def a_bulk_call_gives_up_early(store: CassandraStore) -> None:
    """What one request was refused for, the others are not sent for."""
    before = store.request_counts().total()
    with pytest.raises(StoreError):
        store.put(1, {KEPT: {Cell(b"bulk %d" % number, b"column"): b"value" for number in range(20_000)}})
    assert store.request_counts().total() - before < 100


class TestAPausedNode:
    def test_one_stopped_node_causes_time_outs_and_no_wrong_answers(
        self, invariants: Invariants, nodes: LocalCluster, spread: Place
    ) -> None:
        """Every request that the silent node coordinates is waited for, so with less patience than elsewhere."""
        with spread.opened(cassandra_timeout_s=2.5) as invariants.store:
            invariants.write(10)
            nodes.pause(3)
            invariants.write(3)
            with suppress(StoreUnavailable, OutcomeUnknown):
                invariants.sweep()
            nodes.resume(3)
            invariants.write(4)
            invariants.check()
            invariants.sweep()
            invariants.check()
            assert invariants.outcomes["committed"] > 10
            assert invariants.store.request_counts()["repeated"] > 0

    def test_a_repeatable_request_is_sent_to_a_second_node(
        self, invariants: Invariants, nodes: LocalCluster, spread: Place
    ) -> None:
        invariants.write(4)
        with spread.opened(cassandra_speculative_ms=100) as quick:
            assert quick.get(KEPT, dict.fromkeys(CELLS, 2**62))
            assert eventually(lambda: len(session_of(quick).get_pool_state()) == nodes.nodes), "connected to some only"
            nodes.pause(3)
            for cell in CELLS:
                quick.get(KEPT, {cell: 2**62})
            nodes.resume(3)
            assert eventually(lambda: quick.request_counts()["speculative"]) > 0

    def test_a_write_that_times_out_may_have_happened(
        self, invariants: Invariants, nodes: LocalCluster, spread: Place
    ) -> None:
        table, cell = TableRef.parse("app.timed"), Cell(b"row", b"column")
        invariants.store.create_table(table, TableMetadata())
        with spread.opened(cassandra_attempts=1, cassandra_timeout_s=6.0) as store:
            TimestampService(store).move_past(100)
            assert store.tables([table])
            store.put(40, {table: {cell: b"before"}})
            assert store.get(table, {cell: 60})
            nodes.pause(2)
            nodes.pause(3)
            with pytest.raises(OutcomeUnknown):
                store.put(50, {table: {cell: b"value"}})
            with pytest.raises(StoreUnavailable):
                store.get(table, {cell: 60})
            nodes.resume(2)
            nodes.resume(3)
        assert invariants.store.timestamps(table, [cell])[cell] in ([50, 40], [40])


def assert_no_replica_is_behind(place: Place, invariants: Invariants, number: int) -> None:
    """The data of the thorough table on this node alone equals the result of a quorum read."""
    assert isinstance(invariants.store, CassandraStore)
    everywhere = {
        (found.cell.row, found.cell.column, found.ts) for found in invariants.store.scan_versions(GOING).items
    }
    host = place.cluster.hosts[number - 1]
    profile = ExecutionProfile(WhiteListRoundRobinPolicy([host]), consistency_level=ConsistencyLevel.ONE)
    cluster = Cluster([host], port=place.cluster.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        session = cluster.connect()  # it is a replica of everything, and reads from itself first
        rows = session.execute(f"SELECT key, column1, column2 FROM {full_name(invariants.store, GOING)}")
        assert {(row.key, row.column1, ~row.column2) for row in rows} == everywhere
    finally:
        cluster.shutdown()
