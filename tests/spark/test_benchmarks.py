"""Benchmarks of the Spark job at a small size: they fail below half of a goal only.

The least of three interleaved rounds counts, because other load on the machine can only add to it. Growth is checked
from 10,000 to 100,000 entries, in one session: that the time does not grow faster than the queue shows there too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.growth import LIMIT, WRITES, growth_goal, limit_is_enforced, memory_goal
from benchmarks.shared.goals import Goal
from benchmarks.shared.memory import PeakMemory, mebibytes
from benchmarks.shared.spark import bare_start_s, copied, fill_sqlite, run_in_session, run_job, sqlite_url
from benchmarks.spark import TRIVIAL, trivial_goal
from tests.support.goals import missed

pytestmark = pytest.mark.timeout(900)

ROUNDS = 3
SIZES = SMALL, LARGE = 10_000, 100_000


def test_the_time_of_the_job_does_not_grow_faster_than_the_queue(spark: SparkSession, tmp_path: Path) -> None:
    stores = {entries: fill_sqlite(tmp_path / f"{entries}.db", entries, WRITES) for entries in SIZES}
    run_in_session(spark, sqlite_url(copied(stores[SMALL])))

    def swept_s(entries: int) -> float:
        run = run_in_session(spark, sqlite_url(copied(stores[entries])))
        assert run.summary.entries == entries
        return run.seconds

    def goals() -> list[Goal]:
        rounds = [(swept_s(SMALL), swept_s(LARGE)) for _ in range(ROUNDS)]
        return [growth_goal(SMALL, min(small for small, _ in rounds), LARGE, min(large for _, large in rounds))]

    assert missed(goals) == []


def test_a_job_for_a_few_entries_takes_little_longer_than_a_bare_start_and_respects_its_limit(tmp_path: Path) -> None:
    store = fill_sqlite(tmp_path / "trivial.db", TRIVIAL)
    memory = PeakMemory()

    def job_s() -> float:
        return run_job(sqlite_url(copied(store)), LIMIT, memory).seconds

    def goals() -> list[Goal]:
        rounds = [(job_s(), bare_start_s(tmp_path)) for _ in range(ROUNDS)]
        return [trivial_goal(min(ours for ours, _ in rounds) / min(theirs for _, theirs in rounds))]

    assert missed(goals) == []
    assert limit_is_enforced(memory), memory
    assert memory_goal(TRIVIAL, mebibytes(max(memory.workers.values()))).held
    assert 0 < memory.driver < memory.java
