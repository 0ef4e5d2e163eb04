"""The Airflow pools: one with one slot for every shard of every strategy, for every lane of scans, and for every node.

A second task on the same shard, lane or node waits for the slot. Tables are not known when a DAG file is read, so they
share lanes. A pool saves work, it is no lock: Airflow releases the slot of a task that it marks failed before the Spark
driver is dead. The order of the steps of a sweep keeps two sweeps of one shard from doing harm. A task waits silently
and for ever for a pool that does not exist, and no task may create one: an operator does, with `sweepflow airflow
pools`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sweep_tasks.model import SweepStrategy

SWEPT = tuple(strategy for strategy in SweepStrategy if strategy is not SweepStrategy.NOTHING)
PREFIXES = SWEEPS, LANES, COMPACTIONS = "sweep_", "legacy_", "compact_"
MAKE_POOLS = "sweepflow airflow pools"


def pool_name(strategy: SweepStrategy, shard: int) -> str:
    return f"{SWEEPS}{strategy}_{shard}"


def pool_names(shards: int) -> list[str]:
    return [pool_name(strategy, shard) for strategy in SWEPT for shard in range(shards)]


def lane_pools(lanes: int) -> list[str]:
    return [f"{LANES}{lane}" for lane in range(lanes)]


def compaction_pool(node: str) -> str:
    return f"{COMPACTIONS}{node}"


def pools_document(shards: int, lanes: int = 0, nodes: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the document for `airflow pools import`."""
    sweeps = {
        pool_name(strategy, shard): f"one sweep at a time of {strategy} shard {shard}"
        for strategy in SWEPT
        for shard in range(shards)
    }
    scans = {name: f"one scan at a time of the tables in lane {lane}" for lane, name in enumerate(lane_pools(lanes))}
    compactions = {compaction_pool(node): f"one compaction at a time on node {node}" for node in nodes}
    return {
        name: {"slots": 1, "description": described, "include_deferred": True}
        for name, described in (sweeps | scans | compactions).items()
    }


class PoolProblem(NamedTuple):
    reason: str
    pools: list[str]
    sentence: str


def pool_problem(names: Collection[str], slots: Mapping[str, int]) -> PoolProblem | None:
    """Return the first problem with these pools, or None."""
    missing = [name for name in names if name not in slots]
    if missing:
        sentence = f"pools: {_some(missing)} missing; run '{MAKE_POOLS}' where Airflow runs, then clear this task"
        return PoolProblem("missing", missing, sentence)
    wide = [name for name in names if slots[name] != 1]
    if wide:
        sentence = f"pools: {_some(wide)} not of one slot; run '{MAKE_POOLS}' to correct that, then clear this task"
        return PoolProblem("not_one_slot", wide, sentence)
    return None


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"
