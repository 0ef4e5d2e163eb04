"""Benchmarks on Cassandra at a small size: they fail below half of a goal only.

The least of three interleaved rounds counts, because other load on the machine can only add to it. A job runs in a
session that is already started. What it takes for a few cells, which hardly depends on their number, counts as its
start. With few entries that still is most of its time, so two goals have an analogue: for cells that were overwritten
many times, what their deletes take beside a loop; for a scan, only reading and deleting of the targeted sweep.

Comparisons with a whole job or scan, which several processes share, need a machine without other load: they are among
the long tests. The goal of compaction is checked in `tests/cassandra/test_compaction.py`.
"""

from __future__ import annotations

from itertools import count

import pytest
from pyspark.sql import SparkSession

from benchmarks import cassandra as deleting
from benchmarks import legacy, overwritten
from benchmarks.shared.cassandra import Compared, Shape, Workload, compare, fill
from benchmarks.shared.goals import Goal, at_least
from benchmarks.shared.spark import run_in_session
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place
from tests.support.goals import missed

pytestmark = pytest.mark.timeout(900)

ROUNDS = 3
AT_ONCE = 500
"""Cells per transaction: large ones are written faster."""
FEW = Workload(1_000, times=1, at_once=AT_ONCE)
MANY = Workload(30_000, times=1, at_once=AT_ONCE)
OVERWRITTEN = Workload(6_000, overwritten.TIMES, at_once=AT_ONCE)
SHAPES = [Shape(200, 64)]
SCANNED = 20_000


def compared(place: Place, spark: SparkSession, workload: Workload, start: Workload | None = None) -> Compared:
    """Use one keyspace for everything, emptied in between: creating one takes longer than a job."""

    def emptied(_: str) -> str:
        with place.emptied():
            return place.url

    def start_s() -> float:
        if start is None:
            return 0
        fill(emptied("start"), start.writes(), queued=True)
        return run_in_session(spark, place.url).seconds

    found = compare(emptied, workload, lambda url: run_in_session(spark, url), start_s, ROUNDS, SHAPES)
    done = {(run.summary.entries, run.summary.range_deletes) for run in found.runs}
    assert done == {(workload.entries, workload.cells)}
    return found.quietest()


@pytest.mark.long
def test_the_job_deletes_about_as_fast_as_a_loop_that_only_deletes(place: Place, spark: SparkSession) -> None:
    def goals() -> list[Goal]:
        return deleting.range_delete_goals(MANY.cells, compared(place, spark, MANY, start=FEW))

    assert missed(goals) == []


@pytest.mark.long
def test_one_delete_for_a_cell_beats_one_for_each_of_its_entries(place: Place, spark: SparkSession) -> None:
    def goals() -> list[Goal]:
        found = compared(place, spark, OVERWRITTEN)
        return [at_least("loop, relative to deleting", found.loop_s / found.deleting_s, overwritten.GOAL)]

    assert missed(goals) == []


@pytest.mark.long
def test_a_targeted_sweep_is_much_faster_than_a_scan(cassandra_cluster: LocalCluster) -> None:
    attempts = count()

    def goals() -> list[Goal]:
        number = next(attempts)
        urls = [cassandra_cluster.url(f"benchmark_{name}_{number}") for name in ("legacy", "targeted")]
        scan = legacy.compare(urls[0], urls[1], SCANNED, rounds=ROUNDS)
        queue_s = min(summary.seconds["queue"] for _, summary in scan.targeted)
        return [legacy.goal(SCANNED, scan.scan_s / queue_s)]

    assert missed(goals) == []


def test_counting_deletes_costs_little_beside_deleting(cassandra: CassandraStore) -> None:
    assert missed(lambda: [deleting.measure_counting(cassandra, cells=10_000, choose=min).goal]) == []


@pytest.mark.parametrize("writes", deleting.WRITES)
def test_the_queue_costs_a_writer_on_cassandra_little(cassandra: CassandraStore, writes: int) -> None:
    assert missed(lambda: [deleting.measure_writes(cassandra, writes, commits=5, choose=min).goal]) == []
