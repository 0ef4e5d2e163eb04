"""Benchmarks that need no server, at a small size: they fail below half of a goal only.

Sweeps are measured in CPU seconds of one thread. Protections are measured on a memory store, where a sweep with none is
fastest and the ratio is highest.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import protections, sweeping
from benchmarks.shared.goals import Goal
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from tests.support.goals import missed


def test_the_engine_sweeps_enough_entries_per_cpu_second() -> None:
    def goals() -> list[Goal]:
        return [rate.goal for rate in sweeping.engine_rates(transactions=100)]

    assert missed(goals) == []


def test_the_queue_costs_a_writer_on_sqlite_little(tmp_path: Path) -> None:
    assert missed(lambda: [sweeping.queue_cost(tmp_path, commits=30, choose=min).goal]) == []


def test_many_protections_cost_a_sweep_little() -> None:
    def goals() -> list[Goal]:
        cases = list(protections.GOALS)
        return protections.goals("memory", protections.ratios(lambda _: open_store("memory:", Settings()), cases))

    assert missed(goals) == []
